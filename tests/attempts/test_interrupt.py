"""``interrupt=True``: the abort is raised inside a plain handler, and leaves nothing behind."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_ayework import Aborted, Context, Retry, cancel, complete, enqueue, enqueue_many, work
from django_ayework.define.context import AbortReason
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Work
from django_ayework.store import transitions
from django_ayework.testing import drain, now, running_worker
from django_ayework.worker import interruption
from django_ayework.worker.worker import Worker
from tests.app.models import Order
from tests.attempts import works
from tests.attempts.works import (
    after,
    be_busy,
    busy,
    catches,
    catches_in_transaction,
    for_a_while,
    holding,
    late,
    querying,
    staged,
    stubborn,
)
from tests.processes import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stage", "quick_watch"),
    # An interruption that lands in a finaliser, as drivers have them, is printed and goes no further.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TIMED_OUT = "AttemptTimeout: the attempt ran longer than its timeout of 60.0 seconds."


@contextmanager
def run_out_of_time(request: Any) -> Iterator[Any]:
    """Run a work until it is busy, then let its time be over; the next works run in the same thread."""
    handle = enqueue(request)
    with running_worker(concurrency=1) as worker:
        eventually(works.stage.started.is_set)
        worker._in_flight.abort({handle.id: AbortReason.TIMEOUT})
        yield handle


def ended(handle: Any) -> Any:
    return eventually(lambda: (state := handle.state()).status in ("success", "dead", "cancelled") and state)


def notes() -> list[str]:
    return list(Order.objects.order_by("pk").values_list("reference", flat=True))


# When it comes


def test_a_handler_that_runs_out_of_time_is_interrupted(stage):
    handle = enqueue(busy(), timeout=0.02)
    with running_worker(concurrency=1):
        state = ended(handle)
    assert state.reason == "exhausted"
    assert state.error == "AttemptTimeout: the attempt ran longer than its timeout of 0.02 seconds."
    assert stage.seen == [("AttemptTimeout", None)]
    assert "in be_busy" in Attempt.objects.get().traceback


def test_it_is_tried_again_like_after_any_failure(stage):
    handle = enqueue(busy(), timeout=0.02, retry=Retry(attempts=2, base=0, jitter=0))
    with running_worker(concurrency=1):
        assert ended(handle).attempt == 2
    assert stage.seen == [("AttemptTimeout", None)] * 2


def test_without_it_a_handler_that_returns_late_succeeds():
    handle = enqueue(late())
    with running_worker(concurrency=1):
        assert handle.result(timeout=20) == "late"


@pytest.mark.parametrize(
    ("act", "reason", "status"),
    [(cancel, "cancelled", "cancelled"), (complete, "already_completed", "success")],
)
def test_a_handler_whose_work_is_taken_by_hand_is_interrupted(configure, stage, act, reason, status):
    advice: list[object] = []
    configure(ON_FAILURE=lambda error, info: advice.append(error))
    handle = enqueue(busy())
    with running_worker(concurrency=1):
        eventually(stage.started.is_set)
        act(handle.id)
        eventually(lambda: stage.seen)
    assert stage.seen == [("Aborted", reason)]
    assert (handle.state().status, handle.state().last_error) == (status, None)
    assert not advice, "nobody is asked about a work that is lost"


def test_a_handler_whose_work_went_to_another_worker_is_interrupted(stage):
    handle = enqueue(busy(), retry=Retry(attempts=5))
    with running_worker(concurrency=1) as worker:
        eventually(stage.started.is_set)
        with transaction.atomic():  # or this very worker might claim it once more
            Work.objects.update(leased_until=now() - timedelta(seconds=1))
            assert reclaim() == 1
            Work.objects.update(status="scheduled", run_at=now() + timedelta(hours=1))
        for delivery in worker._in_flight.all():
            delivery.renewed_at = float("-inf")
        eventually(lambda: stage.seen)
    assert stage.seen == [("Aborted", "taken_by_another_worker")]
    assert (handle.state().status, handle.state().attempt) == ("scheduled", 1)


def test_a_worker_that_stops_is_not_held_up(configure, stage):
    configure(SHUTDOWN_GRACE=0.05)
    before = set(threading.enumerate())
    handle = enqueue(busy())
    with running_worker(concurrency=1):
        eventually(stage.started.is_set)
    assert stage.seen == [("Aborted", "shutdown")]
    assert (handle.state().status, handle.state().attempt) == ("pending", 0)
    eventually(lambda: set(threading.enumerate()) <= before, seconds=5)


def test_a_handler_that_stops_when_its_worker_does_has_not_failed(configure, stage, monkeypatch):
    """Even if it is quicker than the worker is in giving its work back."""
    configure(SHUTDOWN_GRACE=0.05)

    @work(name="attempts.case", retry=Retry(attempts=1))
    def stops(ctx: Context) -> None:
        stage.started.set()
        ctx.signal.wait(60)
        ctx.signal.raise_if_aborted()

    def release_late(*args: Any) -> int:
        eventually(lambda: not threads_of_slots_are_busy(worker))
        return release(*args)

    release = transitions.release
    handle = enqueue(stops())
    with running_worker(concurrency=1) as worker:
        eventually(stage.started.is_set)
        monkeypatch.setattr(transitions, "release", release_late)
    assert (handle.state().status, handle.state().attempt) == ("pending", 0)
    assert not Attempt.objects.exists()


def threads_of_slots_are_busy(worker: Worker) -> bool:
    return bool(worker._executor.free < worker.concurrency)


def test_a_handler_that_catches_it_is_interrupted_again(stage, monkeypatch):
    """So that no ``except Exception`` in a loop keeps a slot for ever."""
    monkeypatch.setattr(interruption, "AGAIN_AFTER", 0.02)
    with run_out_of_time(stubborn()) as handle:
        assert handle.result(timeout=20) == "gave in"
    assert stage.seen == ["again"] * 3


def test_drain_has_nobody_who_could_interrupt(stage):
    @work(name="attempts.case", interrupt=True, timeout=0)
    def brief() -> str:
        return "done"

    handle = enqueue(brief())
    drain()
    assert handle.state().result == "done"


def test_a_middleware_meets_it_as_an_error_of_the_handler(stage):
    def tell(ctx: Context, call_next: Any) -> Any:
        try:
            return call_next()
        except Aborted as error:
            stage.seen.append(f"middleware: {error.reason}")
            raise

    async def atell(ctx: Context, call_next: Any) -> Any:
        try:
            return await call_next()
        finally:
            stage.seen.append("async middleware")

    declared = work(name="attempts.case", interrupt=True, middleware=[tell, atell])(lambda: be_busy())
    handle = enqueue(declared())
    with running_worker(concurrency=1):
        eventually(stage.started.is_set)
        cancel(handle.id)
        eventually(lambda: len(stage.seen) == 2)
    assert stage.seen == ["async middleware", "middleware: cancelled"]


# Transactions and connections


def test_the_next_work_in_the_thread_gets_a_connection_of_its_own(stage):
    with run_out_of_time(querying()) as handle:
        assert ended(handle).error == TIMED_OUT
        assert enqueue(after()).result(timeout=20) == "ayework-slot-0"
    first, second = stage.seen
    assert first is not second
    assert first.connection is None or first.closed_in_transaction
    assert notes() == ["after"]


def test_what_it_had_in_its_hands_goes_when_it_has_ended(stage):
    """A session that was just being opened would else be the database's until a garbage collection."""
    gc.collect()
    gc.disable()
    try:
        with run_out_of_time(holding()) as handle:
            assert ended(handle).error == TIMED_OUT
            eventually(lambda: stage.seen[0]() is None)
    finally:
        gc.enable()


