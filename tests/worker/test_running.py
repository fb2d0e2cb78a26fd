"""What a worker does while all is well, what it is told through the database, and what it logs."""

import logging
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import OperationalError, connections
from django.test import override_settings

from django_ayework import Abort, Context, Defer, Retry, cancel, complete, dependency, enqueue, work
from django_ayework.api import command_worker, enqueue_many
from django_ayework.errors import InvalidOption, WorkerNotFound
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.maintenance import Pruned
from django_ayework.flow.notify import revoked_works
from django_ayework.models import Work, WorkerProcess
from django_ayework.rules.notifications import Due
from django_ayework.signals import worker_started, worker_stopped
from django_ayework.store import transitions
from django_ayework.testing import running_worker
from django_ayework.worker import health, leases, maintenance, settler
from django_ayework.worker.claimer import Commands
from django_ayework.worker.health import WorkerRegistration
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.settler import AttemptCounts
from django_ayework.worker.wakeups import Message
from django_ayework.worker.worker import Worker
from tests.attempts.conftest import connected
from tests.processes import PATIENCE, eventually
from tests.worker.conftest import all_end, greedy, while_it_runs
from tests.worker.works import exits, hold, hold_async, quick, until_aborted

pytestmark = pytest.mark.usefixtures("quick_polls")


def counts() -> dict[str, int]:
    statuses = list(Work.objects.values_list("status", flat=True))
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def test_plain_and_async_works_share_the_slots_and_async_ones_run_at_the_same_time_on_one_loop(stage):
    kinds = [hold, hold_async, hold_async] * 4
    handles = enqueue_many([kind(number=number) for number, kind in enumerate(kinds)])
    with running_worker(concurrency=3):
        eventually(lambda: stage.inside == 3)
        stage.go.set()
        results = [handle.result(timeout=10) for handle in handles]
    assert stage.most_inside == 3
    assert sorted(stage.started) == list(range(12))
    assert len(set(results[1::3] + results[2::3])) == 1


