"""Locked rows: rechecks pass over them, settlements lock in one order, some errors are repeated."""

import threading
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from functools import partial
from unittest.mock import patch

import pytest
from django.db import OperationalError, connection, transaction

from django_ayework import Abort, cancel, complete, delete_chains, dependency, enqueue, enqueue_many, work
from django_ayework.flow import gates as flow_gates
from django_ayework.flow import isolation, maintenance
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.maintenance import expire_blocked, prune, reclaim
from django_ayework.models import Waiter, Work
from django_ayework.store import dependencies
from django_ayework.store.database import clock, is_contention
from django_ayework.store.sessions import engine_session
from django_ayework.testing import drain
from tests.marks import own_session
from tests.processes import PATIENCE, eventually
from tests.races.holding import at_once, in_thread, somebody_waits, transaction_elsewhere
from tests.races.rivals import claim_all, succeed
from tests.races.works import step

with_row_locks = pytest.mark.vendors("postgresql", "mysql")
#: Queue gates whose process dies before it rechecks them.
without_recheck = partial(patch.object, flow_gates, "recheck", lambda waiters: None)
#: What a gate is whose recheck is left to a worker, and one that has opened.
LEFT, OPEN = ("blocked", True), ("success", False)


@work(name="races.broken")
def broken():
    raise Abort("it is broken")


def stands(*gates):
    """The status of each work, and whether it is marked for a recheck."""
    flags = dict(Waiter.objects.values_list("work_id", "recheck"))
    return [(str(gate.state().status), flags[gate.id]) for gate in gates]


def dead_work():
    """Return a work that has died: only the recheck finds it, as it may be retried."""
    handle = enqueue(broken())
    drain()
    return handle


def after_all(*watched):
    """A gate that opens when these have ended."""
    return dependency(watched, [], "all-done")


@with_row_locks
@pytest.mark.parametrize("end", [complete, cancel])
def test_queueing_does_not_wait_for_an_end_which_is_found_once_it_is_committed(end):
    member = enqueue(step(), delay=3600)
    waiting = []
    with transaction_elsewhere(lambda: end(member.id)):
        at_once(lambda: waiting.append(enqueue(dependency([member], [step()], "all-done"))))
        at_once(lambda: waiting.append(enqueue(step(), blockers=[member])))
        at_once(recheck_leftovers)
        assert stands(*waiting) == [LEFT, LEFT]
    recheck_leftovers()
    assert stands(*waiting) == [OPEN, ("pending" if end is complete else "dead", False)]


@with_row_locks
@pytest.mark.parametrize(
    ("kind", "end", "standing"),
    [(step, complete, "success"), (step, cancel, "dead"), (lambda: dependency([], []), None, "success")],
    ids=["completed", "cancelled", "gate that opens at once"],
)
def test_a_gate_over_a_work_that_another_transaction_queues_and_ends_is_decided_at_its_commit(
    kind, end, standing
):
    """The gate is queued before the commit: neither transaction sees what the other one has inserted."""

    def queue_and_end() -> None:
        enqueue(kind(), id="brief")
        if end is not None:
            end("brief")

    with transaction_elsewhere(queue_and_end):
        gate = enqueue(dependency(["brief"], []))
        assert stands(gate) == [("blocked", False)]
    assert stands(gate) == [(standing, False)]


@with_row_locks
def test_an_end_that_is_committed_while_a_recheck_reads_is_found(monkeypatch):
    member, read = enqueue(step(), delay=3600), dependencies.statuses_of
    with ExitStack() as elsewhere:

        def read_before_the_commit(ids):
            found = read(ids)
            elsewhere.close()
            return found

        elsewhere.enter_context(transaction_elsewhere(lambda: complete(member.id)))
        monkeypatch.setattr(dependencies, "statuses_of", read_before_the_commit)
        gate = enqueue(after_all(member))
    assert stands(gate) == [OPEN]


@with_row_locks
def test_works_that_are_renewed_or_locked_after_they_were_found_lapsed_are_not_reclaimed(monkeypatch):
    renewed, held, _ = ids = [handle.id for handle in enqueue_many([step() for _ in range(3)])]
    claim_all(lease=-60)
    Work.objects.filter(id=renewed).update(leased_until=clock.now() + timedelta(seconds=60))
    monkeypatch.setattr(maintenance, "lapsed_ids", lambda *given: ids)
    with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=held)):
        with patch.object(isolation, "LONGEST_ISOLATION", 0.0):
            at_once(reclaim)
        assert {*Work.objects.filter(status="running").values_list("id", flat=True)} == {renewed, held}


@with_row_locks
def test_a_work_that_is_queued_in_another_way_and_ends_unseen_is_found_once_its_gate_opens():
    member, released = step(), step()
    first = dependency([member], [released])
    with transaction.atomic():
        behind = enqueue_many([member, first, dependency([released], [])])[-1]
        at_once(lambda: complete(enqueue(released).id))
    assert stands(behind) == [("blocked", False)]
    complete(member.id)
    assert stands(behind) == [OPEN]


