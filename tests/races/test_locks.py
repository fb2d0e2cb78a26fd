"""Locked rows: rechecks pass over them, settlements lock in one order, some errors are repeated."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

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
from django_ayework.flow import gates as flow_gates
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.maintenance import prune
from django_ayework.models import Waiter, Work
from django_ayework.store.database import clock, is_contention
from django_ayework.store.sessions import engine_session
from django_ayework.testing import drain
from tests.processes import PATIENCE, eventually
from tests.races.holding import at_once, in_thread, somebody_waits, transaction_elsewhere
from tests.races.rivals import claim_all, succeed
from tests.races.works import step

with_row_locks = pytest.mark.vendors("postgresql", "mysql")


@work(name="races.broken")
def broken():
    raise Abort("it is broken")


@pytest.fixture
def without_recheck(monkeypatch):
    """Queue gates whose process dies before it rechecks them."""

    @contextmanager
    def patched():
        with monkeypatch.context() as patch:
            patch.setattr(flow_gates, "recheck", lambda waiters: None)
            yield

    return patched


def has_flag(*gates) -> list[bool]:
    flags = dict(Waiter.objects.values_list("work_id", "recheck"))
    return [flags[gate.id] for gate in gates]


def no_errors(caplog) -> bool:
    return not [record for record in caplog.records if record.levelname == "ERROR"]


def statuses(*gates) -> list[str]:
    return [str(gate.state().status) for gate in gates]


def dead_work():
    """Return a work that has died: only the recheck finds it, as it may be retried."""
    handle = enqueue(broken())
    drain()
    return handle


def after_all(member, *watched):
    """A gate that opens when the dead work and these have ended."""
    return dependency([member, *watched], [], "all-done")


@with_row_locks
def test_queueing_a_gate_does_not_wait_for_a_caller_that_completes_a_watched_work():
    member = enqueue(step(), delay=3600)
    gates = []
    held, over = threading.Event(), threading.Event()

    def complete_slowly() -> None:
        with completing(member.id) as context:
            held.set()
            assert over.wait(PATIENCE)
            context.void()

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
def test_an_end_that_missed_a_new_gate_is_found_once_it_is_committed(end):
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
def test_of_many_works_only_the_locked_ones_are_rechecked():
    members = enqueue_many([step() for _ in range(40)], delay=3600)
    locks: list[str] = []

    def note(execute, sql, params, many, context):
        if "SKIP LOCKED" in sql and "django_ayework_work" in sql:
            locks.extend(param for param in params if param in {member.id for member in members})
        return execute(sql, params, many, context)

    with transaction_elsewhere(lambda: complete(members[7].id)):
        gate = enqueue(dependency(members, [step()], "all-done"))
        with connection.execute_wrapper(note):
            recheck_leftovers()
        assert locks == [members[7].id]
        for member in members[:7] + members[8:]:
            complete(member.id)
        assert statuses(gate) == ["blocked"]
    recheck_leftovers()
    assert (statuses(gate), has_flag(gate)) == (["success"], [False])


@with_row_locks
def test_a_gate_that_is_new_under_an_old_id_is_rechecked_as_a_whole(without_recheck):
    held, member = enqueue(step(), delay=3600), dead_work()
    with transaction_elsewhere(lambda: complete(held.id)):
        at_once(lambda: enqueue(dependency([held, "absent"], []), id="gate"))
        recheck_leftovers()
    delete_chains("gate")
    with without_recheck():
        gate = enqueue(after_all(member), id="gate")
    recheck_leftovers()
    assert (statuses(gate), has_flag(gate)) == (["success"], [False])


@with_row_locks
def test_a_gate_that_is_being_cancelled_delays_no_other_over_the_same_work():
    member = dead_work()
    other = enqueue(after_all(member, "absent"))
    gates = []
    with transaction_elsewhere(lambda: cancel(other.id)):
        at_once(lambda: gates.append(enqueue(after_all(member))))
        assert (statuses(*gates), has_flag(*gates)) == (["success"], [False])


@with_row_locks
def test_a_locked_waiter_does_not_delay_the_others_of_its_page(without_recheck):
    member = dead_work()
    with without_recheck():
        gates = [enqueue(after_all(member, *watched)) for watched in [["absent"]] * 2 + [[]] * 2]
    with transaction_elsewhere(lambda: cancel(gates[0].id)):
        at_once(recheck_leftovers)
        assert statuses(*gates) == ["blocked", "blocked", "success", "success"]
        assert has_flag(*gates) == [True, False, False, False]
    recheck_leftovers()
    assert has_flag(*gates) == [False] * 4


@with_row_locks
def test_a_locked_group_does_not_delay_the_others_of_a_page(without_recheck, caplog):
    member, mate = dead_work(), step()
    with without_recheck():
        grouped, _ = enqueue_many([after_all(member), mate], together=True)
        others = [enqueue(after_all(member)) for _ in range(3)]
    with transaction_elsewhere(lambda: complete(mate.id)):
        at_once(recheck_leftovers)
        assert statuses(grouped, *others) == ["blocked", "success", "success", "success"]
        assert has_flag(grouped, *others) == [True, False, False, False]
    recheck_leftovers()
    assert (statuses(grouped), has_flag(grouped)) == (["success"], [False])
    assert no_errors(caplog)


@with_row_locks
def test_queueing_a_gate_leaves_it_to_a_worker_when_a_group_behind_it_is_locked(caplog):
    first, mate = after_all(dead_work()), step()
    behind, _ = enqueue_many([after_all(first), mate], together=True)
    gates = []
    with transaction_elsewhere(lambda: complete(mate.id)):
        at_once(lambda: gates.append(enqueue(first)))
        assert (statuses(*gates), has_flag(*gates)) == (["blocked"], [True])
    drain()
    assert statuses(*gates, behind) == ["success", "success"]
    assert no_errors(caplog)


@with_row_locks
@pytest.mark.parametrize("locked", ["waiter", "watched work"])
def test_rows_that_stay_locked_do_not_starve_the_waiters_behind_them(without_recheck, locked):
    held, member = enqueue(step(), delay=3600), dead_work()
    with without_recheck():
        first = enqueue(after_all(*([member, "absent"] if locked == "waiter" else [held])), id="a-first")
        second = enqueue(after_all(member), id="b-second")
    with transaction_elsewhere(lambda: cancel(first.id) if locked == "waiter" else complete(held.id)):
        at_once(lambda: (recheck_leftovers(limit=1), recheck_leftovers(limit=1)))
        assert statuses(first, second) == ["blocked", "success"]
        at_once(lambda: recheck_leftovers(limit=1))
    recheck_leftovers()
    assert statuses(first) == ["cancelled" if locked == "waiter" else "success"]
    assert has_flag(first, second) == [False, False]


@with_row_locks
def test_a_success_that_is_pruned_before_the_gate_over_it_is_committed_opens_it(settings):
    settings.AYEWORK = {"RETENTION": {"success": 0}}
    member = enqueue(step())
    drain()
    with transaction.atomic():
        gate = enqueue(after_all(member, "later"))
        at_once(prune)
    assert not Work.objects.filter(id=member.id).exists()
    enqueue(step(), id="later")
    drain()
    assert statuses(gate) == ["success"]


@pytest.mark.vendors("postgresql")
def test_a_recheck_is_no_part_of_a_deadlock_with_a_caller(monkeypatch):
    """It comes to a gate that is older than its own while the caller has that one and comes to its own."""
    x, y = enqueue(step(), delay=3600), enqueue(step(), delay=3600)
    old = enqueue(dependency([x, y], [step()], "all-done"), id="a-old")
    cleared = flow_gates.clear_recheck
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

    monkeypatch.setattr(flow_gates, "clear_recheck", clear_then_wait)
    with in_thread(queue), in_thread(finish):
        pass
    assert statuses(old) == ["success"]
    assert Waiter.objects.filter(recheck=True).count() == 0


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
        patched.setattr(flow_gates, "clear_recheck", note)
        gate = enqueue(dependency([member], [step()], "all-done"))
    assert during and before not in during
    assert waits() == before
    assert set(hooks) == {before}
    Waiter.objects.update(recheck=True)
    recheck_leftovers()
    assert gate.state().status is Status.SUCCESS


@pytest.mark.vendors("postgresql")
@pytest.mark.parametrize("count", [2, 300])
def test_a_settlement_that_waits_for_a_work_holds_none_behind_it(count: int) -> None:
    """Settlements lock works in id order, as callers do that lock several: no deadlock."""
    enqueue_many([step(number=number) for number in range(count)])
    rows = sorted(claim_all().values(), reverse=True)
    first, now = rows[-1], clock.now()
    for number, row in enumerate(rows):  # an index of running works has them the other way round
        Work.objects.filter(id=row.id).update(leased_until=now + timedelta(hours=1, seconds=number))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE django_ayework_work")
    reports = []

    def settle() -> None:
        with engine_session():
            reports.append(succeed(*rows))

    with ExitStack() as threads, transaction.atomic():
        cancel(first.id)
        threads.enter_context(in_thread(settle))
        eventually(somebody_waits)
        behind = Work.objects.select_for_update(nowait=True).exclude(id=first.id)
        assert len(behind.filter(id__in=[row.id for row in rows])) == count - 1
    assert [report.refused for report in reports] == [[first.id]]
    assert Work.objects.filter(status="success").count() == count - 1


#: How a session says how long it waits for a lock, as briefly as it can.
BRIEFLY = {
    "postgresql": "SET lock_timeout = '50ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
    "sqlite": "PRAGMA busy_timeout = 50",
}


def test_a_lock_timeout_is_the_callers_at_once() -> None:
    handle = enqueue(step(), delay=3600)
    refused: list[OperationalError] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except OperationalError as error:
            refused.append(error)
            raise

    def wait_briefly() -> None:
        with connection.cursor() as cursor:
            cursor.execute(BRIEFLY[connection.vendor])
        with connection.execute_wrapper(note), pytest.raises(OperationalError) as raised:
            cancel(handle.id)
        assert is_contention(raised.value)
        assert refused == [raised.value]

    with transaction.atomic():
        Work.objects.select_for_update().get(id=handle.id)
        at_once(wait_briefly)
    assert refused


@pytest.mark.vendors("sqlite")
def test_a_transaction_that_is_behind_another_one_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says that the database is locked, too, but at once."""
    handle = enqueue(step(), delay=3600)
    monkeypatch.setattr(connection, "transaction_mode", "DEFERRED")
    others: list[object] = []

    def overtake(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE") and not others:
            at_once(lambda: others.append(enqueue(step())))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(overtake):
        cancel(handle.id)
    assert len(others) == 1
    assert Work.objects.get(id=handle.id).status == "cancelled"
