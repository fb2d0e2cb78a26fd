"""Last attempts: begun at most once, and not used up by a worker that is lost before they begin."""

import threading
import time

import pytest
from django.db import connection

from django_ayework import Worker, enqueue, enqueue_many, pause, resume
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Throughput, Work
from django_ayework.signals import work_failed
from django_ayework.store import transitions as stored_transitions
from django_ayework.store.database import clock, in_transaction
from django_ayework.testing import running_worker
from django_ayework.worker import handlers, leases
from tests.marks import each_database, on_servers
from tests.processes import PATIENCE, ended, eventually, worker_process
from tests.races.holding import transaction_elsewhere
from tests.races.rivals import claim_all
from tests.worker.conftest import all_end
from tests.worker.works import (
    cancels_others,
    once,
    once_async,
    once_async_at,
    once_held,
    once_here,
    once_in_doer,
    once_together,
    started,
)

pytestmark = pytest.mark.usefixtures("quick_polls")
MANY = 400


@each_database
def test_a_killed_worker_uses_up_no_last_attempt_that_had_not_begun(short_lease_env, tmp_path):
    """A work whose handler had returned may have been settled or not: it does not run again in any case."""
    handles = enqueue_many([once(place=str(tmp_path), number=n, kills=n == MANY // 2) for n in range(MANY)])
    with worker_process(short_lease_env, "--concurrency", "1") as victim:
        ended(victim)
    begun = [bool(started(tmp_path, number)) for number in range(MANY)]
    claimed = set(Work.objects.filter(status="running").values_list("id", flat=True))
    unstarted = {handle.id for handle, has_begun in zip(handles, begun, strict=True) if not has_begun}
    assert claimed & unstarted, "the worker claims more than it runs"
    eventually(lambda: not reclaim() and not Work.objects.filter(status="running").exists())
    Worker(burst=True).run()
    assert [started(tmp_path, number) for number in range(MANY)] == ["1\n"] * MANY
    status = dict(Work.objects.values_list("id", "status"))
    assert status[handles[MANY // 2].id] == "dead"
    assert {id for id, ended_as in status.items() if ended_as != "success"}.isdisjoint(unstarted)


def test_a_last_attempt_that_a_lost_worker_never_began_is_not_recorded_as_a_failure():
    failures: list[object] = []
    work_failed.connect(lambda **told: failures.append(told), weak=False, dispatch_uid="unbegun")
    try:
        handle = enqueue(once_here())
        claim_all(lease=-1)
        Work.objects.update(delivery=2, begun_delivery=1)  # as after a retry by hand
        assert len(reclaim()) == 1
    finally:
        work_failed.disconnect(dispatch_uid="unbegun")
    state = handle.state()
    assert (state.status, state.attempt) == ("pending", 0)
    assert not failures
    assert not Attempt.objects.exists()
    Worker(burst=True).run()
    assert (handle.state().status, handle.state().attempt) == ("success", 1)


def test_a_last_attempt_that_is_lost_with_its_worker_is_logged_and_counted_as_a_death(caplog):
    handle = enqueue(once_here())
    claim_all(lease=-1)
    Work.objects.update(begun_delivery=1)
    with running_worker():
        eventually(lambda: handle.state().status == "dead")
    [error] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    name = f"Work {handle.id} ({once_here.name})"
    assert error.startswith(f"{name} is dead (exhausted, attempt 1 of 1): worker lost")
    assert list(Throughput.objects.filter(seconds=60).values_list("type", "dead")) == [(once_here.name, 1)]


def taken_once(monkeypatch: pytest.MonkeyPatch, chosen: set[str]) -> None:
    """Let leases lapse, and works be reclaimed, when their last attempts are about to begin first."""
    begin = leases.transitions.begin

    def begin_late(deliveries, worker):
        mine = chosen.intersection(deliveries)
        chosen.difference_update(mine)
        if mine:
            Work.objects.filter(id__in=mine).update(leased_until=clock.now().replace(year=2000))
            assert len(reclaim(sparing=set(deliveries) - mine)) == len(mine)
        return begin(deliveries, worker)

    monkeypatch.setattr(leases.transitions, "begin", begin_late)


@pytest.mark.parametrize("kind", [once_here, once_async], ids=lambda kind: kind.name)
def test_a_last_attempt_whose_lease_lapsed_before_it_began_runs_for_its_new_holder_alone(
    stage, monkeypatch, kind
):
    handle = enqueue(kind(number=7))
    taken_once(monkeypatch, {handle.id})
    with running_worker(concurrency=1):
        assert handle.result(timeout=PATIENCE) == 7
    assert stage.started == [7]
    assert Work.objects.values_list("delivery", "attempt").get() == (2, 1)


def test_of_a_batch_only_works_that_are_still_held_begin(stage, monkeypatch):
    handles = enqueue_many([once_together(number) for number in range(2)])
    taken_once(monkeypatch, {handles[0].id})
    with running_worker(concurrency=1):
        all_end(handles)
    assert stage.started == [1, 0]
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}


@on_servers
def test_works_begin_by_one_session_for_all_which_is_replaced_when_it_is_lost(monkeypatch):
    """A doer may run many works at a time. They need no sessions of their own to begin."""
    monkeypatch.setattr(handlers, "PUT_OFF_FOR", 0.01)
    sessions: list[object] = []
    begin = leases.transitions.begin

    def begin_in_session(deliveries, worker):
        connection.ensure_connection()
        sessions.append(connection.connection)
        if len(sessions) == 2:
            connection.connection.close()
        return begin(deliveries, worker)

    monkeypatch.setattr(leases.transitions, "begin", begin_in_session)
    first = enqueue(once_async(number=1))
    with running_worker(concurrency=20):
        all_end([first])
        kinds = (once_async, once_here, once_in_doer)
        all_end(enqueue_many([kind(number=number) for number in range(20) for kind in kinds]))
    assert len({id(session) for session in sessions}) == 2, "a lost one and its successor"


def test_an_async_last_attempt_that_another_handler_cancels_as_it_begins_goes_on(stage):
    handles = enqueue_many([each for n in range(30) for each in (once_async(number=n), cancels_others())])
    with running_worker(concurrency=16):
        eventually(lambda: all(handle.state().ended_at for handle in handles))
    unstarted = set(range(30)).difference(stage.started)
    assert not unstarted, "each was called, and perhaps cancelled then"


def test_the_time_of_an_attempt_counts_from_its_call(monkeypatch):
    begin = leases.transitions.begin

    def begin_late(deliveries, worker):
        eventually(lambda: time.monotonic() > started_at + 1.5)
        return begin(deliveries, worker)

    monkeypatch.setattr(leases.transitions, "begin", begin_late)
    started_at = time.monotonic()
    handles = enqueue_many([kind(number=1) for kind in (once_here, once_async)], timeout=1)
    with running_worker(concurrency=2):
        all_end(handles)


@on_servers
def test_a_session_that_goes_silent_holds_up_the_beginning_for_a_while_only(cut_off_env, proxy, tmp_path):
    env = cut_off_env | {"TEST_STATEMENT_TIMEOUT": "2", "TEST_STALL": "20"}
    proxy.hush_one(b"begun_delivery")
    with worker_process(env, "--concurrency", "2"):
        all_end(enqueue_many([once(place=str(tmp_path), number=number) for number in range(6)]))
    assert [started(tmp_path, number) for number in range(6)] == ["1\n"] * 6


def test_a_batch_does_not_begin_a_work_that_was_taken_between_two_statements(stage, monkeypatch):
    """On SQLite the rows are read and written in one transaction, which keeps others from writing."""
    handles = enqueue_many([once_together(number) for number in range(2)])
    taken_once(monkeypatch, {handles[0].id})
    name = "write" if connection.vendor == "sqlite" else "lock_held"
    act, was_open = getattr(stored_transitions, name), list[bool]()

    def note_transaction(*given, **options):
        was_open.append(in_transaction())
        return act(*given, **options)

    monkeypatch.setattr(stored_transitions, name, note_transaction)
    with running_worker(concurrency=1):
        all_end(handles)
    assert all(was_open) and (was_open or connection.vendor == "postgresql")


@each_database
def test_an_async_handler_that_kills_the_process_uses_up_no_attempt_of_others(short_lease_env, tmp_path):
    handles = enqueue_many([once_async_at(place=str(tmp_path), number=n, kills=n == 20) for n in range(40)])
    with worker_process(short_lease_env, "--concurrency", "20") as victim:
        ended(victim)
    begun = [bool(started(tmp_path, number)) for number in range(40)]
    eventually(lambda: not reclaim() and not Work.objects.filter(status="running").exists())
    dead = set(Work.objects.filter(status="dead").values_list("id", flat=True))
    unstarted = {handle.id for handle, has_begun in zip(handles, begun, strict=True) if not has_begun}
    assert handles[20].id in dead
    assert len(dead & unstarted) <= 1, "one may be noted while the event loop is killed"


def test_a_slot_that_a_long_handler_holds_ends_after_the_worker(stage, settings):
    """It finds works that were given back, and nobody is there to note that they begin."""
    settings.AYEWORK = {"SHUTDOWN_GRACE": 0.1}
    enqueue_many([once_held(number=number) for number in range(3)])
    enqueue_many([once_here(number=number) for number in range(50)])
    before = set(threading.enumerate())
    with running_worker(concurrency=1):
        eventually(lambda: stage.started)
    stage.go.set()
    eventually(lambda: not set(threading.enumerate()) - before)


@on_servers
def test_a_pause_takes_nothing_back_that_begins(stage, monkeypatch, settings):
    """One row of the batch is locked, and the others are noted: they could not be released one by one."""
    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "LEASE": 2}
    begin, held, is_paused = leases.transitions.begin, list[str](), threading.Event()
    handles = enqueue_many([once_together(number) for number in range(2)])

    def begin_partly(deliveries, worker):
        if held or len(deliveries) == 1:
            return begin(deliveries, worker)
        held.append(min(deliveries))
        with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=held[0])):
            noted = begin(deliveries, worker)
            pause(type="worker.once_together")
            is_paused.set()
            time.sleep(0.6)
            return noted

    monkeypatch.setattr(leases.transitions, "begin", begin_partly)
    with running_worker(concurrency=1):
        assert is_paused.wait(PATIENCE)
        resume(type="worker.once_together")
        all_end(handles)
    assert sorted(stage.started) == [0, 1]


@on_servers
def test_a_slot_does_not_wait_for_a_row_that_another_transaction_holds(stage, monkeypatch, reported):
    """The work runs once the row is free. Meanwhile the slot runs others."""
    monkeypatch.setattr(leases, "LOCKED_FOR", 0.0)
    monkeypatch.setattr(handlers, "PUT_OFF_FOR", 0.01)
    begin = leases.transitions.begin
    waits, other = enqueue(once_here(number=1), priority=1), enqueue(once_here(number=2))
    tries = [waits.id]

    def begin_locked(deliveries, worker):
        if tries and tries[0] in deliveries:
            id = tries.pop()
            with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=id)):
                return begin(deliveries, worker)
        return begin(deliveries, worker)

    monkeypatch.setattr(leases.transitions, "begin", begin_locked)
    with running_worker(concurrency=1):
        all_end([waits, other])
    assert sorted(stage.started) == [1, 2]
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["deferred"]
    assert reported == [("the row of the work is locked by another transaction", "queue")]