@with_row_locks
def test_a_row_that_stays_locked_keeps_no_other_work_from_expiring(time_travel):
    member = enqueue(step(), delay=3600)
    held, *others = [enqueue(dependency([member], [], timeout=10)) for _ in range(3)]
    behind = enqueue(dependency([held], []))
    time_travel(60)
    with transaction_elsewhere(lambda: list(Waiter.objects.select_for_update().filter(work_id=behind.id))):
        assert expire_blocked() == 2
        assert [str(gate.state().status) for gate in (held, *others)] == ["blocked", "dead", "dead"]
    assert expire_blocked() == 1
    assert [str(gate.state().status) for gate in (held, behind)] == ["dead", "dead"]


@with_row_locks
def test_of_many_works_only_the_locked_ones_are_rechecked():
    members = enqueue_many([step() for _ in range(40)], delay=3600)
    ids = {member.id for member in members}
    locks = []

    def note(execute, sql, params, many, context):
        if "SKIP LOCKED" in sql and "django_ayework_work" in sql:
            locks.extend(param for param in params if param in ids)
        return execute(sql, params, many, context)

    with transaction_elsewhere(lambda: complete(members[7].id)):
        gate = enqueue(dependency(members, [step()], "all-done"))
        with connection.execute_wrapper(note):
            recheck_leftovers()
        assert locks == [members[7].id]
        for member in members[:7] + members[8:]:
            complete(member.id)
        assert gate.state().status == "blocked"
    recheck_leftovers()
    assert stands(gate) == [OPEN]


@with_row_locks
def test_a_gate_that_is_new_under_an_old_id_is_rechecked_as_a_whole():
    held, member = enqueue(step(), delay=3600), dead_work()
    with transaction_elsewhere(lambda: complete(held.id)):
        at_once(lambda: enqueue(dependency([held, "absent"], []), id="gate"))
        recheck_leftovers()
    delete_chains("gate")
    with without_recheck():
        gate = enqueue(after_all(member), id="gate")
    recheck_leftovers()
    assert stands(gate) == [OPEN]


@with_row_locks
def test_a_locked_waiter_delays_neither_the_others_of_its_page_nor_a_new_one_over_the_same_work():
    member = dead_work()
    with without_recheck():
        gates = [enqueue(after_all(member, *watched)) for watched in [["absent"]] * 2 + [[]] * 2]
    with transaction_elsewhere(lambda: cancel(gates[0].id)):
        with patch.object(isolation, "LONGEST_ISOLATION", 0.0):  # the page is not divided
            at_once(recheck_leftovers)
        assert stands(*gates) == [LEFT, ("blocked", False), OPEN, OPEN]
        at_once(lambda: gates.append(enqueue(after_all(member))))
        assert stands(gates[-1]) == [OPEN]
    recheck_leftovers()
    assert stands(*gates) == [("cancelled", False), ("blocked", False), OPEN, OPEN, OPEN]


@with_row_locks
def test_a_locked_group_delays_no_others_of_a_page_and_leaves_a_new_gate_before_it_to_a_worker(caplog):
    member, mate = dead_work(), step()
    first, gates = after_all(member), []
    with without_recheck():
        grouped, behind, _ = enqueue_many([after_all(member), after_all(first), mate], together=True)
        others = [enqueue(after_all(member)) for _ in range(3)]
    with transaction_elsewhere(lambda: complete(mate.id)):
        at_once(recheck_leftovers)
        assert stands(grouped, *others) == [LEFT, OPEN, OPEN, OPEN]
        at_once(lambda: gates.append(enqueue(first)))
        assert stands(*gates) == [LEFT]
    recheck_leftovers()
    assert stands(grouped, behind, *gates) == [OPEN, OPEN, OPEN]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@with_row_locks
@pytest.mark.parametrize("locked", ["waiter", "watched work"])
def test_rows_that_stay_locked_do_not_starve_the_waiters_behind_them(locked):
    held, member = enqueue(step(), delay=3600), dead_work()
    with without_recheck():
        first = enqueue(after_all(*([member, "absent"] if locked == "waiter" else [held])), id="a-first")
        second = enqueue(after_all(member), id="b-second")
    with transaction_elsewhere(lambda: cancel(first.id) if locked == "waiter" else complete(held.id)):
        at_once(lambda: (recheck_leftovers(limit=1), recheck_leftovers(limit=1)))
        assert [status for status, _ in stands(first, second)] == ["blocked", "success"]
        at_once(lambda: recheck_leftovers(limit=1))
    recheck_leftovers()
    assert stands(first, second) == [("cancelled" if locked == "waiter" else "success", False), OPEN]


@with_row_locks
def test_a_success_that_is_pruned_before_the_gate_over_it_is_committed_opens_it(settings):
    settings.AYEWORK = {"RETENTION": {"success": 0}}
    member = enqueue(step())
    drain()
    with transaction.atomic():
        gate = enqueue(after_all(member, "later"))
        at_once(prune)
    assert member.state() is None
    enqueue(step(), id="later")
    drain()
    assert gate.state().status == "success"


