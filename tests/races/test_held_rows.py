"""Rechecks meet rows that a caller's transaction holds: they pass over those, and lose nothing."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from django_ayework import (
    Abort,
    Status,
    cancel,
    complete,
    completing,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    work,
)
from django_ayework.flow import dependencies
from django_ayework.flow.dependencies import recheck_leftovers
from django_ayework.flow.maintenance import prune
from django_ayework.models import Waiter, Work
from django_ayework.testing import drain
from tests.processes import PATIENCE, eventually
from tests.races.holding import at_once, in_thread, transaction_elsewhere
from tests.races.works import step

with_row_locks = pytest.mark.vendors("postgresql", "mysql")


@work(name="races.broken")
def broken():
    raise Abort("it is broken")


def has_flag(*gates) -> list[bool]:
    flags = dict(Waiter.objects.values_list("work_id", "recheck"))
    return [flags[gate.id] for gate in gates]


def statuses(*gates) -> list[str]:
    return [str(gate.state().status) for gate in gates]


def dead_work():
    """Return a work that has died: that is found by the recheck and not before, as it may be retried."""
    handle = enqueue(broken())
    drain()
    return handle


@with_row_locks
def test_queueing_a_gate_does_not_wait_for_a_caller_that_completes_what_it_watches():
    member = enqueue(step(), delay=3600)
    gates = []

    def complete_slowly() -> None:
        with completing(member.id) as context:
            held.set()
            assert over.wait(PATIENCE)
            context.void()

    held, over = threading.Event(), threading.Event()
    with in_thread(complete_slowly):
        assert held.wait(PATIENCE)
        try:
            at_once(lambda: gates.append(enqueue(dependency([member], [step()]))))
            at_once(recheck_leftovers)
            assert (statuses(*gates), has_flag(*gates)) == (["blocked"], [True])
        finally:
            over.set()
    drain()
    assert (statuses(*gates), has_flag(*gates)) == (["success"], [False])


@with_row_locks
@pytest.mark.parametrize("end", [complete, cancel])
def test_an_end_that_no_gate_was_seen_by_is_found_once_it_is_committed(end):
    member = enqueue(step(), delay=3600)
    gates = []
    with transaction_elsewhere(lambda: end(member.id)):
        at_once(lambda: gates.append(enqueue(dependency([member], [step()], "all-done"))))
        at_once(lambda: gates.append(enqueue(step(), blockers=[member])))
        at_once(recheck_leftovers)
        assert (statuses(*gates), has_flag(*gates)) == (["blocked"] * 2, [True] * 2)
    recheck_leftovers()
    assert statuses(*gates) == ["success", "pending" if end is complete else "dead"]
    assert has_flag(*gates) == [False, False]


@with_row_locks
def test_of_many_works_only_those_that_are_locked_are_looked_at_again():
    members = enqueue_many([step() for _ in range(40)], delay=3600)
    locks: list[str] = []
    gates = []

    def note(execute, sql, params, many, context):
        if "SKIP LOCKED" in sql and "django_ayework_work" in sql:
            locks.extend(param for param in params if param in {member.id for member in members})
        return execute(sql, params, many, context)

    with transaction_elsewhere(lambda: complete(members[7].id)):
        gates.append(enqueue(dependency(members, [step()], "all-done")))
        with connection.execute_wrapper(note):
            recheck_leftovers()
        assert locks == [members[7].id]
        for member in members[:7] + members[8:]:
            complete(member.id)
        assert statuses(*gates) == ["blocked"]
    recheck_leftovers()
    assert (statuses(*gates), has_flag(*gates)) == (["success"], [False])


@with_row_locks
def test_a_gate_that_is_new_under_an_old_id_is_looked_at_as_a_whole(monkeypatch):
    held, member = enqueue(step(), delay=3600), dead_work()
    with transaction_elsewhere(lambda: complete(held.id)):
        at_once(lambda: enqueue(dependency([held, "unborn"], []), id="gate"))
        recheck_leftovers()
    delete_chains("gate")
    with monkeypatch.context() as killed:
        killed.setattr(dependencies, "recheck", lambda waiters: None)
        gate = enqueue(dependency([member], [], "all-done"), id="gate")
    recheck_leftovers()
    assert (statuses(gate), has_flag(gate)) == (["success"], [False])


@with_row_locks
def test_a_gate_that_is_being_cancelled_delays_no_other_over_the_same_work():
    member = dead_work()
    other = enqueue(dependency([member, "unborn"], [], "all-done"))
    gates = []
    with transaction_elsewhere(lambda: cancel(other.id)):
        at_once(lambda: gates.append(enqueue(dependency([member], [step()], "all-done"))))
        assert (statuses(*gates), has_flag(*gates)) == (["success"], [False])


@with_row_locks
def test_a_locked_waiter_keeps_the_others_of_its_page_from_nothing(monkeypatch):
    member = dead_work()
    with monkeypatch.context() as killed:
        killed.setattr(dependencies, "recheck", lambda waiters: None)
        gates = [enqueue(dependency([member, "unborn"], [], "all-done")) for _ in range(2)]
        gates += [enqueue(dependency([member], [], "all-done")) for _ in range(2)]
    with transaction_elsewhere(lambda: cancel(gates[0].id)):
        at_once(recheck_leftovers)
        assert statuses(*gates) == ["blocked", "blocked", "success", "success"]
        assert has_flag(*gates) == [True, False, False, False]
    recheck_leftovers()
    assert has_flag(*gates) == [False] * 4


@with_row_locks
def test_a_locked_group_keeps_the_others_of_a_page_from_nothing(monkeypatch, caplog):
    member = dead_work()
    gate, mate = dependency([member], [], "all-done"), step()
    with monkeypatch.context() as killed:
        killed.setattr(dependencies, "recheck", lambda waiters: None)
        grouped, _ = enqueue_many([gate, mate], together=True)
        others = [enqueue(dependency([member], [step()], "all-done")) for _ in range(3)]
    with transaction_elsewhere(lambda: complete(mate.id)):
        at_once(recheck_leftovers)
        assert statuses(grouped, *others) == ["blocked", "success", "success", "success"]
        assert has_flag(grouped, *others) == [True, False, False, False]
    recheck_leftovers()
    assert (statuses(grouped), has_flag(grouped)) == (["success"], [False])
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@with_row_locks
def test_queueing_a_gate_leaves_it_to_a_worker_when_a_group_behind_it_is_locked(caplog):
    member = dead_work()
    first, mate = dependency([member], [], "all-done"), step()
    behind, _ = enqueue_many([dependency([first], [], "all-done"), mate], together=True)
    gates = []
    with transaction_elsewhere(lambda: complete(mate.id)):
        at_once(lambda: gates.append(enqueue(first)))
        assert (statuses(*gates), has_flag(*gates)) == (["blocked"], [True])
    drain()
    assert statuses(*gates, behind) == ["success", "success"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@with_row_locks
def test_a_waiter_that_stays_locked_does_not_starve_those_behind_it(monkeypatch):
    member = dead_work()
    with monkeypatch.context() as killed:
        killed.setattr(dependencies, "recheck", lambda waiters: None)
        first = enqueue(dependency([member, "unborn"], [], "all-done"), id="a-first")
        second = enqueue(dependency([member], [], "all-done"), id="b-second")
    with transaction_elsewhere(lambda: cancel(first.id)):
        at_once(lambda: (recheck_leftovers(limit=1), recheck_leftovers(limit=1)))
        assert statuses(first, second) == ["blocked", "success"]
        at_once(lambda: recheck_leftovers(limit=1))
    recheck_leftovers()
    assert has_flag(first, second) == [False, False]


@with_row_locks
def test_watched_works_that_stay_locked_do_not_starve_waiters_behind_them(monkeypatch):
    held, member = enqueue(step(), delay=3600), dead_work()
    with monkeypatch.context() as killed:
        killed.setattr(dependencies, "recheck", lambda waiters: None)
        first = enqueue(dependency([held], [], "all-done"), id="a-first")
        second = enqueue(dependency([member], [], "all-done"), id="b-second")
    with transaction_elsewhere(lambda: complete(held.id)):
        at_once(lambda: (recheck_leftovers(limit=1), recheck_leftovers(limit=1)))
        assert statuses(first, second) == ["blocked", "success"]
    recheck_leftovers()
    assert (statuses(first), has_flag(first)) == (["success"], [False])


@with_row_locks
def test_a_success_that_is_pruned_before_the_gate_over_it_is_committed_opens_it(settings):
    settings.AYEWORK = {"RETENTION": {"success": 0}}
    member = enqueue(step())
    drain()
    with transaction.atomic():
        gate = enqueue(dependency([member, "unborn"], [], "all-done"))
        at_once(prune)
    assert not Work.objects.filter(id=member.id).exists()
    enqueue(step(), id="unborn")
    drain()
    assert statuses(gate) == ["success"]


@pytest.mark.vendors("postgresql")
def test_a_recheck_is_no_part_of_a_deadlock_with_a_caller(monkeypatch):
    """It comes to a gate that is older than its own while the caller has that one and comes to its own."""
    x, y = enqueue(step(), delay=3600), enqueue(step(), delay=3600)
    old = enqueue(dependency([x, y], [step()], "all-done"), id="a-old")
    cleared = dependencies.clear_recheck
    locked = threading.Event()

    def clear_then_wait(waiters) -> None:
        cleared(waiters)
        locked.set()
        eventually(somebody_waits)

    def queue() -> None:
        with transaction.atomic():
            enqueue(dependency([x, y], [step()], "all-done"), id="b-new")
            at_once(lambda: complete(x.id))

    def finish() -> None:
        assert locked.wait(PATIENCE)
        with transaction.atomic():
            complete(y.id)

    monkeypatch.setattr(dependencies, "clear_recheck", clear_then_wait)
    with in_thread(queue), in_thread(finish):
        pass
    assert statuses(old) == ["success"]
    assert Waiter.objects.filter(recheck=True).count() == 0


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks "
            "WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return bool(cursor.fetchone()[0])


#: How a session says how long it waits for locks.
WAITS = {
    "postgresql": "SHOW lock_timeout",
    "mysql": "SELECT @@SESSION.innodb_lock_wait_timeout",
    "sqlite": "PRAGMA busy_timeout",
}


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_recheck_the_session_waits_for_locks_as_before(fails, monkeypatch, settings):
    def waits() -> object:
        with connection.cursor() as cursor:
            cursor.execute(WAITS[connection.vendor])
            return cursor.fetchone()[0]

    def note(waiters) -> None:
        during.append(waits())
        if fails:
            raise RuntimeError("no")

    before, during, hooks = waits(), [], []
    member = dead_work()
    settings.AYEWORK = {"ON_EVENT": lambda event: hooks.append(waits())}
    with monkeypatch.context() as patched:
        patched.setattr(dependencies, "clear_recheck", note)
        gate = enqueue(dependency([member], [step()], "all-done"))
    assert during and before not in during
    assert waits() == before
    assert set(hooks) == {before}
    Waiter.objects.update(recheck=True)
    recheck_leftovers()
    assert gate.state().status is Status.SUCCESS
