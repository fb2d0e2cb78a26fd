"""Bounds: of one attempt (``timeout``), and of the whole life (``expires``, ``deadline``)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from django_ayework import AttemptTimeout, Context, Defer, Retry, WorkFailed, enqueue, work
from django_ayework.models import Attempt
from django_ayework.testing import drain, now, running_worker, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail
from tests.flow.kit import ONCE

pytestmark = pytest.mark.django_db


# --- the whole life -------------------------------------------------------------------------------------


def test_a_work_past_its_deadline_is_not_started(events):
    handle = enqueue(add(a=1, b=2), expires=60)
    time_travel(61)
    report = drain()
    assert (report.ran, report.dead, report.succeeded) == (1, 1, 0)
    state = handle.state()
    assert (state.status, state.reason, state.error) == ("dead", "expired", "deadline exceeded")
    assert state.attempt == Attempt.objects.count() == 0
    assert [event.kind for event in events] == ["queued", "expired", "group-done"]
    with pytest.raises(WorkFailed, match="deadline exceeded"):
        handle.result(timeout=0)
    assert handle.group(timeout=0) is None


def test_at_its_deadline_a_work_still_starts_and_past_it_expires_whatever_its_type():
    handle = enqueue(add(a=1, b=2), expires=60)
    late = enqueue(add(a=1, b=2), deadline=now() - timedelta(seconds=1))
    unknown = WorkFactory(type="t.gone", deadline=now() + timedelta(seconds=30))
    time_travel(59)
    drain()
    assert handle.result(timeout=0) == 3
    assert late.state().reason == "expired"
    unknown.refresh_from_db()
    assert (unknown.status, unknown.reason) == ("dead", "expired")


def test_a_retry_that_would_start_too_late_expires_instead(events):
    handle = enqueue(fail(), expires=60, retry=Retry(attempts=5, base=61, max=61, jitter=0))
    report = drain(raises=False)
    assert (report.ran, report.dead, report.retried) == (1, 1, 0)
    state = handle.state()
    assert (state.status, state.reason, state.attempt) == ("dead", "expired", 1)
    assert state.error == "deadline exceeded before a retry of: RuntimeError: no luck"
    assert [event.kind for event in events] == ["queued", "started", "expired", "group-done"]
    assert Attempt.objects.get().traceback


def test_a_running_attempt_is_never_stopped_by_a_deadline():
    @work(name="t.deadlines.late")
    def late(ctx: Context) -> bool:
        time_travel(3600)
        assert ctx.deadline is not None
        return ctx.deadline < now()

    handle = enqueue(late(), expires=60)
    drain()
    assert handle.state().status == "success"
    assert handle.result(timeout=0) is True


def test_a_deadline_travels_with_deferrals():
    @work(name="t.deadlines.defers")
    def defers() -> None:
        raise Defer(delay=40)

    handle = enqueue(defers(), expires=60)
    deadline = handle.state().deadline
    for _ in range(2):
        drain()
        assert handle.state().deadline == deadline
        time_travel(41)
    drain()
    assert handle.state().reason == "expired"


# --- one attempt ----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_async_handlers_own_timeouts_are_its_own():
    @work(name="t.deadlines.own_timeout", timeout=20, retry=ONCE)
    async def own() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)

    handle = enqueue(own())
    with running_worker(concurrency=1):
        handle.group(timeout=20)
    assert handle.state().error.startswith("TimeoutError")


@pytest.mark.django_db(transaction=True)
def test_a_sync_handler_sees_the_signal_and_fails_if_it_heeds_it():
    seen: list[Any] = []

    @work(name="t.deadlines.sync", timeout=0.1, retry=ONCE)
    def slow(ctx: Context) -> None:
        seen.extend([ctx.signal.wait(20), ctx.signal.aborted, str(ctx.signal.reason)])
        ctx.signal.raise_if_aborted()

    handle = enqueue(slow())
    with running_worker(concurrency=1):
        handle.group(timeout=20)
    assert seen == [True, True, "timeout"]
    assert handle.state().status == "dead"
    assert handle.state().error.startswith(AttemptTimeout.__name__)
