"""Waiters: who is concerned by news, what their edges are told, and how that is counted."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_ayework.models import Edge, Waiter
from django_ayework.rules.states import Status
from django_ayework.store.edges import News, watchers_of
from django_ayework.store.waiters import (
    WORTH_COPYING,
    WaiterRow,
    Watch,
    insert_waiters,
    lock_concerned,
    read_waiters,
    record_outcomes,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]


def watch(waiter: str, *ids: str, chain: bool = False, outcome: str = "") -> None:
    row = WaiterRow(waiter, '"all-success"', "dead", len(ids), 0, 0, False)
    row = row._replace(succeeded=len(ids) * (outcome == "success"), missed=len(ids) * (outcome == "dead"))
    insert_waiters([row], {waiter: [Watch(id, chain, outcome) for id in ids]})


def outcomes(waiter: str) -> dict[str, str]:
    return dict(Edge.objects.filter(waiter_id=waiter).values_list("watched_id", "outcome"))


def record(news: News, *waiters: str) -> dict[str, tuple[int, int]]:
    """Tell the waiters; return how many each counts as succeeded and missed, in the answer as in its row."""
    answer = record_outcomes(read_waiters(waiters), news)
    assert answer == read_waiters(waiters)
    return {id: (row.succeeded, row.missed) for id, row in answer.items()}


def test_edges_of_the_waiters_are_told_and_counted():
    watch("gate", "a", "b", "c", "d", "e")
    news = News({"a": Status.SUCCESS, "b": Status.DEAD, "c": Status.SUCCESS, "d": Status.CANCELLED}, {})
    assert record(news, "gate") == {"gate": (2, 2)}
    assert outcomes("gate") == {"a": "success", "b": "dead", "c": "success", "d": "cancelled", "e": ""}


def test_several_waiters_count_for_themselves():
    watch("both", "a", "b")
    watch("one", "b")
    watch("none", "c")
    news = News({"a": Status.SUCCESS, "b": Status.DEAD}, {})
    assert record(news, "both", "one", "none") == {"both": (1, 1), "one": (0, 1), "none": (0, 0)}


def test_edges_of_other_waiters_are_left_alone():
    watch("gate", "a")
    watch("other", "a")
    assert record(News({"a": Status.SUCCESS}, {}), "gate") == {"gate": (1, 0)}
    assert outcomes("other") == {"a": ""}
    assert read_waiters(["other"])["other"].succeeded == 0


def test_what_is_known_already_is_not_counted_again():
    watch("gate", "a", outcome="success")
    assert record(News({"a": Status.SUCCESS}, {}), "gate") == {"gate": (1, 0)}


def test_a_work_and_the_chain_of_its_id_are_told_apart():
    watch("of work", "a")
    watch("of chain", "a", chain=True)
    waiters = ["of work", "of chain"]
    assert record(News({}, {"a": Status.DEAD}), *waiters) == {"of work": (0, 0), "of chain": (0, 1)}
    assert record(News({"a": Status.SUCCESS}, {}), *waiters) == {"of work": (1, 0), "of chain": (0, 1)}


@pytest.mark.parametrize("outcome", ["dead", "success"])
def test_an_end_that_is_undone_is_no_longer_counted(outcome):
    watch("gate", "a", outcome=outcome)
    assert record(News({"a": None}, {}), "gate") == {"gate": (0, 0)}
    assert outcomes("gate") == {"a": ""}


def test_an_end_that_turns_into_another_moves_from_one_count_to_the_other():
    watch("gate", "a", outcome="dead")
    assert record(News({"a": Status.SUCCESS}, {}), "gate") == {"gate": (1, 0)}


def test_nothing_is_told_where_there_is_no_news():
    watch("gate", "a")
    assert record(News({"b": Status.SUCCESS}, {}), "gate") == {"gate": (0, 0)}
    assert record(News({}, {}), "gate") == {"gate": (0, 0)}


def test_where_nobody_watches_nothing_is_asked(django_assert_num_queries):
    watch("gate", "a")
    with django_assert_num_queries(0):
        assert record_outcomes({}, News({"a": Status.SUCCESS}, {})) == {}


def test_whoever_watches_is_locked_and_so_are_those_that_are_named():
    watch("gate", "a", "b")
    watch("of chain", "c", chain=True)
    watch("named")
    watch("other", "d")
    news = News({"b": Status.SUCCESS}, {"c": Status.DEAD})
    with transaction.atomic():
        assert lock_concerned({"named"}, news) == read_waiters(["gate", "named", "of chain"])
        assert list(lock_concerned({"named"}, news)) == ["gate", "named", "of chain"]
        assert lock_concerned(set(), News({"nowhere": Status.SUCCESS}, {})) == {}
    assert Waiter.objects.count() == 4


@pytest.mark.parametrize("number", [WORTH_COPYING - 1, WORTH_COPYING, 3 * WORTH_COPYING])
def test_edges_keep_their_order_and_what_they_watch_however_many_there_are(number):
    watches = [Watch(f"w\\{place}\tä", place % 3 == 0, "success" * (place % 2)) for place in range(number)]
    row = WaiterRow("gate", '"all-success"', "dead", number, number // 2, 0, False)
    insert_waiters([row], {"gate": watches})
    stored = Edge.objects.filter(waiter_id="gate").order_by("position")
    assert [Watch(*edge) for edge in stored.values_list("watched_id", "chain", "outcome")] == watches
    assert [edge.position for edge in stored] == list(range(number))


def test_the_watchers_of_many_works_are_found():
    watch("gate", *(f"w{number}" for number in range(600)))
    watch("other", "w599", "elsewhere")
    assert watchers_of(f"w{number}" for number in range(600)) == {"gate", "other"}
    assert watchers_of(["nowhere"]) == set()
