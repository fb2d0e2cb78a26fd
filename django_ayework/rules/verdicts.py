"""What follows from how an attempt ended: one decision point for every kind of failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django_ayework.errors import Abort, Defer, Reschedule
from django_ayework.rules.backoff import RetryPolicy, backoff
from django_ayework.rules.deadlines import has_expired
from django_ayework.rules.durations import later, require_aware, seconds
from django_ayework.rules.states import Outcome, Reason, Status

MAX_ERROR_LENGTH = 10_000
MAX_TRACEBACK_LENGTH = 100_000
WORKER_LOST = "worker lost"
DEADLINE_EXCEEDED = "deadline exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
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
class Trial:
    """The facts a failure is judged by: which attempt it was, the policy, the deadline, and the moment."""

    attempt: int
    policy: RetryPolicy
    deadline: datetime | None
    now: datetime
    random: float


def judge(error: BaseException, advice: object, trial: Trial) -> Verdict:
    """Decide a failed attempt; what the handler raised wins over ``advice``, the answer of ``on_failure``.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> first = Trial(attempt=1, policy=RetryPolicy(jitter=0), deadline=None, now=noon, random=0.0)
    >>> judge(ValueError("no"), None, first).run_at.second
    1
    >>> judge(Abort("no card"), None, first).reason
    <Reason.ABORTED: 'aborted'>
    """
    for word in (error, advice):
        if isinstance(word, Defer):
            return defer(word, error_text(error), trial)
        if isinstance(word, Abort) or word == "abort":
            return die(Reason.ABORTED, abort_text(error))
        if isinstance(word, Reschedule):
            return retry_at(moment(word, trial.now), reschedule_text(word), trial)
    wait = backoff(trial.attempt, trial.policy, trial.random)
    return retry_at(later(trial.now, wait), error_text(error), trial)


def judge_lost(trial: Trial) -> Verdict:
    """Decide a work whose lease lapsed: at once again, or dead when its attempts are used up."""
    if trial.attempt >= trial.policy.attempts:
        return die(Reason.EXHAUSTED, WORKER_LOST, Outcome.LOST)
    return Verdict(status=Status.PENDING, outcome=Outcome.LOST, error=WORKER_LOST, run_at=trial.now)


def expire(error: str = DEADLINE_EXCEEDED) -> Verdict:
    """Decide a work that is past its deadline."""
    return die(Reason.EXPIRED, error)


def die(reason: Reason, error: str, outcome: Outcome = Outcome.DIED) -> Verdict:
    """Return the verdict of an end without success."""
    return Verdict(status=Status.DEAD, outcome=outcome, error=error, reason=reason)


def defer(word: Defer, error: str, trial: Trial) -> Verdict:
    """Return the verdict of a deferral: later, with the attempt given back."""
    run_at = max(moment(word, trial.now), trial.now)
    return Verdict(
        status=waiting_status(run_at, trial.now),
        outcome=Outcome.DEFERRED,
        error=error,
        run_at=run_at,
        counts=False,
    )


def retry_at(run_at: datetime, error: str, trial: Trial) -> Verdict:
    """Return the verdict of a failure that may be retried at this moment, if attempts and deadline allow."""
    if trial.attempt >= trial.policy.attempts:
        return die(Reason.EXHAUSTED, error)
    run_at = max(run_at, trial.now)
    if has_expired(trial.deadline, run_at):
        return expire(f"{DEADLINE_EXCEEDED} before a retry of: {error}")
    return Verdict(
        status=waiting_status(run_at, trial.now), outcome=Outcome.FAILED, error=error, run_at=run_at
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