@pytest.mark.vendors("postgresql")
def test_a_recheck_is_no_part_of_a_deadlock_with_a_caller(monkeypatch):
    """It comes to a gate that is older than its own while the caller has that one and comes to its own."""
    x, y = enqueue(step(), delay=3600), enqueue(step(), delay=3600)
    old = enqueue(dependency([x, y], [step()], "all-done"), id="a-old")
    cleared, locked = flow_gates.clear_recheck, threading.Event()

    def clear_then_wait(waiters):
        cleared(waiters)
        locked.set()
        eventually(somebody_waits)

    def queue():
        with transaction.atomic():
            enqueue(dependency([x, y], [step()], "all-done"), id="b-new")
            at_once(lambda: complete(x.id))

    def finish():
        assert locked.wait(PATIENCE)
        with transaction.atomic():
            complete(y.id)

    monkeypatch.setattr(flow_gates, "clear_recheck", clear_then_wait)
    with in_thread(queue), in_thread(finish):
        pass
    assert old.state().status == "success"
    assert Waiter.objects.filter(recheck=True).count() == 0


#: How a session says how long it waits for locks.
WAITS = {
    "postgresql": "SHOW lock_timeout",
    "mysql": "SELECT @@SESSION.innodb_lock_wait_timeout",
    "sqlite": "PRAGMA busy_timeout",
}


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_recheck_the_session_waits_for_locks_as_before(fails, monkeypatch, settings):
    def waits():
        with connection.cursor() as cursor:
            cursor.execute(WAITS[connection.vendor])
            return cursor.fetchone()[0]

    def note(waiters):
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
    assert gate.state().status == "success"


@pytest.mark.vendors("postgresql")
@pytest.mark.parametrize("count", [2, 300])
def test_a_settlement_that_waits_for_a_work_holds_none_behind_it(count):
    """Settlements lock works in id order, as callers do that lock several: no deadlock."""
    enqueue_many([step(number=number) for number in range(count)])
    rows = sorted(claim_all().values(), reverse=True)
    first, now = rows[-1], clock.now()
    for number, row in enumerate(rows):  # an index of running works has them the other way round
        Work.objects.filter(id=row.id).update(leased_until=now + timedelta(hours=1, seconds=number))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE django_ayework_work")
    reports = []

    def settle():
        with engine_session(waits_for_locks=True):  # it may wait for long on a busy machine
            reports.append(succeed(*rows))

    with ExitStack() as threads, transaction.atomic():
        cancel(first.id)
        threads.enter_context(in_thread(settle))
        eventually(somebody_waits)
        behind = Work.objects.select_for_update(nowait=True).exclude(id=first.id)
        assert len(behind.filter(id__in=[row.id for row in rows])) == count - 1
    assert [report.refused for report in reports] == [[first.id]]
    assert Work.objects.filter(status="success").count() == count - 1


@pytest.mark.vendors("postgresql")
@pytest.mark.parametrize("session", [partial(engine_session, waits_for_locks=True), nullcontext])
def test_a_settlement_that_waits_for_a_waiter_holds_none_behind_it(session):
    member = enqueue(step())
    first, *others = sorted(enqueue(dependency([member], [])).id for _ in range(5))
    [row] = claim_all().values()

    def settle():
        with session():
            succeed(row)

    with ExitStack() as threads, transaction.atomic():
        Waiter.objects.select_for_update().get(work_id=first)
        threads.enter_context(in_thread(settle))
        eventually(somebody_waits)
        assert len(Waiter.objects.select_for_update(nowait=True).filter(work_id__in=others)) == 4
    assert Waiter.objects.filter(succeeded=1).count() == 5


#: How a session says how long it waits for a lock, as briefly as it can.
BRIEFLY = {
    "postgresql": "SET lock_timeout = '50ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
    "sqlite": "PRAGMA busy_timeout = 50",
}


@own_session
def test_a_lock_timeout_is_the_callers_at_once():
    handle = enqueue(step(), delay=3600)
    refused = []

    def note(execute, *arguments):
        try:
            return execute(*arguments)
        except OperationalError as error:
            refused.append(error)
            raise

    def wait_briefly():
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
def test_a_transaction_that_is_behind_another_one_is_repeated(monkeypatch):
    """SQLite says that the database is locked, too, but at once."""
    handle = enqueue(step(), delay=3600)
    monkeypatch.setattr(connection, "transaction_mode", "DEFERRED")
    others = []

    def overtake(execute, sql, *arguments):
        if sql.startswith("UPDATE") and not others:
            at_once(lambda: others.append(enqueue(step())))
        return execute(sql, *arguments)

    with connection.execute_wrapper(overtake):
        cancel(handle.id)
    assert len(others) == 1
    assert handle.state().status == "cancelled"
