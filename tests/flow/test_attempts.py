"""Attempts: retries, deferrals, giving up, what is kept of each, ``on_failure``, and the bounds of a life."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Abort, Context, Defer, Reschedule, Retry, WorkFailed, batch_work, enqueue, work
from django_ayework.models import Attempt
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail
from tests.flow.kit import ONCE
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db


def run() -> list[Any]:
    """Run what is due, an hour later each time, until nothing is left; return the reports."""
    reports = [drain(raises=False)]
    while reports[-1].ran:
        time_travel(3600)
        reports.append(drain(raises=False))
    return reports[:-1]


def raising(error: Exception) -> Any:
    """A type whose handler raises this error."""

    def handler() -> None:
        raise error

    return work(name="t.attempts.raising")(handler)


def test_a_failing_work_is_retried_and_then_dead_and_each_attempt_is_kept():
    handle = enqueue(fail(message="no luck"))
    assert [(r.ran, r.retried, r.dead) for r in run()] == [(1, 1, 0), (1, 1, 0), (1, 0, 1)]
    state = handle.state()
    assert (state.status, state.reason, state.attempt) == ("dead", "exhausted", 3)
    assert state.error == state.last_error == "RuntimeError: no luck"
    assert state.ended_at is not None
    kept = list(Attempt.objects.filter(work_id=handle.id).order_by("number"))
    assert [(one.number, one.outcome) for one in kept] == [(1, "failed"), (2, "failed"), (3, "died")]
    for attempt in kept:
        assert (attempt.error, attempt.worker) == ("RuntimeError: no luck", "drain")
        assert "raise RuntimeError(message)" in attempt.traceback
        assert attempt.started_at and attempt.started_at <= attempt.ended_at


@on_sqlite
def test_it_waits_longer_each_time_and_shows_its_last_error():
    handle = enqueue(fail(), retry=Retry(attempts=3, base=10, factor=2, jitter=0))
    for attempt, seconds in ((1, 10), (2, 20)):
        before = now()
        drain(raises=False)
        state, wait = handle.state(), timedelta(seconds=seconds)
        assert (state.status, state.attempt) == ("scheduled", attempt)
        assert before + wait <= state.start_at <= now() + wait
        assert (state.last_error, state.error, state.reason) == ("RuntimeError: no luck", None, None)
        assert (state.worker, state.ended_at) == (None, None)
        time_travel(seconds / 2)
        assert drain().ran == 0
        time_travel(seconds / 2)


@on_sqlite
def test_jitter_shortens_the_wait_at_random():
    handles = [enqueue(fail(), retry=Retry(base=1000, max=1000, jitter=0.5)) for _ in range(5)]
    before = now()
    drain(raises=False)
    starts = [handle.state().start_at for handle in handles]
    assert max(starts) - min(starts) > now() - before, "they differ by more than when they ran"
    assert before + timedelta(seconds=500) <= min(starts)
    assert max(starts) <= now() + timedelta(seconds=1000)


@on_sqlite
def test_the_next_attempt_is_given_the_last_error_and_success_forgets_it():
    seen = []

    @work(name="t.attempts.third_time_lucky")
    def lucky(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.last_error))
        if ctx.attempt < 3:
            raise ValueError(f"number {ctx.attempt}")

    handle = enqueue(lucky())
    run()
    assert seen == [(1, None), (2, "ValueError: number 1"), (3, "ValueError: number 2")]
    state = handle.state()
    assert (state.status, state.attempt, state.error, state.last_error) == ("success", 3, None, None)
    assert Attempt.objects.count() == 2


def test_a_deferral_uses_no_attempt_however_often_and_keeps_the_deadline():
    seen = []

    @work(name="t.attempts.patient", retry=Retry(attempts=2))
    def patient(ctx: Context) -> None:
        seen.append(ctx.attempt)
        raise Defer(delay=60)

    handle = enqueue(patient(), expires=200)
    deadline = handle.state().deadline
    for _ in range(4):
        report = drain()
        assert (report.ran, report.deferred, report.retried) == (1, 1, 0)
        state = handle.state()
        assert (state.status, state.attempt, state.deadline) == ("scheduled", 0, deadline)
        time_travel(61)
    drain()
    assert (seen, handle.state().reason) == ([1] * 4, "expired")
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"deferred"}


@on_sqlite
@pytest.mark.parametrize(
    ("cause", "error"),
    [(None, "Abort: Aborted by its handler."), (ValueError("no card"), "ValueError: no card")],
    ids=["none", "exception"],
)
def test_giving_up_is_the_end_at_once(outcome, cause, error):
    state = outcome(raising(Abort(cause))(), retry=Retry(attempts=5))
    assert (state.status, state.reason, state.attempt, state.completed_by) == ("dead", "aborted", 1, "drain")
    assert (state.result, state.error, state.last_error) == (None, error, error)


def test_a_rescheduling_is_a_retry_at_an_exact_time_and_counts():
    moment = now() + timedelta(hours=1)
    closed = raising(Reschedule(run_at=moment, cause=ValueError("closed")))
    handle = enqueue(closed(), retry=Retry(attempts=2, base=5))
    drain()
    state = handle.state()
    assert (state.status, state.start_at, state.attempt) == ("scheduled", moment, 1)
    assert state.last_error == "ValueError: closed"
    time_travel(3601)
    drain()
    assert (handle.state().status, handle.state().reason) == ("dead", "exhausted")


def test_tracebacks_however_long_are_kept_with_their_beginnings_and_their_ends():
    """Of so many a database would not take the whole at a time."""

    @work(name="t.attempts.verbose", retry=ONCE)
    def verbose(number: int) -> None:
        raise ValueError(f"{number} first " + "x" * 2_000_000 + " last")

    for number in range(12):
        enqueue(verbose(number=number))
    drain(raises=False)
    kept = list(Attempt.objects.order_by("id").values_list("traceback", flat=True))
    assert len(kept) == 12
    assert all(100_000 < len(text) < 100_100 for text in kept)
    assert all(text.startswith("Traceback") and text.endswith(" last\n") for text in kept)
    assert all(f"ValueError: {number} first" in text for number, text in enumerate(kept))


@pytest.mark.parametrize("options", [{}, {"atomic": True}, {"skip_queue": True}], ids=str)
def test_a_type_may_keep_the_attempts_that_succeed(options):
    @work(name="kept", keep_attempts=True, retry=Retry(base=0), **options)
    def kept(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return "done"

    handle, other = enqueue(kept()), enqueue(add(a=1, b=2))
    run()
    attempts = Attempt.objects.order_by("number")
    assert [(one.work_id, one.number, one.outcome, one.error) for one in attempts] == [
        (handle.id, 1, "failed", "ValueError: not yet"),
        (handle.id, 2, "success", ""),
    ]
    state, last = handle.state(), attempts[1]
    assert last.worker == state.completed_by
    assert (last.started_at, last.ended_at) == (state.started_at, state.ended_at)
    assert other.result() == 3, "whose type keeps none"


def test_a_batch_keeps_the_successes_of_its_items():
    @batch_work(name="kept batch", size=2, max_wait=0, keep_attempts=True)
    def together(items: list[Any]) -> list[Any]:
        return [item.input or ValueError("empty") for item in items]

    good, bad = (enqueue(together(text), retry=ONCE) for text in ("a", ""))
    drain(raises=False)
    outcomes = dict(Attempt.objects.values_list("work_id", "outcome"))
    assert outcomes == {good.id: "success", bad.id: "died"}


# --- on_failure -----------------------------------------------------------------------------------------


@on_sqlite
def test_the_type_decides_first(outcome, configure):
    asked: list[Any] = []

    def classify(error: Exception, info: Any) -> str:
        asked.append((str(error), info.id, info.type, info.group_id, info.attempt, info.attempts))
        return "abort"

    configure(ON_FAILURE=lambda error, info: asked.append("system"))
    declared = work(name="t.failures.classified", on_failure=classify)(fail.handler)
    state = outcome(declared(message="400"), retry=Retry(attempts=5))
    assert (state.reason, state.error, state.attempt) == ("aborted", "RuntimeError: 400", 1)
    assert asked == [("400", state.id, "t.failures.classified", state.id, 1, 5)]


LUCK = "RuntimeError: no luck"
UNUSABLE = "ValueError: expected Defer(delay=) to be 0 seconds or more, got: -5."


def broken_hook(error: Exception, info: Any) -> str:
    raise LookupError("classifier down")


@on_sqlite
@pytest.mark.parametrize(
    ("hook", "status", "reason", "attempt", "error"),
    [
        (lambda error, info: "abort", "dead", "aborted", 1, LUCK),
        ("tests.flow.kit.always_abort", "dead", "aborted", 1, LUCK),
        (lambda error, info: "retry", "dead", "exhausted", 1, LUCK),
        (lambda error, info: None, "dead", "exhausted", 1, LUCK),
        (lambda error, info: Defer(delay=15), "scheduled", None, 0, None),
        (lambda error, info: Defer(delay=-5), "dead", "exhausted", 1, UNUSABLE),
        (broken_hook, "dead", "exhausted", 1, LUCK),
    ],
    ids=["abort", "dotted path", "retry", "none", "defer", "no sense", "broken"],
)
@pytest.mark.parametrize("attempts", [1, 2])
def test_the_advice_of_the_system(
    outcome, configure, reported, hook, status, reason, attempt, error, attempts
):
    configure(ON_FAILURE=hook)
    state = outcome(fail(), retry=Retry(attempts=attempts))
    if reason == "exhausted" and attempts > 1:
        status, reason = "scheduled", None
    assert (state.status, state.reason, state.attempt, state.last_error) == (status, reason, attempt, error)
    assert reported == ([("classifier down", "commit")] if hook is broken_hook else [])


@on_sqlite
def test_what_the_handler_raises_itself_wins_and_the_hook_is_not_called(outcome, configure):
    asked: list[Exception] = []
    configure(ON_FAILURE=lambda error, info: asked.append(error) or "retry")
    for error, expected in (
        (Abort("mine"), ("dead", 1)),
        (Defer(delay=60), ("scheduled", 0)),
        (Reschedule(delay=60), ("scheduled", 1)),
    ):
        state = outcome(raising(error)(), retry=Retry(attempts=5))
        assert (state.status, state.attempt, asked) == (*expected, [])


# --- bounds of the whole life, and of one attempt -------------------------------------------------------


def test_at_its_deadline_a_work_still_starts_and_past_it_expires_whatever_its_type(events):
    started, late = (enqueue(add(a=1, b=2), expires=seconds) for seconds in (600, 580))
    unknown = WorkFactory(type="t.gone", deadline=now() + timedelta(seconds=300))
    time_travel(590)
    report = drain()
    assert (report.ran, report.dead, report.succeeded) == (3, 2, 1)
    assert started.result(timeout=0) == 3
    state = late.state()
    assert (state.status, state.reason, state.error) == ("dead", "expired", "deadline exceeded")
    assert state.attempt == Attempt.objects.count() == 0
    kinds = [event.kind for event in events if event.group_id == late.id]
    assert kinds == ["queued", "expired", "group-done"]
    with pytest.raises(WorkFailed, match="deadline exceeded"):
        late.result(timeout=0)
    assert late.group(timeout=0) is None
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


@on_sqlite
def test_a_running_attempt_is_never_stopped_by_a_deadline(outcome):
    @work(name="t.deadlines.late")
    def late(ctx: Context) -> bool:
        time_travel(3600)
        assert ctx.deadline is not None
        return ctx.deadline < now()

    state = outcome(late(), expires=60)
    assert (state.status, state.result) == ("success", True)


@on_sqlite
def test_an_async_handlers_own_timeouts_are_its_own(outcome):
    @work(name="t.deadlines.own_timeout", timeout=20)
    async def own() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)

    assert outcome(own()).error.startswith("TimeoutError")
