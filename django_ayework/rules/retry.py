"""Whether and when a work is tried again: the retry policy, its delay, and the decision after a failure.

``backoff`` computes the delay between two attempts. ``decide_failure`` is the one place that decides about
every kind of failure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Self, TypeGuard

from django_ayework.documentation import type_error, value_error
from django_ayework.errors import Abort, Defer, Reschedule, did_you_mean
from django_ayework.rules.durations import Seconds, later, require_aware, seconds
from django_ayework.rules.formatting import cause_text, error_text
from django_ayework.rules.states import Outcome, Reason, Status

#: Seconds; past the last moment a database can hold, and within what a timedelta can hold.
LONGEST = 10_000 * 365 * 86_400.0

WORKER_LOST = "worker lost"
DEADLINE_EXCEEDED = "deadline exceeded"

#: How long a work of an unknown type stays parked until workers see it again.
OFFER_AGAIN = timedelta(seconds=5)

#: The names that other libraries have for the fields of a retry policy.
MEANINGS: Mapping[str, str] = {
    **dict.fromkeys(("max_attempts", "max_retries", "max_tries", "retries", "tries", "times"), "attempts"),
    **dict.fromkeys(("backoff", "countdown", "delay", "initial", "interval"), "base"),
    **dict.fromkeys(("min_backoff", "retry_delay", "wait"), "base"),
    **dict.fromkeys(("exponent", "multiplier"), "factor"),
    **dict.fromkeys(("backoff_max", "cap", "max_backoff", "max_delay", "max_wait"), "max"),
    **dict.fromkeys(("random", "randomize", "retry_jitter"), "jitter"),
    **dict.fromkeys(("autoretry_for", "exceptions", "on", "retry_for", "retry_on"), "@work(on_failure=…)"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A retry policy. Fields that are None come from the type, then the settings, then the built-in policy.

    ``attempts`` counts the first attempt as well. The first pause is ``base``, and each pause is ``factor``
    times the one before, at most ``max``. ``base`` and ``max`` are seconds or timedelta. A pause is shortened
    at random by up to the share ``jitter`` (0 to 1).

    A ``base`` above the ``max`` that comes from elsewhere raises that to itself; a ``max`` below the ``base``
    that comes from elsewhere lowers it.

    Raises TypeError for an unknown field, and ValueError for a value out of its range, or ``base`` above
    ``max``.

    >>> Retry(attempts=5).over(Retry(attempts=2, base=7)) == Retry(attempts=5, base=7)
    True
    """

    attempts: int | None = None
    base: Seconds | None = None
    factor: float | None = None
    max: Seconds | None = None
    jitter: float | None = None

    def __new__(cls, *unnamed: object, **given: object) -> Self:
        """Raise TypeError for an unknown field, suggesting the nearest, and for a value without a name."""
        known = [field.name for field in fields(cls)]
        wrong = [(value, f" Did you mean attempts={value!r}?") for value in unnamed]
        wrong += [(name, did_you_mean(name, known, MEANINGS)) for name in given if name not in known]
        for what, hint in wrong:
            raise type_error("retry-not-usable", f"{what!r} is not an option of Retry.{hint}")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.attempts is not None and not (is_whole(self.attempts) and self.attempts >= 1):
            raise value_error(
                "retry-not-usable",
                f"Retry expects attempts to be a whole number, 1 or more, got: {self.attempts!r}.",
            )
        for name in ("base", "max"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, seconds(value, f"Retry's {name}"))
        given = self.given()
        if given.get("base", 0.0) > given.get("max", math.inf):
            raise value_error(
                "retry-not-usable",
                f"Retry expects base to be at most max, got: base={self.base!r}, max={self.max!r}.",
            )
        if self.factor is not None and not (is_number(self.factor) and 0 <= self.factor < math.inf):
            raise value_error(
                "retry-not-usable", f"Retry expects factor to be 0 or more, got: {self.factor!r}."
            )
        if self.jitter is not None and not (is_number(self.jitter) and 0 <= self.jitter <= 1):
            raise value_error(
                "retry-not-usable", f"Retry expects jitter between 0 and 1, got: {self.jitter!r}."
            )

    def given(self) -> dict[str, float]:
        """Return the fields that are not None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def over(self, lower: Retry) -> Retry:
        """Return this policy with its open fields filled from ``lower``."""
        merged = {**lower.given(), **self.given()}
        base, longest = merged.get("base", 0.0), merged.get("max", math.inf)
        if base > longest:
            merged |= {"max": base} if self.max is None else {"base": longest}
        return Retry(**merged)  # type: ignore[arg-type]  # each in its field


def retry_of(value: Any, name: str) -> Retry:
    """Return a retry policy that was given as one, or as a mapping of some of its fields.

    >>> retry_of(3, "RETRY")
    Traceback (most recent call last):
    ...
    TypeError: expected RETRY to be a mapping such as {'attempts': 3}, or a Retry, got: 3.
    See https://...
    """
    if isinstance(value, Retry):
        return value
    if not isinstance(value, Mapping):
        expected = "a mapping such as {'attempts': 3}, or a Retry"
        raise type_error("retry-not-usable", f"expected {name} to be {expected}, got: {value!r}.")
    return Retry(**value)


def is_whole(value: object) -> TypeGuard[int]:
    """Tell whether a value is a whole number, as opposed to True."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Tell whether a value is a number, as opposed to True, text and the like."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """A retry policy with every field resolved; seconds are floats."""

    attempts: int = 3
    base: float = 1.0
    factor: float = 2.0
    max: float = 30.0
    jitter: float = 0.5

    def is_last(self, attempt: int) -> bool:
        """Tell whether no further attempt is allowed after this one."""
        return attempt >= self.attempts

    @classmethod
    def resolve(cls, *levels: Retry | None) -> RetryPolicy:
        """Merge levels field by field, the first given winning, over the built-in defaults.

        >>> RetryPolicy.resolve(Retry(base=50), None, Retry(base=1, attempts=9))
        RetryPolicy(attempts=9, base=50.0, factor=2.0, max=50.0, jitter=0.5)
        """
        merged = Retry()
        for level in (*levels, Retry(**asdict(cls()))):
            merged = merged if level is None else merged.over(level)
        return cls(**merged.given())  # type: ignore[arg-type]  # each in its field


