"""Telling edges: who is told what, and how that is counted."""

from __future__ import annotations

import pytest

from django_ayework.models import Edge
from django_ayework.rules.states import Status
from django_ayework.store.edges import News, Told, tell_edges, watchers_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]


def watch(waiter: str, *ids: str, chain: bool = False, outcome: str = "") -> None:
    for position, id in enumerate(ids):
        Edge.objects.create(waiter_id=waiter, watched_id=id, position=position, chain=chain, outcome=outcome)


def outcomes(waiter: str) -> dict[str, str]:
    return dict(Edge.objects.filter(waiter_id=waiter).values_list("watched_id", "outcome"))


def test_edges_of_the_waiters_are_told_and_counted():
    watch("gate", "a", "b", "c", "d")
    news = News({"a": Status.SUCCESS, "b": Status.DEAD, "c": Status.SUCCESS}, {})
    assert set(tell_edges(["gate"], news)) == {Told("gate", "", "success", 2), Told("gate", "", "dead", 1)}
    assert outcomes("gate") == {"a": "success", "b": "dead", "c": "success", "d": ""}


def test_edges_of_other_waiters_are_left_alone():
    watch("gate", "a")
    watch("other", "a")
    assert tell_edges(["gate"], News({"a": Status.SUCCESS}, {})) == [Told("gate", "", "success", 1)]
    assert outcomes("other") == {"a": ""}


def test_what_is_known_already_is_not_counted_again():
    watch("gate", "a", outcome="success")
    assert tell_edges(["gate"], News({"a": Status.SUCCESS}, {})) == []


def test_a_work_and_the_chain_of_its_id_are_told_apart():
    watch("of work", "a")
    watch("of chain", "a", chain=True)
    waiters = ["of work", "of chain"]
    assert tell_edges(waiters, News({}, {"a": Status.DEAD})) == [Told("of chain", "", "dead", 1)]
    assert tell_edges(waiters, News({"a": Status.SUCCESS}, {})) == [Told("of work", "", "success", 1)]


def test_an_end_that_is_undone_is_counted_with_what_it_was():
    watch("gate", "a", outcome="dead")
    assert tell_edges(["gate"], News({"a": None}, {})) == [Told("gate", "dead", "", 1)]
    assert outcomes("gate") == {"a": ""}


def test_nothing_is_told_where_there_is_no_news():
    watch("gate", "a")
    assert tell_edges(["gate"], News({"b": Status.SUCCESS}, {})) == []


def test_the_watchers_of_many_works_are_found():
    watch("gate", *(f"w{number}" for number in range(600)))
    watch("other", "w599", "elsewhere")
    assert watchers_of(f"w{number}" for number in range(600)) == {"gate", "other"}
    assert watchers_of(["nowhere"]) == set()
