"""Telling waiters: who is concerned by news, what their edges are told, and how that is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework.models import Edge, Waiter
from django_ayework.rules.states import Status
from django_ayework.store import resolution
from django_ayework.store.dependencies import Outcomes, lock_waiters, read_waiters
from django_ayework.store.resolution import record_outcomes, resolve_waiters
from tests.processes import PATIENCE, eventually
from tests.store.gates import watch

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]
transactional = pytest.mark.django_db(transaction=True)
on_postgres = pytest.mark.vendors("postgresql")
WAITERS = ["both", "one", "none", "of chain", "of other chain", "has heard"]


def outcomes(waiter: str) -> dict[str, str]:
    return dict(Edge.objects.filter(waiter_id=waiter).values_list("watched_id", "outcome"))


def record(news: Outcomes, *waiters: str) -> dict[str, tuple[int, int]]:
    """Tell the waiters; return how many each counts as succeeded and missed, in the answer as in its row."""
    answer = record_outcomes(read_waiters(waiters), news)
    assert answer == read_waiters(waiters)
    return {id: (row.succeeded, row.missed) for id, row in answer.items()}


def test_edges_of_the_waiters_are_told_and_counted():
    watch("gate", "a", "b", "c", "d", "e")
    news = Outcomes({"a": Status.SUCCESS, "b": Status.DEAD, "c": Status.SUCCESS, "d": Status.CANCELLED}, {})
    assert record(news, "gate") == {"gate": (2, 2)}
    assert outcomes("gate") == {"a": "success", "b": "dead", "c": "success", "d": "cancelled", "e": ""}


def test_several_waiters_count_for_themselves():
    watch("both", "a", "b")
    watch("one", "b")
    watch("none", "c")
    news = Outcomes({"a": Status.SUCCESS, "b": Status.DEAD}, {})
    assert record(news, "both", "one", "none") == {"both": (1, 1), "one": (0, 1), "none": (0, 0)}


def test_edges_of_other_waiters_are_left_alone():
    watch("gate", "a")
    watch("other", "a")
    assert record(Outcomes({"a": Status.SUCCESS}, {}), "gate") == {"gate": (1, 0)}
    assert outcomes("other") == {"a": ""}
    assert read_waiters(["other"])["other"].succeeded == 0


def test_what_is_known_already_is_not_counted_again():
    watch("gate", "a", outcome="success")
    assert record(Outcomes({"a": Status.SUCCESS}, {}), "gate") == {"gate": (1, 0)}


def test_a_work_and_the_chain_of_its_id_are_told_apart():
    watch("of work", "a")
    watch("of chain", "a", chain=True)
    waiters = ["of work", "of chain"]
    assert record(Outcomes({}, {"a": Status.DEAD}), *waiters) == {"of work": (0, 0), "of chain": (0, 1)}
    assert record(Outcomes({"a": Status.SUCCESS}, {}), *waiters) == {"of work": (1, 0), "of chain": (0, 1)}


@pytest.mark.parametrize("outcome", ["dead", "success"])
def test_an_end_that_is_undone_is_no_longer_counted(outcome):
    watch("gate", "a", outcome=outcome)
    assert record(Outcomes({"a": None}, {}), "gate") == {"gate": (0, 0)}
    assert outcomes("gate") == {"a": ""}


def test_an_end_that_turns_into_another_moves_from_one_count_to_the_other():
    watch("gate", "a", outcome="dead")
    assert record(Outcomes({"a": Status.SUCCESS}, {}), "gate") == {"gate": (1, 0)}


def test_nothing_is_told_where_there_is_no_news():
    watch("gate", "a")
    assert record(Outcomes({"b": Status.SUCCESS}, {}), "gate") == {"gate": (0, 0)}
    assert record(Outcomes({}, {}), "gate") == {"gate": (0, 0)}


def test_where_nobody_watches_nothing_is_asked(django_assert_num_queries):
    watch("gate", "a")
    with django_assert_num_queries(0):
        assert record_outcomes({}, Outcomes({"a": Status.SUCCESS}, {})) == {}


@pytest.mark.parametrize("way", ["at once", "in steps"])
def test_everybody_who_watches_is_told(way, monkeypatch):
    if way == "in steps":
        monkeypatch.setattr(resolution, "resolve_at_once", lambda outcomes: None)
    watch("both", "a", "b")
    watch("one", "b")
    watch("none", "c")
    watch("of chain", "a", chain=True)
    watch("of other chain", "b", chain=True)
    watch("has heard", "a", outcome="success")
    news = Outcomes({"a": Status.SUCCESS, "b": Status.DEAD}, {"a": Status.CANCELLED})
    answer = resolve_waiters(set(), news)
    assert answer == read_waiters(answer)
    assert {"both", "one", "of chain"} <= set(answer) <= {*WAITERS} - {"none"}
    stands = {id: (succeeded, missed) for id, *_, succeeded, missed, _ in read_waiters(WAITERS).values()}
    assert {id: (outcomes(id), stands[id]) for id in WAITERS} == {
        "both": ({"a": "success", "b": "dead"}, (1, 1)),
        "one": ({"b": "dead"}, (0, 1)),
        "none": ({"c": ""}, (0, 0)),
        "of chain": ({"a": "cancelled"}, (0, 1)),
        "of other chain": ({"b": ""}, (0, 0)),
        "has heard": ({"a": "success"}, (1, 0)),
    }


def test_those_that_are_named_may_be_decided_too():
    watch("gate", "a")
    watch("named", "b")
    assert resolve_waiters({"named"}, Outcomes({"a": Status.SUCCESS}, {})) == read_waiters(["gate", "named"])


def test_an_end_that_is_undone_is_told_to_whoever_watches():
    watch("gate", "a", outcome="dead")
    assert resolve_waiters(set(), Outcomes({"a": None}, {})) == read_waiters(["gate"])
    assert outcomes("gate") == {"a": ""}


def test_nobody_watches():
    watch("gate", "a")
    assert resolve_waiters(set(), Outcomes({"b": Status.SUCCESS}, {})) == {}


@on_postgres
@pytest.mark.parametrize("version", ["fast"], indirect=True)
@pytest.mark.parametrize(("keeps_plans", "statements"), [(True, ["RESOLVE"]), (False, ["SELECT"])])
def test_nobody_watches_takes_one_statement(keeps_plans, statements, monkeypatch):
    """A session that keeps no plans would plan the large statement for each work that settles alone."""
    monkeypatch.setattr(resolution, "keeps_plans", lambda database: keeps_plans)
    with CaptureQueriesContext(connection) as run:
        assert resolve_waiters(set(), Outcomes({"step": Status.SUCCESS}, {"chain": Status.SUCCESS})) == {}
    assert ["RESOLVE" if "FOR UPDATE" in query["sql"] else "SELECT" for query in run] == statements


def test_watchers_and_named_waiters_are_locked_in_id_order():
    watch("gate", "a", "b")
    watch("of chain", "c", chain=True)
    watch("named")
    watch("other", "d")
    outcomes = Outcomes({"b": Status.SUCCESS}, {"c": Status.DEAD})
    with CaptureQueriesContext(connection) as run, transaction.atomic():
        assert set(resolve_waiters({"named"}, outcomes)) == {"gate", "named", "of chain"}
    [locking] = [query["sql"] for query in run if "ORDER BY" in query["sql"]]
    assert locking.index("gate") < locking.index("named") < locking.index("of chain")


@transactional
@on_postgres
def test_what_another_has_told_while_a_waiter_was_waited_for_is_seen(telling_elsewhere):
    """One statement sees edges as they were when it began."""
    watch("gate", "a", "b", "c")
    with transaction.atomic():
        record_outcomes(lock_waiters(["gate"]), Outcomes({"a": Status.DEAD, "b": Status.SUCCESS}, {}))
        told = telling_elsewhere(Outcomes({"a": Status.SUCCESS, "b": Status.SUCCESS}, {}))
    assert told() == read_waiters(["gate"])
    assert outcomes("gate") == {"a": "success", "b": "success", "c": ""}
    assert (read_waiters(["gate"])["gate"].succeeded, read_waiters(["gate"])["gate"].missed) == (2, 0)


@transactional
@on_postgres
@pytest.mark.parametrize("version", ["fast"], indirect=True)
def test_a_waiter_that_was_only_waited_for_is_told_at_once(telling_elsewhere, monkeypatch):
    watch("gate", "a", "b")
    with transaction.atomic():
        lock_waiters(["gate"])
        monkeypatch.setattr(resolution, "record_outcomes", None)
        told = telling_elsewhere(Outcomes({"a": Status.SUCCESS}, {}))
    assert told() == read_waiters(["gate"])
    assert (outcomes("gate"), read_waiters(["gate"])["gate"].succeeded) == ({"a": "success", "b": ""}, 1)


@transactional
@on_postgres
def test_a_waiter_that_goes_while_it_is_waited_for_is_told_nothing(telling_elsewhere):
    watch("gate", "a")
    watch("other", "a")
    with transaction.atomic():
        lock_waiters(["gate"])
        Edge.objects.filter(waiter_id="gate").delete()
        Waiter.objects.filter(work_id="gate").delete()
        told = telling_elsewhere(Outcomes({"a": Status.SUCCESS}, {}))
    assert told() == read_waiters(["other"])
    assert outcomes("other") == {"a": "success"}


@pytest.fixture
def telling_elsewhere(version: None) -> Callable[[Outcomes], Callable[[], object]]:
    """Tell in another transaction, which is left once it waits for this one; return what gives its answer."""

    def tell(news: Outcomes) -> Callable[[], object]:
        answers: list[object] = []

        def tell_and_commit() -> None:
            try:
                with transaction.atomic():
                    answers.append(resolve_waiters(set(), news))
            finally:
                connections.close_all()

        thread = threading.Thread(target=tell_and_commit)
        thread.start()
        eventually(somebody_waits_for_us)

        def answer() -> object:
            thread.join(PATIENCE)
            [told] = answers
            return told

        return answer

    return tell


def somebody_waits_for_us() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks "
            "WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return bool(cursor.fetchone()[0])
