"""An async handler is cancelled when its work is to stop, and finds the reason in the signal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from django_ayework import (
    Aborted,
    Context,
    Retry,
    batch_work,
    cancel,
    complete,
    delete_chains,
    enqueue,
    enqueue_many,
    work,
)  # fmt: skip
from django_ayework.define.context import AbortReason
from django_ayework.models import Attempt
from django_ayework.testing import perform, running_worker
from tests.attempts.conftest import renew_soon, take_away
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("stage", "quick_watch")]
NEVER_IN_A_TEST = 60.0


@pytest.fixture
def waiting(stage: Any) -> Any:
    """A work that waits for ever, and notes why it was cancelled."""

    @work(name="attempts.waiting", retry=Retry(attempts=1))
    async def waiting(ctx: Context) -> str:
        stage.started.set()
        try:
            await asyncio.sleep(NEVER_IN_A_TEST)
        except asyncio.CancelledError:
            stage.seen.append(ctx.signal.reason)
            raise
        return "it was never cancelled"

    return waiting


def hand_complete(id: str) -> None:
    complete(id, "by hand")


@pytest.mark.parametrize(
    ("act", "reason", "after", "recorded"),
    [
        (cancel, AbortReason.CANCELLED, ("cancelled", None), "the work was cancelled"),
        (
            hand_complete,
            AbortReason.ALREADY_COMPLETED,
            ("success", "by hand"),
            "the work was completed without its worker",
        ),
        (delete_chains, AbortReason.NOT_FOUND, None, None),
        (take_away, AbortReason.TAKEN_BY_ANOTHER_WORKER, ("scheduled", None), None),
    ],
)
def test_a_handler_is_cancelled_when_its_work_is_taken_and_the_attempt_is_recorded(
    stage, waiting, act: Callable[[str], Any], reason, after, recorded
):
    handle = enqueue(waiting(), retry=Retry(attempts=5))
    with running_worker(concurrency=1) as worker:
        eventually(stage.started.is_set)
        act(handle.id)
        renew_soon(worker)
        eventually(lambda: stage.seen)
        eventually(lambda: not worker._in_flight.all())
    assert stage.seen == [reason]
    state = handle.state()
    assert (state and (state.status, state.result)) == after
    attempts = Attempt.objects.filter(work_id=handle.id, outcome="revoked")
    expected = [] if recorded is None else [(1, worker.id, recorded)]
    assert [(each.number, each.worker, each.error) for each in attempts] == expected
    if act is hand_complete:
        assert state.last_error is None


def test_the_reason_is_there_when_the_time_is_over(stage, waiting):
    handle = enqueue(waiting(), timeout=0.02)
    with running_worker(concurrency=1):
        eventually(lambda: handle.state().status == "dead")
    assert handle.state().error == "AttemptTimeout: the attempt ran longer than its timeout of 0.02 seconds."
    short = work(name="attempts.short", timeout=0.02)(waiting.handler)
    assert type(perform(short()).error).__name__ == "AttemptTimeout"
    assert stage.seen == [AbortReason.TIMEOUT] * 2


def test_the_reason_is_there_when_the_worker_stops(configure, stage, waiting):
    configure(SHUTDOWN_GRACE=0.05)
    handle = enqueue(waiting())
    with running_worker(concurrency=1):
        eventually(stage.started.is_set)
    eventually(lambda: stage.seen)
    assert stage.seen == [AbortReason.SHUTDOWN]
    assert (handle.state().status, handle.state().attempt) == ("pending", 0)


def test_a_handler_whose_work_may_still_be_its_own_goes_on(stage):
    """``error`` says that the lease could not be renewed: nobody has taken the work yet."""
    go = threading.Event()

    @work(name="attempts.goes_on")
    async def goes_on(ctx: Context) -> str:
        stage.started.set()
        while not go.is_set():
            await asyncio.sleep(0.001)
        return str(ctx.signal.reason)

    handle = enqueue(goes_on())
    with running_worker(concurrency=1) as worker:
        eventually(stage.started.is_set)
        worker._in_flight.abort({handle.id: AbortReason.ERROR})
        go.set()
        assert handle.result(timeout=NEVER_IN_A_TEST) == "error"


def test_what_a_handler_returns_after_it_was_cancelled_counts_while_the_work_is_its_own():
    @work(name="attempts.acatches", timeout=0.02)
    async def catches(ctx: Context) -> str:
        try:
            await asyncio.sleep(NEVER_IN_A_TEST)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return f"cleaned up after {ctx.signal.reason}"

    handle = enqueue(catches())
    with running_worker(concurrency=1):
        assert handle.result(timeout=NEVER_IN_A_TEST) == "cleaned up after timeout"


def test_a_handler_that_looks_at_the_signal_is_not_cancelled_as_well(stage):
    @work(name="attempts.looks", retry=Retry(attempts=1))
    async def looks(ctx: Context) -> None:
        stage.started.set()
        try:
            ctx.signal.wait(NEVER_IN_A_TEST)  # the loop does not come to cancel it
            ctx.signal.raise_if_aborted()
        except Aborted as error:
            for _ in range(10):
                await asyncio.sleep(0.001)
            stage.seen.append(error.reason)
            raise

    handle = enqueue(looks())
    with running_worker(concurrency=1):
        eventually(stage.started.is_set)
        cancel(handle.id)
        eventually(lambda: stage.seen)
    assert stage.seen == ["cancelled"]


def test_a_batch_is_cancelled_when_all_of_its_works_are(stage):
    wanted = threading.Event()
    wanted.set()

    @batch_work(name="attempts.abatch", size=2, max_wait=60, retry=Retry(attempts=1))
    async def abatch(items: list[Any]) -> list[str]:
        stage.started.set()
        try:
            await asyncio.sleep(NEVER_IN_A_TEST)
        except asyncio.CancelledError:
            stage.seen.append("too early" if wanted.is_set() else "in time")
            raise
        return ["it was never cancelled"] * len(items)

    first, second = enqueue_many([abatch(number) for number in range(2)])
    with running_worker(concurrency=1) as worker:
        eventually(stage.started.is_set)
        cancel(first.id)
        wanted.clear()
        cancel(second.id)
        eventually(lambda: stage.seen)
        eventually(lambda: not worker._in_flight.all())
    assert stage.seen == ["in time"]
    assert [handle.state().status for handle in (first, second)] == ["cancelled"] * 2