def test_works_that_two_threads_give_back_at_the_same_time_are_counted_once(stage, monkeypatch):
    release, count = transitions.release, threading.Barrier(2)

    def slowly(*args, **options):
        with suppress(threading.BrokenBarrierError):
            count.wait(timeout=0.5)  # the other thread comes here, too, if it has works to give back
        return release(*args, **options)

    def give_back():
        worker._maintenance.release_unstarted()
        connections.close_all()

    monkeypatch.setattr(transitions, "release", slowly)
    with running_worker(concurrency=1) as worker:
        all_end(enqueue_many([quick() for _ in range(200)]))  # so the worker holds works ready
        enqueue_many([hold(number=number) for number in range(20)])
        eventually(lambda: stage.inside == 1 and worker._in_flight.unfinished > 2)
        threads = [threading.Thread(target=give_back) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert worker._in_flight.unfinished >= 1
        stage.go.set()
        eventually(lambda: counts() == {"success": 220})
        eventually(lambda: worker._in_flight.unfinished == 0)


def test_slots_that_change_threads_at_any_instruction_lose_no_work_and_no_slot(stage, monkeypatch):
    monkeypatch.setattr(maintenance, "STALE_AFTER", 600.0)  # else a lost work is given back
    stage.go.set()
    kinds = [hold, hold, hold_async] * 100
    switches_after = sys.getswitchinterval()
    with running_worker(concurrency=3):
        sys.setswitchinterval(1e-6)
        try:
            all_end(enqueue_many([kind(number=number) for number, kind in enumerate(kinds)]))
        finally:
            sys.setswitchinterval(switches_after)
        assert sorted(stage.started) == list(range(300))
        stage.go.clear()
        handles = enqueue_many([hold(number=number) for number in range(300, 306)])
        eventually(lambda: stage.inside == 3)
        stage.go.set()
        all_end(handles)
    assert counts() == {"success": 306}
    assert stage.most_inside == 3


def test_a_burst_runs_what_its_works_release_and_ends_once_nothing_is_due_and_nothing_runs(stage):
    members = [quick(number=number) for number in range(40)]
    enqueue_many([dependency(members, [quick(number=99)]), dependency(["never"], [quick()])])
    enqueue(quick(), delay=3600)
    enqueue_many(members)
    Worker(concurrency=4, burst=True).run()
    assert stage.started[-1] == 99
    assert counts() == {"success": 42, "blocked": 1, "scheduled": 1}


@pytest.fixture
def given_back(monkeypatch) -> list[int]:
    """How many works a worker of this process gave back, each time; it does so soon."""
    released: list[int] = []

    def release(deliveries: dict[str, int], *args, **options) -> set[str]:
        released.append(len(deliveries))
        return really_release(deliveries, *args, **options)

    really_release = transitions.release
    monkeypatch.setattr(transitions, "release", release)
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    return released


@pytest.mark.vendors("sqlite")
def test_works_that_wait_behind_a_slow_one_are_given_back_and_do_not_count_as_attempts(stage, given_back):
    enqueue_many([hold(number=number) for number in range(6)])
    worker = greedy(max_works=4)
    worker.start()
    eventually(lambda: given_back)
    stage.go.set()
    worker._thread.join(30)
    assert given_back[0] == 3
    assert stage.started[0] == 0
    assert len(set(stage.started)) == 4, "others may come before those that were given back"
    assert set(Work.objects.values_list("status", "attempt")) == {("pending", 0), ("success", 1)}
    assert counts() == {"pending": 2, "success": 4}


def test_a_worker_that_stops_gives_back_what_has_not_started(stage, caplog):
    enqueue_many([hold(number=number) for number in range(4)])
    worker = greedy()
    worker.start()
    eventually(lambda: stage.started and Work.objects.filter(status="running").count() == 4)
    caplog.set_level("INFO", "django_ayework")
    worker.request_stop()
    eventually(lambda: Work.objects.filter(status="pending", attempt=0, worker=None).count() == 3)
    stage.go.set()
    worker.stop()
    assert counts() == {"pending": 3, "success": 1}
    assert stage.started == [0]
    assert f"Worker {worker.id} released 3 works." in caplog.messages


def test_attempts_that_ended_within_the_grace_are_settled_after_it(stage, given_back, monkeypatch):
    """The settler is slow; it settles only once the works that outlast the grace were given back."""
    settle = settler.settle
    monkeypatch.setattr(settler, "settle", lambda given: eventually(lambda: given_back) and settle(given))
    with override_settings(AYEWORK={"SHUTDOWN_GRACE": 0.1}):
        handles = enqueue_many([hold(number=0), *(quick(number=number) for number in range(1, 8))])
        with running_worker(concurrency=10):
            eventually(lambda: len(stage.started) == 8)
    assert given_back == [1]
    assert Work.objects.get(id=handles[0].id).status == "pending"
    assert counts() == {"pending": 1, "success": 7}


@pytest.mark.vendors("sqlite")
def test_gates_expire_although_every_slot_is_busy():
    with while_it_runs(hold(), concurrency=1):
        gate = enqueue(dependency(["never"], [], timeout=0.01))
        eventually(lambda: gate.state().status == "dead")


@pytest.mark.vendors("sqlite")
def test_a_worker_keeps_to_its_types(stage):
    handles = [enqueue(quick(number=1)), enqueue(hold_async(number=2)), enqueue(hold(number=3))]
    stage.go.set()
    Worker(types=["worker.quick", "worker.hold"], exclude_types="worker.hold", burst=True).run()
    assert [handle.state().status for handle in handles] == ["success", "pending", "pending"]
    Worker(exclude_types=["worker.hold"], burst=True).run()
    assert [handle.state().status for handle in handles] == ["success", "success", "pending"]


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("kind", ["works", "others"])
def test_pruning_a_lot_takes_turns_with_other_maintenance(monkeypatch, kind):
    """A million rows to prune may not keep the thread from its other duties."""
    calls = []
    worker = Worker()
    page = Pruned(seen=1000, deleted=0)
    if kind == "works":
        monkeypatch.setattr(worker._maintenance._walk, "page", lambda: calls.append(1) or page)
    else:
        monkeypatch.setattr(maintenance, "prune_others", lambda: calls.append(1) or 1000)
    worker._maintenance._pruning.due_at = 99.0
    worker._maintenance.prune()
    assert len(calls) == 1
    assert worker._maintenance._pruning.due_at == 0.0


@pytest.mark.vendors("sqlite")
def test_a_worker_forgets_nothing_it_was_given_while_the_clock_jumps(stage, time_travel):
    """Time of the database's host goes back an hour, then forth two, while works run."""
    handles = enqueue_many([hold(number=number) for number in range(2)])
    with running_worker(concurrency=2):
        eventually(lambda: stage.inside == 2)
        time_travel(timedelta(hours=-1))
        later = enqueue(quick())
        time_travel(timedelta(hours=2))
        stage.go.set()
        all_end([*handles, later])
    assert set(Work.objects.values_list("status", "delivery")) == {("success", 1)}


@work(name="worker.waits")
def waits() -> None:
    raise Defer(delay=3600)


@pytest.mark.vendors("sqlite")
def test_a_worker_lists_what_it_has_claimed_and_not_ended_however_that_ends(stage):
    held = enqueue_many([hold(number=number) for number in range(3)])
    types = ["worker.exits", "worker.hold", "worker.quick", "worker.waits"]
    with running_worker(concurrency=2, types=types) as worker:
        assert worker.known_types == types
        eventually(lambda: stage.inside == 2)
        running = [each for each in worker.active() if each.running_for is not None]
        assert {each.id for each in running} < {handle.id for handle in held}
        shown = [(each.type, each.queue, each.attempt) for each in running]
        assert shown == [("worker.hold", "default", 1)] * 2
        assert all(each.claimed_for >= each.running_for >= 0 for each in running)
        stage.go.set()
        all_end(held)
        eventually(lambda: worker.active() == [])
        for kind, status in ((exits, "dead"), (waits, "scheduled")):
            handle = enqueue(kind())
            eventually(lambda: handle.state().status == status)  # noqa: B023
            eventually(lambda: worker.active() == [])


@pytest.mark.vendors("sqlite")
def test_a_worker_that_stops_before_the_database_answers_starts_nothing(monkeypatch, caplog):
    asked, begun = threading.Event(), []

    def refuse() -> None:
        asked.set()
        raise OperationalError("the database is away")

    def note(sender, **kwargs):
        begun.append("worker")

    monkeypatch.setattr(health, "require_usable_database", refuse)
    monkeypatch.setattr(maintenance, "sync", lambda: begun.append("schedules"))
    with connected(note, worker_started, worker_stopped):
        worker = Worker(concurrency=1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert asked.wait(PATIENCE)
        worker.request_stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert begun == []
    assert "Worker" not in caplog.text


@pytest.mark.vendors("sqlite")
def test_a_stop_that_comes_between_the_check_and_the_rest_ends_the_rest(settings, monkeypatch):
    def ask_after_the_check(worker: Worker) -> bool:
        was_over = is_over(worker)
        worker.request_stop()
        return was_over

    settings.AYEWORK = {"POLL_INTERVAL": 600}
    is_over = Worker._is_over
    monkeypatch.setattr(Worker, "_is_over", ask_after_the_check)
    thread = threading.Thread(target=Worker(concurrency=1).run)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def obeyed(id: str, quiet: bool) -> bool:
    return WorkerProcess.objects.filter(id=id, quiet=quiet, command="").exists()


def test_a_quiet_worker_lets_works_end_leaves_the_others_resumes_and_can_be_stopped(stage):
    running = enqueue(hold(number=4))
    with Worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        late = enqueue_many([quick(number=number) for number in range(20)])[-1]
        command_worker(worker.id, "quiet")
        eventually(lambda: obeyed(worker.id, quiet=True))
        stage.go.set()
        assert running.result(timeout=30) == 4
        left = Work.objects.exclude(id=running.id)
        assert set(left.values_list("status", "attempt", "worker")) == {("pending", 0, None)}
        with Worker(concurrency=1):
            assert late.result(timeout=30) == 19

        for command in ("resume", "quiet", "resume"):  # the last one counts
            command_worker(worker.id, command)
        assert enqueue(quick(number=99)).result(timeout=30) == 99
        assert obeyed(worker.id, quiet=False)
        command_worker(worker.id, "quiet")
        eventually(lambda: obeyed(worker.id, quiet=True))
        command_worker(worker.id, "stop")
        eventually(lambda: worker.is_stopping)
    assert worker.left == 0
    assert WorkerProcess.objects.get(id=worker.id).stopped_at is not None


def test_a_worker_that_is_told_to_stop_lets_its_works_end():
    with while_it_runs(hold(number=4)) as (running, worker):
        command_worker(worker.id, "stop")
        eventually(lambda: worker.is_stopping)
    assert running.result(timeout=0) == 4
    row = WorkerProcess.objects.get()
    assert (row.stopped_at is not None, row.command) == (True, "")
    with pytest.raises(WorkerNotFound, match="no running worker has the id"):
        command_worker(row.id, "quiet")
    with pytest.raises(InvalidOption, match="expected 'quiet', 'resume' or 'stop', got: 'pause'"):
        command_worker("any", "pause")  # type: ignore[arg-type]
    with pytest.raises(WorkerNotFound):
        command_worker("nobody", "stop")


def registered(in_flight: InFlight, **options) -> tuple[WorkerRegistration, Commands]:
    """Register the worker ``w``; return its row, and what obeys its commands."""
    registration = WorkerRegistration("w", "", (), 1, **options)
    registration.beat(0)
    thread = MaintenanceThread("w", in_flight, EngineServices(), AttemptCounts())
    return registration, Commands(registration, thread, lambda: None)


def test_works_that_have_not_started_go_back_before_the_command_counts_as_obeyed(claimer):
    enqueue_many([quick(number=number) for number in range(5)])
    in_flight = InFlight(lambda: None)
    registration, commands = registered(in_flight)
    in_flight.add(claimer.claim(5))
    assert set(Work.objects.values_list("status", "worker")) == {("running", "w")}
    command_worker("w", "quiet")

    commands.obey("quiet")

    assert registration.quiet
    assert set(Work.objects.values_list("status", "worker", "attempt")) == {("pending", None, 0)}
    assert obeyed("w", quiet=True)
    commands.obey("of a newer version")
    assert registration.quiet


@pytest.mark.vendors("sqlite")
def test_a_quiet_worker_claims_nothing_whatever_messages_say(claimer):
    _, claimer.commands = registered(InFlight(lambda: None), quiet=True)
    enqueue_many([quick(number=number) for number in range(5)])
    due = Due(frozenset({("default", "worker.quick")}), None, 5)
    for _ in range(3):
        claimer.wake_ups._note(due, Message("7", due, time.monotonic(), True, False))
        assert claimer.claim(5) == []
        assert not claimer.wake_ups.taken, "others answer the message"
        claimer.poll()

    command_worker("w", "resume")
    claimer.poll()
    assert len(claimer.claim(5)) == 5


@pytest.mark.parametrize(
    ("act", "kind", "line"),
    [
        (cancel, until_aborted, ("INFO", "the work was cancelled.")),
        (cancel, hold, ("INFO", "the work was cancelled.")),
        (complete, hold, ("WARNING", "another process has claimed or ended the work.")),
    ],
    ids=["cancelled, noticed", "cancelled, not noticed", "completed"],
)
def test_an_outcome_that_comes_too_late_is_logged(stage, monkeypatch, caplog, act, kind, line):
    def logged_too_late() -> list[tuple[str, str]]:
        start = f"The outcome of work {handle.id} came too late: "
        lines = [(record.levelname, record.getMessage().partition(" (see ")[0]) for record in caplog.records]
        return [(level, text.removeprefix(start)) for level, text in lines if text.startswith(start)]

    caplog.set_level(logging.INFO, "django_ayework")
    with while_it_runs(kind()) as (handle, _):
        if act is cancel and kind is hold:
            monkeypatch.setattr(revoked_works, "_listeners", [])
            monkeypatch.setattr(leases, "abort_lost", lambda doubtful: None)
        act(handle.id)
        stage.go.set()
        eventually(logged_too_late)
    assert logged_too_late() == [line]


@work(name="worker.fails_once", retry=Retry(attempts=2, base=0.01))
def fails_once(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise ValueError("not yet")


@work(name="worker.gives_up", atomic=True)
def gives_up() -> None:
    raise Abort("no address")


AGAIN = "(worker.fails_once) failed (attempt 1 of 2), and is tried again at "
EXPIRED = "(worker.quick) is dead (expired, attempt 0 of 3): deadline exceeded"


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize(
    ("kind", "options", "level", "start", "end"),
    [
        (fails_once, {}, "WARNING", AGAIN, " UTC: ValueError: not yet"),
        (gives_up, {}, "ERROR", "(worker.gives_up) is dead (aborted, attempt 1 of 3): no address", ""),
        (quick, {"expires": 0}, "ERROR", EXPIRED, ""),
    ],
    ids=["tried again", "aborted", "never ran"],
)
def test_a_failure_is_logged_with_its_traceback_and_success_and_deferral_are_not(
    caplog, kind, options, level, start, end
):
    handle, ended, deferred = enqueue(kind(), **options), enqueue(quick()), enqueue(waits())
    with running_worker():
        ended.result(timeout=20)
        eventually(lambda: deferred.state().status == "scheduled")
        eventually(lambda: handle.state().status in ("success", "dead"))
    [record] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    line = record.getMessage().splitlines()[0]
    assert record.levelname == level
    if not end:
        assert line == f"Work {handle.id} {start}"
    assert line.startswith(f"Work {handle.id} {start}")
    assert line.endswith(end)
    assert ('raise ValueError("not yet")' in caplog.text) is (level == "WARNING")
