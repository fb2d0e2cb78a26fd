"""Attempts: retries, deferrals, giving up, and what is kept of each."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ayework import Abort, Context, Defer, Reschedule, Retry, WorkState, enqueue, work
from django_ayework.models import Attempt
from django_ayework.testing import now
from tests.app.works import fail

pytestmark = pytest.mark.django_db

STEADY = Retry(attempts=3, base=10, factor=2, jitter=0)


def stated(handle: Any) -> WorkState:
    state = handle.state()
    assert state is not None
    return state


@pytest.fixture
def run(time_travel: Any, drain: Any) -> Any:
    """Run what is due, an hour later each time, until nothing is left."""

    def run() -> list[Any]:
        reports = [drain(raises=False)]
        while reports[-1].ran:
            time_travel(3600)
            reports.append(drain(raises=False))
        return reports[:-1]

    return run


def test_a_failing_work_is_retried_and_then_dead(run: Any) -> None:
    handle = enqueue(fail(message="no luck"))
    reports = run()
    assert [(r.ran, r.retried, r.dead) for r in reports] == [(1, 1, 0), (1, 1, 0), (1, 0, 1)]
    state = stated(handle)
    assert (state.status, state.reason, state.attempt) == ("dead", "exhausted", 3)
    assert state.error == state.last_error == "RuntimeError: no luck"
    assert state.ended_at is not None


def test_it_waits_longer_each_time(drain: Any, time_travel: Any) -> None:
    handle = enqueue(fail(), retry=STEADY)
    waits = []
    for seconds in (10, 20):
        before = now()
        drain(raises=False)
        state = stated(handle)
        assert state.status == "scheduled"
        waits.append((state.start_at - before).total_seconds())
        time_travel(seconds - 1)
        assert drain().ran == 0
        time_travel(1.5)
    assert waits == [pytest.approx(10, abs=0.5), pytest.approx(20, abs=0.5)]


def test_the_last_error_shows_while_it_waits_but_it_is_no_error_yet(drain: Any) -> None:
    handle = enqueue(fail())
    drain(raises=False)
    state = stated(handle)
    assert (state.last_error, state.error, state.reason) == ("RuntimeError: no luck", None, None)
    assert (state.attempt, state.worker, state.ended_at) == (1, None, None)


def test_one_attempt_is_one_attempt(drain: Any) -> None:
    handle = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    assert (stated(handle).status, stated(handle).attempt) == ("dead", 1)


def test_each_failed_attempt_is_kept_with_its_traceback(run: Any) -> None:
    handle = enqueue(fail(message="no luck"))
    run()
    kept = list(Attempt.objects.filter(work_id=handle.id).order_by("number"))
    assert [(attempt.number, attempt.outcome) for attempt in kept] == [
        (1, "failed"),
        (2, "failed"),
        (3, "died"),
    ]
    for attempt in kept:
        assert attempt.error == "RuntimeError: no luck"
        assert "raise RuntimeError(message)" in attempt.traceback
        assert attempt.worker == "drain"
        assert attempt.started_at and attempt.started_at <= attempt.ended_at


def test_the_next_attempt_is_told_of_the_last_error_and_success_forgets_it(run: Any) -> None:
    seen = []

    @work(name="t.attempts.third_time_lucky")
    def lucky(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.last_error))
        if ctx.attempt < 3:
            raise ValueError(f"number {ctx.attempt}")

    handle = enqueue(lucky())
    run()
    assert seen == [(1, None), (2, "ValueError: number 1"), (3, "ValueError: number 2")]
    state = stated(handle)
    assert (state.status, state.attempt, state.error, state.last_error) == ("success", 3, None, None)
    assert Attempt.objects.count() == 2


def test_a_deferral_uses_no_attempt_however_often(drain: Any, time_travel: Any) -> None:
    seen = []

    @work(name="t.attempts.patient", retry=Retry(attempts=2))
    def patient(ctx: Context) -> str:
        seen.append(ctx.attempt)
        if len(seen) <= 5:
            raise Defer(delay=60)
        return "at last"

    handle = enqueue(patient())
    for _ in range(5):
        report = drain()
        assert (report.ran, report.deferred, report.retried) == (1, 1, 0)
        state = stated(handle)
        assert (state.status, state.attempt) == ("scheduled", 0)
        time_travel(61)
    assert drain().succeeded == 1
    assert seen == [1] * 6
    assert stated(handle).result == "at last"
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"deferred"}


def test_a_deferral_between_failures_leaves_the_count_alone(run: Any) -> None:
    seen = []

    @work(name="t.attempts.mixed", retry=Retry(attempts=2))
    def mixed(ctx: Context) -> None:
        seen.append(ctx.attempt)
        raise Defer(delay=1) if len(seen) == 2 else ValueError("no")

    handle = enqueue(mixed())
    run()
    assert seen == [1, 2, 2]
    assert stated(handle).reason == "exhausted"


@pytest.mark.parametrize("offset", [timedelta(minutes=5), timedelta(minutes=-5)])
def test_a_deferral_names_its_moment_and_the_past_means_now(drain: Any, offset: timedelta) -> None:
    moment, ran = now() + offset, []

    @work(name="t.attempts.until")
    def until() -> None:
        ran.append(True)
        if len(ran) == 1:
            raise Defer(run_at=moment)

    handle = enqueue(until())
    drain()
    if offset > timedelta():
        assert (stated(handle).status, stated(handle).start_at) == ("scheduled", moment)
    else:
        assert stated(handle).status == "success"
        assert stated(handle).start_at > moment


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (None, "Abort: Aborted by its handler."),
        ("no card", "no card"),
        (ValueError("no card"), "ValueError: no card"),
    ],
    ids=["none", "text", "exception"],
)
def test_giving_up_is_the_end_at_once(drain: Any, cause: Any, error: str) -> None:
    @work(name="t.attempts.give_up", retry=Retry(attempts=5))
    def give_up() -> None:
        raise Abort(cause)

    handle = enqueue(give_up())
    assert drain().dead == 1
    state = stated(handle)
    assert (state.status, state.reason, state.attempt, state.error) == ("dead", "aborted", 1, error)


def test_a_rescheduling_is_a_retry_at_an_exact_time_and_counts(drain: Any, time_travel: Any) -> None:
    moment, seen = now() + timedelta(hours=1), []

    @work(name="t.attempts.reschedule", retry=Retry(attempts=2, base=5))
    def rescheduled(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.last_error))
        raise Reschedule(run_at=moment, cause=ValueError("closed"))

    handle = enqueue(rescheduled())
    drain()
    state = stated(handle)
    assert (state.status, state.start_at, state.attempt) == ("scheduled", moment, 1)
    assert state.last_error == "ValueError: closed"
    time_travel(3601)
    drain()
    assert seen == [(1, None), (2, "ValueError: closed")]
    assert (stated(handle).status, stated(handle).reason) == ("dead", "exhausted")


@pytest.mark.parametrize(
    "moment",
    [{}, {"delay": 1, "run_at": datetime(2030, 1, 1)}, {"delay": -1}, {"run_at": datetime(2030, 1, 1)}],
    ids=["neither", "both", "negative", "naive"],
)
def test_a_misused_deferral_is_an_ordinary_failure(drain: Any, moment: dict[str, Any]) -> None:
    @work(name="t.attempts.misused", retry=Retry(attempts=1))
    def misused() -> None:
        raise Defer(**moment)

    handle = enqueue(misused())
    drain(raises=False)
    state = stated(handle)
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert state.error is not None
    assert state.error.startswith(("TypeError", "ValueError"))


def test_jitter_shortens_the_wait_at_random(drain: Any) -> None:
    waits = set()
    for _ in range(5):
        handle = enqueue(fail(), retry=Retry(base=1000, max=1000, jitter=0.5))
        before = now()
        drain(raises=False)
        waits.add((stated(handle).start_at - before).total_seconds())
    assert len(waits) == 5
    assert all(499 <= wait <= 1001 for wait in waits)


@work(name="t.attempts.verbose", retry=Retry(attempts=1))
def verbose(number: int) -> None:
    raise ValueError(f"{number} first " + "x" * 2_000_000 + " last")


def test_tracebacks_however_long_are_kept_with_their_beginnings_and_their_ends(drain: Any) -> None:
    """Of so many a database would not take the whole at a time."""
    for number in range(12):
        enqueue(verbose(number=number))
    drain(raises=False)
    kept = list(Attempt.objects.order_by("id").values_list("traceback", flat=True))
    assert len(kept) == 12
    assert all(100_000 < len(text) < 100_100 for text in kept)
    assert all(text.startswith("Traceback") and text.endswith(" last\n") for text in kept)
    assert all(f"ValueError: {number} first" in text for number, text in enumerate(kept))
