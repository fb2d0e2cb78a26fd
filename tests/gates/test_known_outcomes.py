"""A gate over works that have succeeded knows that when it is queued."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Count, Status, complete, dependency, enqueue, enqueue_many, work
from django_ayework.flow import gates as flow_gates
from django_ayework.models import Edge, Waiter
from django_ayework.testing import drain
from django_ayework.testing.running import run_commit_callbacks
from tests.gates.works import BROKEN, gate_over, labels, standing, step


@work(name="gates.queues_a_gate")
def queues_a_gate(ctx: Context, on: list[str]):
    """Queue a gate over works of others."""
    return ctx.queue([dependency(on, [step(label="after")])])


@pytest.fixture
def no_rechecks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gets to a recheck."""
    monkeypatch.setattr(flow_gates, "recheck", lambda waiters: None)


def succeeded(label: str = "a"):
    handle = enqueue(step(label=label))
    drain()
    return handle


@pytest.mark.usefixtures("no_rechecks")
def test_a_gate_whose_condition_is_met_opens_with_the_transaction_that_queues_it():
    members = [succeeded("a"), succeeded("b")]
    first = dependency(members, [])
    behind = enqueue(dependency([first], []))
    with transaction.atomic():
        gates = [gate_over(members), enqueue(dependency([*members, "unborn"], [], Count(2))), enqueue(first)]
        assert {standing(gate) for gate in (*gates, behind)} == {("success", None)}
    enqueue(queues_a_gate(on=[member.id for member in members]))
    drain()
    assert labels() == ["a", "b", "after", "after"]
    Waiter.objects.update(recheck=False)


@pytest.mark.usefixtures("no_rechecks")
def test_what_has_succeeded_counts_among_what_has_not():
    gate = enqueue(dependency([succeeded(), "unborn"], [step(label="after")]))
    assert dict(Edge.objects.values_list("watched_id", "outcome")) == {
        Edge.objects.get(position=0).watched_id: "success",
        "unborn": "",
    }
    complete(enqueue(step(label="b"), id="unborn").id)
    assert gate.state().status is Status.SUCCESS
    Waiter.objects.update(recheck=False)


def test_a_work_that_has_died_is_left_to_the_recheck(monkeypatch):
    """It may be retried at this moment, unseen."""
    BROKEN.add("a")
    member = succeeded("a")
    with monkeypatch.context() as killed:
        killed.setattr(flow_gates, "recheck", lambda waiters: None)
        gate = enqueue(dependency([member], [], "all-done"))
    assert gate.state().status is Status.BLOCKED
    drain()
    assert gate.state().status is Status.SUCCESS


def statements(act) -> int:
    with CaptureQueriesContext(connection) as run, transaction.atomic():
        act()
    run_commit_callbacks()
    return sum("SAVEPOINT" not in query["sql"] for query in run)


def test_a_gate_over_nothing_that_exists_takes_no_more_statements_than_its_rows_and_one_look():
    """A work, a waiter, edges; and whether what it watches has succeeded."""
    assert statements(lambda: enqueue(dependency(["unborn"], [step(label="after")]))) == 4


def test_a_gate_over_works_of_its_own_transaction_looks_for_none():
    members = [step(label="a"), step(label="b")]
    gate = dependency(members, [step(label="after")])
    alone = statements(lambda: enqueue_many([step(label="c"), step(label="d")]))
    assert statements(lambda: enqueue_many([*members, gate])) - alone <= 2
