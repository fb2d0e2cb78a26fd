"""Attempts: retries, deferrals, giving up, what is kept of each, and what ``on_failure`` advises."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ayework import Abort, Context, Defer, Reschedule, Retry, batch_work, enqueue, work
from django_ayework.models import Attempt
from django_ayework.testing import drain, now, time_travel
from tests.app.works import add, fail
from tests.flow.kit import ONCE

pytestmark = pytest.mark.django_db


def run() -> list[Any]:
    """Run what is due, an hour later each time, until nothing is left; return the reports."""
    reports = [drain(raises=False)]
    while reports[-1].ran:
        time_travel(3600)
        reports.append(drain(raises=False))
    return reports[:-1]


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


def test_it_waits_longer_each_time_and_shows_its_last_error():
    handle = enqueue(fail(), retry=Retry(attempts=3, base=10, factor=2, jitter=0))
    for attempt, seconds in ((1, 10), (2, 20)):
        before = now()
        drain(raises=False)
        state = handle.state()
        assert (state.status, state.attempt) == ("scheduled", attempt)
        assert (state.start_at - before).total_seconds() == pytest.approx(seconds, abs=0.5)
        assert (state.last_error, state.error, state.reason) == ("RuntimeError: no luck", None, None)
        assert (state.worker, state.ended_at) == (None, None)
        time_travel(seconds - 1)
        assert drain().ran == 0
        time_travel(1.5)


def test_jitter_shortens_the_wait_at_random():
    waits = set()
    for _ in range(5):
        handle = enqueue(fail(), retry=Retry(base=1000, max=1000, jitter=0.5))
        before = now()
        drain(raises=False)
        waits.add((handle.state().start_at - before).total_seconds())
    assert len(waits) == 5
    assert all(499 <= wait <= 1001 for wait in waits)


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


def test_a_deferral_uses_no_attempt_however_often():
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
        assert (handle.state().status, handle.state().attempt) == ("scheduled", 0)
        time_travel(61)
    assert drain().succeeded == 1
    assert seen == [1] * 6
    assert handle.state().result == "at last"
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"deferred"}


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (None, "Abort: Aborted by its handler."),
        ("no card", "no card"),
        (ValueError("no card"), "ValueError: no card"),
    ],
    ids=["none", "text", "exception"],
)
def test_giving_up_is_the_end_at_once(outcome, cause, error):
    @work(name="t.attempts.give_up")
    def give_up() -> None:
        raise Abort(cause)

    state = outcome(give_up(), retry=Retry(attempts=5))
    assert (state.status, state.reason, state.attempt, state.completed_by) == ("dead", "aborted", 1, "drain")
    assert (state.result, state.error, state.last_error) == (None, error, error)


def test_a_rescheduling_is_a_retry_at_an_exact_time_and_counts():
    moment, seen = now() + timedelta(hours=1), []

    @work(name="t.attempts.reschedule", retry=Retry(attempts=2, base=5))
    def rescheduled(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.last_error))
        raise Reschedule(run_at=moment, cause=ValueError("closed"))

    handle = enqueue(rescheduled())
    drain()
    state = handle.state()
    assert (state.status, state.start_at, state.attempt) == ("scheduled", moment, 1)
    assert state.last_error == "ValueError: closed"
    time_travel(3601)
    drain()
    assert seen == [(1, None), (2, "ValueError: closed")]
    assert (handle.state().status, handle.state().reason) == ("dead", "exhausted")


@pytest.mark.parametrize(
    "moment",
    [{}, {"delay": 1, "run_at": datetime(2030, 1, 1)}, {"delay": -1}, {"run_at": datetime(2030, 1, 1)}],
    ids=["neither", "both", "negative", "naive"],
)
def test_a_misused_deferral_is_an_ordinary_failure(outcome, moment):
    @work(name="t.attempts.misused")
    def misused() -> None:
        raise Defer(**moment)

    state = outcome(misused())
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert state.error.startswith(("TypeError", "ValueError"))


@work(name="t.attempts.verbose", retry=ONCE)
def verbose(number: int) -> None:
    raise ValueError(f"{number} first " + "x" * 2_000_000 + " last")


def test_tracebacks_however_long_are_kept_with_their_beginnings_and_their_ends():
    """Of so many a database would not take the whole at a time."""
    for number in range(12):
        enqueue(verbose(number=number))
    drain(raises=False)
    kept = list(Attempt.objects.order_by("id").values_list("traceback", flat=True))
    assert len(kept) == 12
    assert all(100_000 < len(text) < 100_100 for text in kept)
    assert all(text.startswith("Traceback") and text.endswith(" last\n") for text in kept)
    assert all(f"ValueError: {number} first" in text for number, text in enumerate(kept))


# --- on_failure -----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("hook", "status", "reason", "attempt", "error"),
    [
        (lambda error, info: "abort", "dead", "aborted", 1, LUCK),
        ("tests.flow.kit.always_abort", "dead", "aborted", 1, LUCK),
        (lambda error, info: "retry", "dead", "exhausted", 1, LUCK),
        (lambda error, info: None, "dead", "exhausted", 1, LUCK),
        (lambda error, info: Defer(delay=15), "scheduled", None, 0, None),
        (lambda error, info: Defer(delay=-5), "dead", "exhausted", 1, UNUSABLE),
    ],
    ids=["abort", "dotted path", "retry", "none", "defer", "no sense"],
)
@pytest.mark.parametrize("attempts", [1, 2])
def test_the_advice_of_the_system(outcome, configure, hook, status, reason, attempt, error, attempts):
    configure(ON_FAILURE=hook)
    state = outcome(fail(), retry=Retry(attempts=attempts))
    if reason == "exhausted" and attempts > 1:
        status, reason = "scheduled", None
    assert (state.status, state.reason, state.attempt, state.last_error) == (status, reason, attempt, error)


@pytest.mark.parametrize(
    "error", [Abort("mine"), Defer(delay=60), Reschedule(delay=60)], ids=["abort", "defer", "reschedule"]
)
def test_what_the_handler_raises_itself_wins_and_the_hook_is_not_called(outcome, configure, error):
    asked: list[Exception] = []
    configure(ON_FAILURE=lambda error, info: asked.append(error) or "retry")

    @work(name="t.failures.explicit")
    def explicit() -> None:
        raise error

    state = outcome(explicit(), retry=Retry(attempts=5))
    assert asked == []
    assert state.status == ("dead" if isinstance(error, Abort) else "scheduled")
    assert state.attempt == (0 if isinstance(error, Defer) else 1)


def test_a_classifier_that_raises_is_reported_and_advises_nothing(outcome, configure, reported):
    def broken(error: Exception, info: Any) -> str:
        raise LookupError("classifier down")

    configure(ON_FAILURE=broken)
    state = outcome(fail(), retry=Retry(attempts=2))
    assert (state.status, state.attempt, state.last_error) == ("scheduled", 1, "RuntimeError: no luck")
    assert reported == [("classifier down", "commit")]


@pytest.mark.parametrize("options", [{}, {"atomic": True}, {"skip_queue": True}], ids=str)
def test_a_type_may_keep_the_attempts_that_succeed(options):
    tries: list[int] = []

    @work(name="kept", keep_attempts=True, retry=Retry(base=0), **options)
    def kept() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "done"

    handle = enqueue(kept())
    run()
    attempts = Attempt.objects.filter(work_id=handle.id).order_by("number")
    assert [(one.number, one.outcome, one.error) for one in attempts] == [
        (1, "failed", "ValueError: not yet"),
        (2, "success", ""),
    ]
    state, last = handle.state(), attempts[1]
    assert last.worker == state.completed_by
    assert (last.started_at, last.ended_at) == (state.started_at, state.ended_at)


def test_other_types_keep_no_successes_and_a_batch_keeps_those_of_its_items():
    @batch_work(name="kept batch", size=2, max_wait=0, keep_attempts=True)
    def together(items: list[Any]) -> list[Any]:
        return [item.input or ValueError("empty") for item in items]

    other = enqueue(add(a=1, b=2))
    good, bad = (enqueue(together(text), retry=ONCE) for text in ("a", ""))
    drain(raises=False)
    assert not Attempt.objects.filter(work_id=other.id).exists()
    outcomes = dict(Attempt.objects.values_list("work_id", "outcome"))
    assert outcomes == {good.id: "success", bad.id: "died"}
