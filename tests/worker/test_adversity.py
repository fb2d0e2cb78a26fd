"""What a worker does while something is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.utils.connection import ConnectionDoesNotExist

from django_ayework import Retry, enqueue, enqueue_many, schedule
from django_ayework.define.schedules import schedules
from django_ayework.models import Work, WorkerProcess
from django_ayework.signals import work_succeeded
from django_ayework.store import claims, transitions
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import in_flight as leases_module
from django_ayework.worker import worker as worker_module
from django_ayework.worker.worker import Worker
from tests.processes import eventually
from tests.worker.kit import Flaky
from tests.worker.works import hold_async, notes_progress, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


def test_what_one_queue_gave_is_run_although_the_next_cannot_be_claimed_from(stage, monkeypatch):
    claim = claims.claim

    def claim_or_fail(queue: str, *args):
        if queue == "broken":
            raise OperationalError("canceling statement due to lock timeout")
        return claim(queue, *args)

    monkeypatch.setattr(claims, "claim", claim_or_fail)
    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    enqueue_many([quick(number=number) for number in range(20)], queue="good")
    enqueue(quick(number=99), queue="broken")
    with running_worker(concurrency=4):
        eventually(lambda: Work.objects.filter(status="success").count() == 20)
    assert set(Work.objects.filter(queue="good").values_list("delivery", flat=True)) == {1}


def test_a_work_that_cannot_be_offered_to_others_holds_up_nothing(stage, monkeypatch):
    def fail(*args):
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    monkeypatch.setattr(transitions, "release", fail)
    WorkFactory(type="other.app", priority=5)
    handles = enqueue_many([quick(number=number) for number in range(5)])
    with running_worker(concurrency=8):
        for handle in handles:
            handle.result(timeout=20)
    assert set(Work.objects.filter(type="worker.quick").values_list("delivery", flat=True)) == {1}
    Work.objects.filter(type="other.app").delete()


def test_a_work_the_engine_itself_fails_on_is_left_to_its_lease(stage, monkeypatch):
    """It is not renewed for ever: another delivery may go well."""
    from django_ayework.worker import executor

    run = Flaky(executor.run, 1, error=AssertionError("a bug of the engine"))
    monkeypatch.setattr(executor, "run", run)
    handle = enqueue(quick(), retry=Retry(attempts=2))
    with running_worker(concurrency=1) as worker:
        eventually(lambda: run.left == 0 and not worker._in_flight.all())
        Work.objects.filter(id=handle.id, status="running").update(leased_until="2020-01-01T00:00:00Z")
        handle.result(timeout=20)
    assert Work.objects.get(id=handle.id).attempt == 2


@pytest.mark.parametrize(("kind", "name"), [(quick, "ayework-slot"), (hold_async, "ayework-async")])
def test_a_worker_keeps_its_slots_while_the_system_starts_no_thread(stage, monkeypatch, caplog, kind, name):
    """In a container whose limit of processes is reached, say."""
    start = threading.Thread.start
    refused: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and len(refused) < 6:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    handles = enqueue_many([kind(number=number) for number in range(4)])
    stage.go.set()
    with running_worker(concurrency=2) as worker:
        for handle in handles:
            handle.result(timeout=20)
        eventually(lambda: worker._executor.free == 2)
    assert len(refused) == 6
    assert caplog.text.count("waits for another: can't start new thread") == 1


def test_a_duty_that_fails_is_done_again(stage, monkeypatch):
    beats = []

    def beat() -> None:
        beats.append(1)
        raise OperationalError("gone")

    worker = Worker()
    duty = next(duty for duty in worker._maintenance._duties if duty.act == worker._maintenance.beat)
    duty.act, duty.every, duty.due_at = beat, 0.0, 0.0
    with worker:
        eventually(lambda: len(beats) > 1)


def test_a_database_that_stays_away_is_logged_with_a_traceback_once(stage, monkeypatch, caplog):
    """By the claiming thread, and by the thread that renews leases."""
    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    monkeypatch.setattr(leases_module, "TICK", 0.01)
    with running_worker(concurrency=1) as worker:
        away = Flaky(worker._claimer.poll, 4)
        monkeypatch.setattr(worker._claimer, "poll", away)
        renew = worker._leases.turn = Flaky(worker._leases.turn, 4)
        eventually(lambda: not away.left and not renew.left)
    for line in ("the claiming loop failed", "the leases could not be renewed"):
        at_length = [bool(record.exc_info) for record in caplog.records if line in record.getMessage()]
        assert at_length == [True, False, False, False]


def test_a_worker_that_was_forgotten_is_back_with_its_next_heartbeat(stage):
    with running_worker(name="back") as worker:
        eventually(lambda: WorkerProcess.objects.filter(id=worker.id).delete()[0])
        worker._maintenance.beat()
        assert WorkerProcess.objects.get().name == "back"


def test_the_last_progress_of_a_quick_work_is_kept(stage):
    handle = enqueue(notes_progress())
    with running_worker():
        handle.result(timeout=20)
    assert handle.state().progress == {"done": 3, "total": 3, "note": "all"}


KEPT: list[Any] = []


def in_a_block() -> Generator[None]:
    with transaction.atomic():
        Work.objects.filter(type="never").delete()
        yield


def leave_a_block_open() -> None:
    KEPT.append(in_a_block())
    next(KEPT[-1])


def forget_kept() -> None:
    """Close what was kept; its block ends no transaction of anybody's, but fails."""
    while KEPT:
        with pytest.raises(ConnectionDoesNotExist):
            KEPT.pop().close()


def switch_autocommit_off() -> None:
    transaction.set_autocommit(False)
    Work.objects.count()


@pytest.mark.parametrize("spoil", [leave_a_block_open, switch_autocommit_off])
def test_a_receiver_that_leaves_a_transaction_open_costs_no_outcome(
    stage: Any, caplog: Any, spoil: Callable[[], None]
) -> None:
    once = iter([spoil])

    def receive(**more: Any) -> None:
        next(once, lambda: None)()

    work_succeeded.connect(receive)
    try:
        with running_worker(concurrency=2):
            for _ in range(3):
                for handle in enqueue_many([quick(number=number) for number in range(5)]):
                    handle.result(timeout=20)
    finally:
        work_succeeded.disconnect(receive)
        forget_kept()
    assert set(Work.objects.values_list("status", "delivery")) == {("success", 1)}
    assert caplog.text.count("has left a transaction open in a thread of the engine") == 1


def test_a_function_that_leaves_a_transaction_open_stops_no_schedule(stage: Any, caplog: Any) -> None:
    def run() -> Any:
        if not KEPT:
            leave_a_block_open()
        return quick(number=1)

    schedule(name="spoils", every=1, run=run)
    try:
        with running_worker():
            eventually(lambda: Work.objects.filter(status="success").count() >= 3)
    finally:
        schedules.unregister("spoils")
        forget_kept()
    assert caplog.text.count("has left a transaction open in a thread of the engine") == 1