def backoff(attempt: int, policy: RetryPolicy, random: float) -> timedelta:
    """Return the delay before the retry that follows failed attempt ``attempt`` (1 for the first).

    ``min(base·factor^(attempt−1), max)·(1 − jitter·random)``, with ``random`` in [0, 1).

    >>> backoff(3, RetryPolicy(base=0.1, factor=2, max=0.15, jitter=0), random=0.0)
    datetime.timedelta(microseconds=150000)
    """
    try:
        ceiling = min(policy.base * float(policy.factor) ** (attempt - 1), policy.max)
    except OverflowError:
        ceiling = policy.max if policy.base else 0.0
    return timedelta(seconds=min(ceiling * (1 - policy.jitter * random), LONGEST))


def resolve_deadline(now: datetime, expires: float | None, deadline: datetime | None) -> datetime | None:
    """Return when the work expires: an explicit ``deadline`` wins over ``expires`` seconds from now.

    A deadline bounds the whole life of a work. It is checked before a start and before a retry only.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDecision:
    """The new state of a work whose attempt did not succeed.

    ``run_at`` is the moment of its next attempt (None when it is dead); ``counts`` is whether the attempt
    is used up.
    """

    status: Status
    outcome: Outcome
    error: str
    run_at: datetime | None = None
    reason: Reason | None = None
    counts: bool = True

    @property
    def will_retry(self) -> bool:
        """Whether another attempt follows."""
        return self.status is not Status.DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryInput:
    """The facts for a decision: the number of the attempt, the policy, the deadline, and the moment."""

    attempt: int
    policy: RetryPolicy
    deadline: datetime | None
    now: datetime
    random: float

    @property
    def is_last(self) -> bool:
        """Whether the policy allows no further attempt."""
        return self.policy.is_last(self.attempt)


def decide_failure(error: BaseException, advice: object, retry_input: RetryInput) -> AttemptDecision:
    """Decide about a failed attempt; its exception wins over ``advice``, the answer of ``on_failure``.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> first = RetryInput(attempt=1, policy=RetryPolicy(jitter=0), deadline=None, now=noon, random=0.0)
    >>> decide_failure(ValueError("no"), None, first).run_at.second
    1
    >>> decide_failure(Abort("no card"), None, first).reason
    <Reason.ABORTED: 'aborted'>
    """
    now = retry_input.now
    for request in (error, advice):
        if isinstance(request, Defer):
            return defer(request, error_text(error), now)
        if isinstance(request, Abort) or (isinstance(request, str) and request == "abort"):
            cause = error.cause if isinstance(error, Abort) else None
            return die(Reason.ABORTED, cause_text(error if cause is None else cause))
        if isinstance(request, Reschedule):
            cause = request if request.cause is None else request.cause
            return retry_at(requested_moment(request, now), cause_text(cause), retry_input)
    delay = backoff(retry_input.attempt, retry_input.policy, retry_input.random)
    return retry_at(later(now, delay), error_text(error), retry_input)


def decide_lost(retry_input: RetryInput, has_begun: bool = True) -> AttemptDecision:
    """Decide about a work whose lease lapsed: a retry at once, or the end when no attempt is left.

    A last attempt that has not begun is not used up. Whether another one has is not known; it counts.
    """
    counts = has_begun or not retry_input.is_last
    if counts and retry_input.is_last:
        return die(Reason.EXHAUSTED, WORKER_LOST, Outcome.LOST)
    return AttemptDecision(
        status=Status.PENDING,
        outcome=Outcome.LOST,
        error=WORKER_LOST,
        run_at=retry_input.now,
        counts=counts,
    )


def expire(error: str = DEADLINE_EXCEEDED) -> AttemptDecision:
    """Return the end of a work that is past its deadline."""
    return die(Reason.EXPIRED, error)


def die(reason: Reason, error: str, outcome: Outcome = Outcome.DIED) -> AttemptDecision:
    """Return an end without success."""
    return AttemptDecision(status=Status.DEAD, outcome=outcome, error=error, reason=reason)


def defer(request: Defer, error: str, now: datetime) -> AttemptDecision:
    """Return a deferral: another attempt later, with the same number."""
    run_at = max(requested_moment(request, now), now)
    status = waiting_status(run_at, now)
    return AttemptDecision(status=status, outcome=Outcome.DEFERRED, error=error, run_at=run_at, counts=False)


def retry_at(run_at: datetime, error: str, retry_input: RetryInput) -> AttemptDecision:
    """Return a retry at this moment if attempts and deadline allow one, else the end."""
    if retry_input.is_last:
        return die(Reason.EXHAUSTED, error)
    run_at = max(run_at, retry_input.now)
    if has_expired(retry_input.deadline, run_at):
        return expire(f"{DEADLINE_EXCEEDED} before a retry of: {error}")
    status = waiting_status(run_at, retry_input.now)
    return AttemptDecision(status=status, outcome=Outcome.FAILED, error=error, run_at=run_at)


def waiting_status(run_at: datetime, now: datetime) -> Status:
    """Return whether a work with this start is due already or still scheduled."""
    return Status.PENDING if run_at <= now else Status.SCHEDULED


def requested_moment(request: Defer | Reschedule, now: datetime) -> datetime:
    """Return the moment that a deferral or a rescheduling asks for."""
    name = type(request).__name__
    if request.run_at is not None:
        return require_aware(request.run_at, f"{name}(run_at=)")
    return later(now, seconds(request.delay or 0, f"{name}(delay=)"))
