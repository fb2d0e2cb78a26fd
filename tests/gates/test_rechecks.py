"""Outcomes known when a gate is queued, rechecks of those settled meanwhile, and the sweep of the rest."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Count, Status, complete, dependency, enqueue, enqueue_many, retry, work
from django_ayework.flow import gates as flow_gates
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.maintenance import sweep_page
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.store import dependencies
from django_ayework.store.database import clock
from django_ayework.store.dependencies import Ends
from django_ayework.testing import drain, running_worker
from django_ayework.testing.running import run_commit_callbacks
from tests.gates.works import BROKEN, gate_over, labels, standing, step
from tests.invariants import sweep
from tests.processes import eventually

OPEN, BLOCKED = ("success", None), ("blocked", None)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch):
    """Whether the process is killed after its commit, before its rechecks."""

    @contextmanager
    def killed():
        with monkeypatch.context() as patch:
            patch.setattr(flow_gates, "recheck", lambda waiters: None)
            yield
            run_commit_callbacks()

    return killed


def dead():
    """Return a work that has died: that is found by the recheck and not before, as it may be retried."""
    BROKEN.add("dead")
    member = enqueue(step(label="dead"))
    drain()
    return member


def test_a_recheck_that_fails_or_whose_process_is_killed_after_its_commit_is_left_to_a_worker(
    killed, monkeypatch: pytest.MonkeyPatch, caplog
):
    def fail(*args: object) -> None:
        raise RuntimeError("the database went away")

    member = dead()
    with killed():
        gate = gate_over([member], "all-done")
    assert Waiter.objects.filter(recheck=True).count() == 1
    assert standing(gate) == BLOCKED
    with monkeypatch.context() as broken:
        broken.setattr(flow_gates, "settled_statuses", fail)
        gate_over([member], "all-done")
        run_commit_callbacks()
    assert "the database went away" in caplog.text
    drain()
    assert labels() == ["after", "after"]


def test_a_waiter_whose_recheck_fails_keeps_no_other_from_it(killed, caplog):
    member = dead()
    with killed():
        gates = [enqueue(dependency([member], [], "all-done")) for _ in range(3)]
    Waiter.objects.filter(work_id=gates[1].id).update(condition="no condition")
    recheck_leftovers()
    assert f"work {gates[1].id} could not be rechecked" in caplog.text
    assert [gate.state().status for gate in gates] == [Status.SUCCESS, Status.BLOCKED, Status.SUCCESS]
    Waiter.objects.filter(work_id=gates[1].id).update(condition='"all-done"')
    recheck_leftovers()
    assert gates[1].state().status is Status.SUCCESS


def blocked_by(members):
    return enqueue(step(label="after"), blockers=members)


@pytest.mark.parametrize(
    ("wait_for", "name"), [(gate_over, "settled_statuses"), (blocked_by, "settled_chains")]
)
def test_a_member_retried_while_its_end_is_looked_up_ends_no_waiter(monkeypatch, wait_for, name):
    BROKEN.add("a")
    member = enqueue(step(label="a"))
    drain()
    look = getattr(flow_gates, name)

    def look_then_retry(ids: set[str]) -> Ends:
        found = look(ids)
        retry(member.id)
        return found

    waiter = wait_for([member])
    monkeypatch.setattr(flow_gates, name, look_then_retry)
    run_commit_callbacks()
    monkeypatch.undo()
    assert standing(waiter) == BLOCKED
    BROKEN.clear()
    drain()
    assert labels() == ["a", "after"]


def test_looking_costs_no_query_per_unborn_id(django_assert_max_num_queries):
    gate = gate_over([f"unborn-{number}" for number in range(1000)])
    with django_assert_max_num_queries(40):
        run_commit_callbacks()
    assert standing(gate) == BLOCKED


def test_watchers_of_a_new_work_that_are_locked_after_its_commit_are_left_to_a_worker(monkeypatch):
    """A transaction that queues and ends a work cannot know the watchers that others commit meanwhile."""
    gate = gate_over(["new"])
    run_commit_callbacks()
    with monkeypatch.context() as locked:
        locked.setattr(flow_gates, "recheck_page", lambda waiters: None)
        locked.setattr(flow_gates, "open_watchers", lambda ids: [gate.id] if "new" in ids else [])
        with transaction.atomic():
            complete(enqueue(step(label="new"), id="new").id)
        strand(gate)
        run_commit_callbacks()
    assert standing(gate) == BLOCKED
    assert Waiter.objects.get(work_id=gate.id).recheck
    recheck_leftovers()
    assert standing(gate) == OPEN


# --- the sweep ------------------------------------------------------------------------------------------


@work(name="gates.countdown")
def countdown(ctx: Context, left: int):
    return ctx.continue_with(countdown(left=left - 1)) if left else ctx.result(None)


def strand(*gates) -> None:
    """Make gates that are open forget how what they watched ended, as if a settlement had missed them."""
    ids = [gate.id for gate in gates]
    Edge.objects.filter(waiter_id__in=ids).update(outcome="")
    Waiter.objects.filter(work_id__in=ids).update(succeeded=0)
    Work.objects.filter(parent_id__in=ids).delete()
    Work.objects.filter(id__in=ids).update(status="blocked", ended_at=None, group_id=None)
    Group.objects.filter(id__in=ids).delete()


def test_the_sweep_frees_a_waiter_that_was_left_behind_and_logs_it(caplog):
    gate = gate_over([enqueue(step(label="a"))])
    drain(limit=1)
    strand(gate)
    with caplog.at_level(logging.ERROR, "django_ayework"):
        assert sweep() == 1
    assert gate.id in caplog.text
    drain()
    assert labels() == ["a", "after"]


def test_a_chain_that_ends_while_the_sweep_reads_is_no_bug(monkeypatch, caplog):
    """What the sweep has read by then is of two moments."""
    chain = enqueue(countdown(left=1))
    waiting = enqueue(step(label="after"), blockers=[chain])
    drain(limit=1)
    read = dependencies.chain_ends

    def settle_then_read(ids):
        monkeypatch.undo()
        drain(limit=1)
        return read(ids)

    monkeypatch.setattr(dependencies, "chain_ends", settle_then_read)
    assert sweep() == 0
    assert waiting.state().status is Status.PENDING
    assert not caplog.records


def test_a_waiter_that_another_recheck_decides_while_the_sweep_reads_is_no_bug(monkeypatch, caplog):
    member = enqueue(step(label="a"))
    gate = enqueue(dependency([member], []))
    drain()
    strand(gate)
    waiters = dependencies.rows

    def sweep_first(model):
        """Let another process sweep when this one has found the edge."""
        if model is Waiter:
            monkeypatch.undo()
            assert sweep() == 1
            caplog.clear()
        return waiters(model)

    page = dependencies.blocked_page(None)
    assert page.ids == [gate.id]
    monkeypatch.setattr("django_ayework.flow.maintenance.blocked_page", lambda after: page)
    monkeypatch.setattr(dependencies, "rows", sweep_first)
    assert sweep_page() == (0, None)
    assert standing(gate) == OPEN
    assert not caplog.records


def pages(read):
    """Read all pages of blocked works."""
    place = None
    while True:
        page = read(place)
        yield page
        if (place := page.next) is None:
            return


def test_a_page_has_few_edges_or_those_of_one_work(monkeypatch):
    monkeypatch.setattr(dependencies, "EDGES", 10)
    for number in (4, 4, 4, 25, 1):
        enqueue(dependency([f"unborn-{each}" for each in range(number)], []))
    drain()
    found = pages(dependencies.blocked_page)
    sizes = [Edge.objects.filter(waiter_id__in=page.ids).count() for page in found]
    assert (sum(sizes), max(sizes)) == (38, 25)
    assert all(size <= 10 for size in sizes if size != 25)


def test_stranded_waiters_are_found_on_any_page(monkeypatch):
    """Some have no deadline, some the same, some their own."""
    monkeypatch.setattr(dependencies, "WAITERS", 2)
    day = clock.now() + timedelta(days=1)
    deadlines = [None] * 5 + [day] * 3 + [day + timedelta(seconds=number) for number in range(3)]
    members = [step(label=str(number)) for number in range(len(deadlines))]
    gates = [
        enqueue(dependency([member], []), deadline=deadline)
        for member, deadline in zip(members, deadlines, strict=True)
    ]
    drain()
    enqueue_many(members)
    drain()
    strand(*gates)
    found = [page.found for page in pages(sweep_page)]
    assert (max(found), sum(found)) == (2, len(gates))
    assert {gate.state().status for gate in gates} == {Status.SUCCESS}


@pytest.mark.django_db(transaction=True)
def test_a_worker_sweeps_page_after_page(monkeypatch):
    gates = [gate_over([enqueue(step(label=label))]) for label in "ab"]
    drain()
    strand(*gates)
    monkeypatch.setattr(dependencies, "WAITERS", 1)
    with running_worker() as worker:
        worker._maintenance._sweeping.due_at = time.monotonic()  # else in half a minute
        eventually(lambda: {gate.state().status for gate in gates} == {Status.SUCCESS})


@pytest.mark.parametrize("blocked", [0, 1])
def test_a_sweep_of_few_blocked_works_takes_few_statements(blocked, django_assert_max_num_queries):
    for _ in range(blocked):
        enqueue(dependency(["unborn"], []))
        enqueue(step(label="after"), blockers=[enqueue(countdown(left=1))])  # a chain that goes on
    drain(limit=1)
    with django_assert_max_num_queries(12):
        assert sweep() == 0


# --- outcomes that are known when a gate is queued ------------------------------------------------------


@pytest.fixture
def no_rechecks(monkeypatch: pytest.MonkeyPatch):
    """Nobody gets to a recheck."""
    monkeypatch.setattr(flow_gates, "recheck", lambda waiters: None)
    yield
    Waiter.objects.update(recheck=False)


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
    by_a_handler = dependency([member.id for member in members], [step(label="after")])
    enqueue(work(name="gates.queues_a_gate")(lambda ctx: ctx.queue([by_a_handler]))())
    drain()
    assert labels() == ["a", "b", "after", "after"]


@pytest.mark.usefixtures("no_rechecks")
def test_what_has_succeeded_counts_among_what_has_not():
    gate = gate_over([succeeded(), "unborn"])
    outcomes = Edge.objects.order_by("position").values_list("outcome", flat=True)
    assert [*outcomes] == ["success", ""]
    complete(enqueue(step(label="b"), id="unborn").id)
    assert standing(gate) == OPEN


def statements(act) -> int:
    with CaptureQueriesContext(connection) as run, transaction.atomic():
        act()
    run_commit_callbacks()
    return sum("SAVEPOINT" not in query["sql"] for query in run)


def test_a_gate_takes_no_more_statements_than_its_rows_and_one_look_at_works_of_other_transactions():
    """A work, a waiter, edges; and whether what it watches has succeeded."""
    clock.synchronise()  # done once a minute, so it is not counted here
    assert statements(lambda: enqueue(dependency(["unborn"], [step(label="after")]))) == 4
    members = [step(label="a"), step(label="b")]
    gate = dependency(members, [step(label="after")])
    alone = statements(lambda: enqueue_many([step(label="c"), step(label="d")]))
    assert statements(lambda: enqueue_many([*members, gate])) - alone <= 2
    member = step(label="e")
    first = dependency([member], [step(label="after")])
    enqueue_many([member, first, dependency(first.releases, [])])
    assert not Waiter.objects.filter(recheck=True).exists(), "nobody else can have settled these"