def test_one_that_catches_it_may_succeed(stage):
    with run_out_of_time(catches()) as handle:
        assert handle.result(timeout=20) == "caught"
        enqueue(after()).result(timeout=20)
    assert notes() == ["caught", "after"]


def test_an_atomic_work_that_catches_it_fails_all_the_same(stage):
    """Nobody can tell what its transaction would commit."""
    with run_out_of_time(catches_in_transaction()) as handle:
        assert ended(handle).error == TIMED_OUT
        enqueue(after()).result(timeout=20)
    assert notes() == ["after"]


def test_what_complete_had_written_is_undone():
    with run_out_of_time(staged()) as handle:
        assert ended(handle).error == TIMED_OUT
        enqueue(after()).result(timeout=20)
    assert notes() == ["prepared", "after"]


@pytest.mark.races
def test_works_that_are_interrupted_anywhere_disturb_no_other(monkeypatch):
    """Some end, some do not; whichever, exactly what they committed is there, and threads live on."""
    from django_ayework.worker import worker as worker_module

    monkeypatch.setattr(worker_module, "LOOK_EVERY", 0.0005)
    shuffled = random.Random(7)
    handles = enqueue_many([for_a_while(turns=shuffled.randrange(6)) for _ in range(300)])
    with running_worker(concurrency=3):
        states = [ended(handle) for handle in handles]
        assert enqueue(after()).result(timeout=20).startswith("ayework-slot-")
    succeeded = [state for state in states if state.status == "success"]
    errors = {state.error for state in states if state.status == "dead"}
    assert errors == {"AttemptTimeout: the attempt ran longer than its timeout of 0.0 seconds."}
    assert len(succeeded) < 300
    ended_ones = [note for note in notes() if note.startswith("ended")]
    assert len(succeeded) <= len(ended_ones) <= 300
    assert "half" not in notes()
