"""Bounds: of one attempt (``timeout``), and of the whole life (``expires``, ``deadline``)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from django_ayework import AttemptTimeout, Context, Defer, Retry, WorkFailed, WorkState, enqueue, work
from django_ayework.define.handles import WorkEvent
from django_ayework.models import Attempt
from django_ayework.testing import now
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail

ONCE = Retry(attempts=1)


def stated(handle: Any) -> WorkState:
    state = handle.state()
    assert state is not None
    return state


# The whole life


@pytest.mark.django_db
def test_a_work_past_its_deadline_is_not_started(
    drain: Any, time_travel: Any, events: list[WorkEvent]
) -> None:
    handle = enqueue(add(a=1, b=2), expires=60)
    time_travel(61)
    report = drain()
    assert (report.ran, report.dead, report.succeeded) == (1, 1, 0)
    state = stated(handle)
    assert (state.status, state.reason, state.error) == ("dead", "expired", "deadline exceeded")
    assert state.attempt == 0
    assert [event.kind for event in events] == ["queued", "expired", "group-done"]
    assert Attempt.objects.count() == 0
    with pytest.raises(WorkFailed, match="deadline exceeded"):
        handle.result(timeout=0)
    assert handle.group(timeout=0) is None


@pytest.mark.django_db
def test_at_its_deadline_a_work_still_starts(drain: Any, time_travel: Any) -> None:
    handle = enqueue(add(a=1, b=2), expires=60)
    time_travel(59)
    drain()
    assert handle.result(timeout=0) == 3


@pytest.mark.django_db
def test_a_deadline_that_has_passed_when_it_is_queued_expires_it(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2), deadline=now() - timedelta(seconds=1))
    drain()
    assert stated(handle).reason == "expired"


@pytest.mark.django_db
def test_a_work_of_an_unknown_type_expires_as_well(drain: Any, time_travel: Any) -> None:
    row = WorkFactory(type="t.gone", deadline=now() + timedelta(seconds=30))
    drain()
    time_travel(31)
    drain()
    row.refresh_from_db()
    assert (row.status, row.reason) == ("dead", "expired")


@pytest.mark.django_db
def test_a_retry_that_would_start_too_late_expires_instead(drain: Any, events: list[WorkEvent]) -> None:
    handle = enqueue(fail(), expires=60, retry=Retry(attempts=5, base=61, max=61, jitter=0))
    report = drain(raises=False)
    assert (report.ran, report.dead, report.retried) == (1, 1, 0)
    state = stated(handle)
    assert (state.status, state.reason, state.attempt) == ("dead", "expired", 1)
    assert state.error == "deadline exceeded before a retry of: RuntimeError: no luck"
    assert [event.kind for event in events] == ["queued", "started", "expired", "group-done"]
    assert Attempt.objects.get().traceback


@pytest.mark.django_db
def test_a_retry_within_the_deadline_is_made(drain: Any) -> None:
    handle = enqueue(fail(), expires=60, retry=Retry(attempts=5, base=50, max=50, jitter=0))
    assert drain(raises=False).retried == 1
    assert stated(handle).status == "scheduled"


@pytest.mark.django_db
def test_without_attempts_left_it_is_exhausted_rather_than_expired(drain: Any) -> None:
    handle = enqueue(fail(), expires=1, retry=Retry(attempts=1, base=100, max=100))
    drain(raises=False)
    assert stated(handle).reason == "exhausted"


@pytest.mark.django_db
def test_a_running_attempt_is_never_stopped_by_a_deadline(drain: Any, time_travel: Any) -> None:
    @work(name="t.deadlines.late")
    def late(ctx: Context) -> bool:
        time_travel(3600)
        assert ctx.deadline is not None
        return ctx.deadline < now()

    handle = enqueue(late(), expires=60)
    drain()
    assert stated(handle).status == "success"
    assert handle.result(timeout=0) is True


@pytest.mark.django_db
def test_a_deadline_travels_with_deferrals(drain: Any, time_travel: Any) -> None:
    @work(name="t.deadlines.defers")
    def defers() -> None:
        raise Defer(delay=40)

    handle = enqueue(defers(), expires=60)
    deadline = stated(handle).deadline
    for _ in range(2):
        drain()
        assert stated(handle).deadline == deadline
        time_travel(41)
    drain()
    assert stated(handle).reason == "expired"


# One attempt


@pytest.mark.django_db(transaction=True)
def test_an_async_handler_is_cancelled_for_real(running_worker: Any) -> None:
    told: list[Any] = []

    @work(name="t.deadlines.async", timeout=0.1, retry=ONCE)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            told.append(("cancelled", ctx.signal.reason))
            raise

    handle = enqueue(slow())
    started = time.monotonic()
    with running_worker(concurrency=1):
        assert handle.group(timeout=20) is None
    assert time.monotonic() - started < 15
    state = stated(handle)
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert state.error == "AttemptTimeout: the attempt ran longer than its timeout of 0.1 seconds."
    assert [how for how, _ in told] == ["cancelled"]


@pytest.mark.django_db(transaction=True)
def test_an_async_handlers_own_timeouts_are_its_own(running_worker: Any) -> None:
    @work(name="t.deadlines.own_timeout", timeout=20, retry=ONCE)
    async def own() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)

    handle = enqueue(own())
    with running_worker(concurrency=1):
        handle.group(timeout=20)
    assert (stated(handle).error or "").startswith("TimeoutError")


@pytest.mark.django_db(transaction=True)
def test_a_sync_handler_is_told_and_a_late_return_still_succeeds(running_worker: Any) -> None:
    @work(name="t.deadlines.sync", timeout=0.1, retry=ONCE)
    def slow(ctx: Context) -> list[Any]:
        fired = ctx.signal.wait(20)
        return [fired, ctx.signal.aborted, str(ctx.signal.reason)]

    handle = enqueue(slow())
    with running_worker(concurrency=1):
        assert handle.result(timeout=20) == [True, True, "timeout"]


@pytest.mark.django_db(transaction=True)
def test_a_sync_handler_that_heeds_the_signal_fails_with_a_timeout(running_worker: Any) -> None:
    @work(name="t.deadlines.heeds", timeout=0.1, retry=ONCE)
    def heeds(ctx: Context) -> None:
        ctx.signal.wait(20)
        ctx.signal.raise_if_aborted()

    handle = enqueue(heeds())
    with running_worker(concurrency=1):
        handle.group(timeout=20)
    error = stated(handle).error
    assert error is not None and error.startswith(AttemptTimeout.__name__)


@pytest.mark.django_db(transaction=True)
def test_a_timeout_is_an_ordinary_failure_that_is_retried(running_worker: Any) -> None:
    @work(name="t.deadlines.retried", timeout=0.1, retry=Retry(attempts=3, base=0))
    async def slow_once(ctx: Context) -> int:
        await asyncio.sleep(30 if ctx.attempt == 1 else 0)
        return ctx.attempt

    handle = enqueue(slow_once())
    with running_worker(concurrency=1):
        assert handle.result(timeout=20) == 2
