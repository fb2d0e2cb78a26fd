"""What follows from how an attempt ended: retry, defer, expire, or die."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_ayework.errors import Abort, Defer, Reschedule, did_you_mean
from django_ayework.rules.durations import later, require_aware, seconds
from django_ayework.rules.retry import RetryPolicy, backoff
from django_ayework.rules.states import Outcome, Reason, Status

# --- deadlines ---
# The wall-clock bound on a work's whole life, judged before a start and before a retry only.


def resolve_deadline(now: datetime, expires: float | None, deadline: datetime | None) -> datetime | None:
    """Return when the work expires: an explicit ``deadline`` wins over ``expires`` seconds from now."""
    if deadline is not None:
        return deadline
    return None if expires is None else later(now, expires)


def has_expired(deadline: datetime | None, at: datetime) -> bool:
    """Tell whether a start at this moment would be too late; at the deadline itself it is not.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> has_expired(noon, noon), has_expired(None, noon), has_expired(noon, noon.replace(second=1))
    (False, False, True)
    """
    return deadline is not None and at > deadline


# --- verdicts ---
# What follows from how an attempt ended: one decision point for every kind of failure.

MAX_ERROR_LENGTH = 10_000
MAX_TRACEBACK_LENGTH = 100_000
WORKER_LOST = "worker lost"
DEADLINE_EXCEEDED = "deadline exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDecision:
    """What becomes of a work whose attempt did not succeed.

    ``run_at`` is when it comes back (None when it is dead); ``counts`` tells whether the attempt is spent.
    """

    status: Status
    outcome: Outcome
    error: str
    run_at: datetime | None = None
    reason: Reason | None = None
    counts: bool = True

    @property
    def will_retry(self) -> bool:
        """Whether the work comes back."""
        return self.status is not Status.DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryInput:
    """The facts a failure is judged by: which attempt it was, the policy, the deadline, and the moment."""

    attempt: int
    policy: RetryPolicy
    deadline: datetime | None
    now: datetime
    random: float


def judge(error: BaseException, advice: object, retry_input: RetryInput) -> AttemptDecision:
    """Decide a failed attempt; what the handler raised wins over ``advice``, the answer of ``on_failure``.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> first = RetryInput(attempt=1, policy=RetryPolicy(jitter=0), deadline=None, now=noon, random=0.0)
    >>> judge(ValueError("no"), None, first).run_at.second
    1
    >>> judge(Abort("no card"), None, first).reason
    <Reason.ABORTED: 'aborted'>
    """
    for word in (error, advice):
        if isinstance(word, Defer):
            return defer(word, error_text(error), retry_input)
        if isinstance(word, Abort) or word == "abort":
            return die(Reason.ABORTED, abort_text(error))
        if isinstance(word, Reschedule):
            return retry_at(moment(word, retry_input.now), reschedule_text(word), retry_input)
    wait = backoff(retry_input.attempt, retry_input.policy, retry_input.random)
    return retry_at(later(retry_input.now, wait), error_text(error), retry_input)


def judge_lost(retry_input: RetryInput) -> AttemptDecision:
    """Decide a work whose lease lapsed: at once again, or dead when its attempts are used up."""
    if retry_input.attempt >= retry_input.policy.attempts:
        return die(Reason.EXHAUSTED, WORKER_LOST, Outcome.LOST)
    return AttemptDecision(
        status=Status.PENDING, outcome=Outcome.LOST, error=WORKER_LOST, run_at=retry_input.now
    )


def expire(error: str = DEADLINE_EXCEEDED) -> AttemptDecision:
    """Decide a work that is past its deadline."""
    return die(Reason.EXPIRED, error)


def die(reason: Reason, error: str, outcome: Outcome = Outcome.DIED) -> AttemptDecision:
    """Return the verdict of an end without success."""
    return AttemptDecision(status=Status.DEAD, outcome=outcome, error=error, reason=reason)


def defer(word: Defer, error: str, retry_input: RetryInput) -> AttemptDecision:
    """Return the verdict of a deferral: later, with the attempt given back."""
    run_at = max(moment(word, retry_input.now), retry_input.now)
    return AttemptDecision(
        status=waiting_status(run_at, retry_input.now),
        outcome=Outcome.DEFERRED,
        error=error,
        run_at=run_at,
        counts=False,
    )


def retry_at(run_at: datetime, error: str, retry_input: RetryInput) -> AttemptDecision:
    """Return the verdict of a failure that may be retried at this moment, if attempts and deadline allow."""
    if retry_input.attempt >= retry_input.policy.attempts:
        return die(Reason.EXHAUSTED, error)
    run_at = max(run_at, retry_input.now)
    if has_expired(retry_input.deadline, run_at):
        return expire(f"{DEADLINE_EXCEEDED} before a retry of: {error}")
    return AttemptDecision(
        status=waiting_status(run_at, retry_input.now), outcome=Outcome.FAILED, error=error, run_at=run_at
    )


def waiting_status(run_at: datetime, now: datetime) -> Status:
    """Return whether a work with this start is due already or still scheduled."""
    return Status.PENDING if run_at <= now else Status.SCHEDULED


def moment(word: Defer | Reschedule, now: datetime) -> datetime:
    """Return the moment that a deferral or a rescheduling names."""
    if word.run_at is not None:
        return require_aware(word.run_at, f"{type(word).__name__}(run_at=)")
    return later(now, seconds(word.delay or 0, f"{type(word).__name__}(delay=)"))


def abort_text(error: BaseException) -> str:
    """Return what to record of a handler that gave up: its cause, if it named one."""
    if isinstance(error, Abort) and error.cause is not None:
        return cause_text(error.cause)
    return error_text(error)


def reschedule_text(word: Reschedule) -> str:
    """Return what to record of a rescheduling: its cause, if it named one."""
    return cause_text(word.cause) if word.cause is not None else error_text(word)


def cause_text(cause: BaseException | str) -> str:
    """Return a cause given as an exception or as a text, as text."""
    return error_text(cause) if isinstance(cause, BaseException) else cut(str(cause))


def error_text(error: BaseException) -> str:
    """Return an exception as ``"<ErrorName>: <message>"``, cut at 10 000 characters.

    >>> error_text(ValueError("no such card"))
    'ValueError: no such card'
    """
    try:
        message = str(error)
    except BaseException as unprintable:
        message = f"(its message cannot be printed: {type(unprintable).__name__})"
    return cut(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def storable(text: str) -> str:
    r"""Return a text with the characters that no database takes escaped.

    >>> storable("nul \x00, half a pair \ud800") == r"nul \x00, half a pair \ud800"
    True
    """
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def cut(text: str) -> str:
    """Return a text short enough to store."""
    text = storable(text)
    return text if len(text) <= MAX_ERROR_LENGTH else text[:MAX_ERROR_LENGTH] + "… [truncated]"


def cut_traceback(text: str) -> str:
    """Return a traceback short enough to store: where it began, and where it ended, which tells most.

    >>> [len(cut_traceback("x" * length)) for length in (7, MAX_TRACEBACK_LENGTH, 10**7)]
    [7, 100000, 100028]
    """
    text = storable(text)
    if len(text) <= MAX_TRACEBACK_LENGTH:
        return text
    half = MAX_TRACEBACK_LENGTH // 2
    return f"{text[:half]}\n… [truncated in between] …\n{text[-half:]}"


# --- unknown ---
# Works whose type no worker here knows: parked, re-offered, and given up after a grace.

PREFIX = "no worker here knows this type, since "
#: Seconds until a parked work is offered again.
OFFER_AGAIN = timedelta(seconds=5)


def unknown_error(since: datetime, before: str = "") -> str:
    """Return what a parked work shows as its error, keeping since when nobody knows its type.

    ``before`` is the error of its last attempt, which stays below that for whoever takes the work.
    """
    return f"{PREFIX}{since.isoformat()}" + (f"\n{before}" if before else "")


def if_renamed(type: str, known: Iterable[str]) -> str:
    """Return what to do when an unknown type has another name now.

    >>> print(if_renamed("shop.send_recipt", ["shop.send_receipt"]))
    Did you mean 'shop.send_receipt'? If its function was renamed or moved,
    keep the stored name: @work(name="shop.send_recipt").
    """
    advice = f'If its function was renamed or moved, keep the stored name: @work(name="{type}").'
    return f"{did_you_mean(type, known)} {advice}".strip()


def is_parking(error: str) -> bool:
    """Tell whether an error is the note of a parked work.

    >>> is_parking("ValueError: no")
    False
    """
    return error.startswith(PREFIX)


def unknown_since(error: str, now: datetime) -> datetime:
    """Return since when a work is parked; now, if it was not parked before.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> unknown_since(unknown_error(noon), noon + timedelta(hours=1)) == noon
    True
    """
    if is_parking(error):
        try:
            moment = error.removeprefix(PREFIX).partition("\n")[0]
            return require_aware(datetime.fromisoformat(moment), "since")
        except ValueError:
            pass
    return now


def error_before(error: str) -> str:
    """Return the error that a work had before it was parked; the error itself of one that was not.

    >>> from datetime import UTC
    >>> error_before(unknown_error(datetime(2026, 1, 1, tzinfo=UTC), "ValueError: no"))
    'ValueError: no'
    """
    return error.partition("\n")[2] if is_parking(error) else error


def parked_again(error: str, now: datetime) -> str:
    """Return what a work shows that is parked, perhaps not for the first time."""
    return unknown_error(unknown_since(error, now), error_before(error))
