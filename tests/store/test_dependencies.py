"""Waiters and edges: inserting them, recording outcomes, resolving waiters."""

from contextlib import ExitStack, contextmanager

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework.models import Edge, Waiter
from django_ayework.rules.states import Status
from django_ayework.store import dependencies
from django_ayework.store.dependencies import (
    Outcomes,
    WaiterRow,
    Watch,
    insert_waiters,
    lock_waiters,
    read_waiters,
    record_outcomes,
    resolve_waiters,
)
from django_ayework.store.insert import WORTH_COPYING
from tests.processes import eventually
from tests.races.holding import in_thread, somebody_waits

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]
on_postgres = pytest.mark.vendors("postgresql")
SUCCESS, DEAD, CANCELLED = Status.SUCCESS, Status.DEAD, Status.CANCELLED


def watch(waiter: str, *ids: str, chain: bool = False, outcome: str = "") -> None:
    """Let a waiter watch these works, or chains, of which it knows this outcome."""
    row = WaiterRow(waiter, '"all-success"', "dead", len(ids), 0, 0, False)
    row = row._replace(succeeded=len(ids) * (outcome == "success"), missed=len(ids) * (outcome == "dead"))
    insert_waiters([row], {waiter: [Watch(id, chain, outcome) for id in ids]})


def outcomes(waiter: str) -> dict[str, str]:
    return dict(Edge.objects.filter(waiter_id=waiter).values_list("watched_id", "outcome"))


def counts(*waiters: str) -> dict[str, tuple[int, int]]:
    """Return the counts of successes and of other ends."""
    return {id: (row.succeeded, row.missed) for id, row in read_waiters(waiters).items()}


def record(ended: Outcomes, *waiters: str) -> dict[str, tuple[int, int]]:
    """Record outcomes; return the counts, which are equal in the answer and the rows."""
    answer = record_outcomes(read_waiters(waiters), ended)
    assert answer == read_waiters(waiters)
    return counts(*answer)


def resolve(works: dict, chains: dict | None = None, named: set[str] = frozenset()):
    return resolve_waiters(named, Outcomes(works, chains or {}))


@pytest.mark.parametrize(
    ("known", "now", "found"),
    [
        ("success", SUCCESS, (1, 0)),
        ("success", None, (0, 0)),
        ("dead", None, (0, 0)),
        ("dead", SUCCESS, (1, 0)),
    ],
)
def test_a_changed_outcome_replaces_the_known_one(known, now, found):
    watch("gate", "a", outcome=known)
    assert record(Outcomes({"a": now}, {}), "gate") == {"gate": found}
    assert outcomes("gate") == {"a": now or ""}
    watch("other", "b", outcome=known)
    resolved = resolve({"b": now})
    assert resolved == (read_waiters(["other"]) if now != known else resolved)
    assert (outcomes("other"), counts("other")) == ({"b": now or ""}, {"other": found})


def test_an_outcome_without_watchers_takes_no_statement(django_assert_num_queries):
    watch("gate", "a")
    with django_assert_num_queries(0):
        assert record_outcomes({}, Outcomes({"a": SUCCESS}, {})) == {}
    assert record(Outcomes({"b": SUCCESS}, {}), "gate") == {"gate": (0, 0)}
    assert record(Outcomes({}, {}), "gate") == {"gate": (0, 0)}
    assert resolve({"b": SUCCESS}) == {}


@pytest.mark.parametrize("way", ["at once", "in steps"])
def test_all_watchers_are_resolved(way, monkeypatch):
    if way == "in steps":
        monkeypatch.setattr(dependencies, "resolve_at_once", lambda outcomes: None)
    watch("both", "a", "b")
    watch("one", "b")
    watch("none", "c")
    watch("of chain", "a", chain=True)
    watch("of other chain", "b", chain=True)
    watch("knows it", "a", outcome="success")
    answer = resolve({"a": SUCCESS, "b": DEAD}, {"a": CANCELLED})
    assert answer == read_waiters(answer)
    stands = counts("both", "one", "none", "of chain", "of other chain", "knows it")
    assert {"both", "one", "of chain"} <= set(answer) <= {*stands} - {"none"}
    assert {id: (outcomes(id), stand) for id, stand in stands.items()} == {
        "both": ({"a": "success", "b": "dead"}, (1, 1)),
        "one": ({"b": "dead"}, (0, 1)),
        "none": ({"c": ""}, (0, 0)),
        "of chain": ({"a": "cancelled"}, (0, 1)),
        "of other chain": ({"b": ""}, (0, 0)),
        "knows it": ({"a": "success"}, (1, 0)),
    }


@on_postgres
@pytest.mark.parametrize("version", ["fast"], indirect=True)
@pytest.mark.parametrize(("keeps_plans", "statements"), [(True, ["RESOLVE"]), (False, ["SELECT"])])
def test_outcomes_without_watchers_take_one_statement(keeps_plans, statements, monkeypatch):
    """A session that keeps no plans would plan the large statement for each work that settles alone."""
    monkeypatch.setattr(dependencies, "keeps_plans", lambda database: keeps_plans)
    with CaptureQueriesContext(connection) as run:
        assert resolve({"step": SUCCESS}, {"chain": SUCCESS}) == {}
    assert ["RESOLVE" if "FOR UPDATE" in query["sql"] else "SELECT" for query in run] == statements


def test_watchers_and_named_waiters_are_resolved_and_locked_in_id_order():
    watch("gate", "a", "b")
    watch("of chain", "c", chain=True)
    watch("named")
    watch("other", "d")
    with CaptureQueriesContext(connection) as run, transaction.atomic():
        answer = resolve({"b": SUCCESS}, {"c": DEAD}, named={"named"})
    assert answer == read_waiters(["gate", "named", "of chain"])
    [locking] = [query["sql"] for query in run if "ORDER BY" in query["sql"]]
    assert locking.index("gate") < locking.index("named") < locking.index("of chain")


@pytest.mark.parametrize("number", [WORTH_COPYING - 1, WORTH_COPYING, 3 * WORTH_COPYING])
def test_inserted_edges_keep_their_order_and_values_however_many_there_are(number):
    watches = [Watch(f"w\\{place}\tä", place % 3 == 0, "success" * (place % 2)) for place in range(number)]
    row = WaiterRow("gate", '"all-success"', "dead", number, number // 2, 0, False)
    insert_waiters([row], {"gate": watches})
    stored = Edge.objects.filter(waiter_id="gate").order_by("position")
    assert [Watch(*edge) for edge in stored.values_list("watched_id", "chain", "outcome")] == watches
    assert [edge.position for edge in stored] == list(range(number))


@on_postgres
@pytest.mark.django_db(transaction=True)
class TestWhileAnotherHoldsThem:
    @contextmanager
    def resolving_elsewhere(self, works):
        """Open a transaction here; at its end another one, which resolves waiters, waits for it.

        The other's answer is given after the block.
        """
        answers = []

        def answer():
            with transaction.atomic():
                answers.append(resolve(works))

        with ExitStack() as threads, transaction.atomic():
            yield answers
            threads.enter_context(in_thread(answer))
            eventually(somebody_waits)

    def test_outcomes_that_another_recorded_while_a_waiter_was_locked_are_seen(self):
        """One statement sees edges as they were when it began."""
        watch("gate", "a", "b", "c", "d")
        with self.resolving_elsewhere({"a": SUCCESS, "b": SUCCESS, "c": SUCCESS}) as answers:
            record_outcomes(lock_waiters(["gate"]), Outcomes({"a": DEAD, "b": SUCCESS}, {}))
        assert answers == [read_waiters(["gate"])]
        assert outcomes("gate") == {"a": "success", "b": "success", "c": "success", "d": ""}
        assert counts("gate") == {"gate": (3, 0)}

    @pytest.mark.parametrize("version", ["fast"], indirect=True)
    def test_a_waiter_that_was_only_locked_is_resolved_at_once(self, monkeypatch):
        watch("gate", "a", "b")
        with self.resolving_elsewhere({"a": SUCCESS}) as answers:
            lock_waiters(["gate"])
            monkeypatch.setattr(dependencies, "record_outcomes", None)
        assert answers == [read_waiters(["gate"])]
        assert (outcomes("gate"), counts("gate")) == ({"a": "success", "b": ""}, {"gate": (1, 0)})

    def test_a_waiter_that_is_deleted_meanwhile_is_left_out(self):
        watch("gate", "a")
        watch("other", "a")
        with self.resolving_elsewhere({"a": SUCCESS}) as answers:
            lock_waiters(["gate"])
            Edge.objects.filter(waiter_id="gate").delete()
            Waiter.objects.filter(work_id="gate").delete()
        assert answers == [read_waiters(["other"])]
        assert outcomes("other") == {"a": "success"}
