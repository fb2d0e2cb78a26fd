"""The options a work can be queued with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, cast

from django_ayework.errors import InvalidOption, did_you_mean
from django_ayework.rules.durations import Seconds, require_aware, seconds
from django_ayework.rules.identity import Dedup, require_unit, require_work_id
from django_ayework.rules.retry import Retry

MAX_NAME_LENGTH = 64
MAX_PRIORITY = 2**31 - 1
#: Two ways to say one thing: whoever gives one overrules both of the level below.
SAYS_THE_SAME = {"delay": "run_at", "run_at": "delay", "expires": "deadline", "deadline": "expires"}


#: What queueing options are called elsewhere. The part behind "=" says how the value differs.
MEANINGS = {
    "countdown": "delay",
    "defer_by": "delay",
    "schedule_in": "delay",
    "delay_seconds": "delay",
    "eta": "run_at",
    "run_after": "run_at",
    "schedule_at": "run_at",
    "scheduled_at": "run_at",
    "scheduled_time": "run_at",
    "defer_until": "run_at",
    "retries": "retry=Retry(attempts=…)",
    "max_retries": "retry=Retry(attempts=…)",
    "max_attempts": "retry=Retry(attempts=…)",
    "max_tries": "retry=Retry(attempts=…)",
    "attempts": "retry=Retry(attempts=…)",
    "backoff": "retry=Retry(base=…)",
    "retry_backoff": "retry=Retry(base=…)",
    "time_limit": "timeout",
    "soft_time_limit": "timeout",
    "job_timeout": "timeout",
    "ttl": "expires",
    "expire": "expires",
    "max_age": "expires",
    "queue_name": "queue",
    "routing_key": "queue",
    "task_id": "id",
    "job_id": "id",
    "unique": "dedup=Dedup(key)",
    "unique_key": "dedup=Dedup(key)",
    "dedup_key": "dedup=Dedup(key)",
    "deduplication_key": "dedup=Dedup(key)",
    "idempotency_key": "dedup=Dedup(key)",
    "queueing_lock": "dedup=Dedup(key)",
    "depends_on": "blockers",
    "tenant": "fairness",
}


class QueueOptions(TypedDict, total=False):
    """What ``enqueue``, ``ctx.queue`` and ``.next`` accept; all are optional.

    ``delay`` and ``expires`` are seconds or timedelta; ``run_at`` and ``deadline`` are aware datetimes and
    win over them. ``about`` is a model object the work is about. ``blockers`` are handles or ids of chains
    that must succeed before the work starts.
    """

    delay: Seconds
    run_at: datetime | None
    priority: int
    fairness: str | None
    retry: Retry | None
    timeout: Seconds | None
    expires: Seconds | None
    deadline: datetime | None
    queue: str
    lease: Seconds
    about: Any
    blockers: Iterable[Any]


class EnqueueOptions(QueueOptions, total=False):
    """What ``enqueue`` accepts besides: ``dedup``, ``unit``, an ``id`` of one's own, ``on_commit=True``.

    With ``skip_queue=True`` this process makes the first attempt, once the work is committed.
    """

    dedup: Dedup | None
    unit: str | None
    id: str
    on_commit: bool
    skip_queue: bool


def checked(options: Mapping[str, Any]) -> QueueOptions:
    """Return the options with every value checked and durations in seconds; None counts as not given.

    >>> checked({"delay": 5, "priority": None})
    {'delay': 5.0}
    >>> checked({"dealy": 5})
    Traceback (most recent call last):
    ...
    TypeError: 'dealy' is not a queueing option. Did you mean 'delay'?
    """
    given = {}
    for name, value in options.items():
        if name not in CHECKS:
            hint = did_you_mean(name, CHECKS, MEANINGS)
            raise TypeError(f"{name!r} is not a queueing option.{hint}")
        if value is not None:
            given[name] = CHECKS[name](value, name)
    return cast(QueueOptions, given)


def combined(given: Mapping[str, Any], lower: Mapping[str, Any]) -> QueueOptions:
    """Return options of two levels as one: ``given`` wins, and ``retry`` is merged field by field.

    >>> combined({"delay": 5.0, "priority": 1}, {"run_at": "noon", "priority": 2, "queue": "mail"})
    {'queue': 'mail', 'delay': 5.0, 'priority': 1}
    """
    overruled = {SAYS_THE_SAME[name] for name in given if name in SAYS_THE_SAME}
    both = {name: value for name, value in lower.items() if name not in overruled and name not in given}
    both |= given
    if "retry" in given and "retry" in lower:
        both["retry"] = given["retry"].over(lower["retry"])
    return cast(QueueOptions, both)


def refuse_identity(options: Mapping[str, Any], where: str) -> None:
    """Raise TypeError when options may find another work, where one is promised to be queued under its id."""
    for name in ("dedup", "unit"):
        if name in options:
            raise TypeError(
                f"{where} takes no {name}=: what waits for the work, or counts it in a group, knows it by "
                f"its own id. Queue it by itself with enqueue(..., {name}=...), and use the handle."
            )


def refuse_of_enqueue(options: Mapping[str, Any], where: str) -> None:
    """Raise TypeError for an option that only ``enqueue`` takes."""
    refuse_identity(options, where)
    if "skip_queue" in options:
        raise TypeError(
            f"{where} takes no skip_queue=: what a handler queues is committed by its worker, which wakes "
            "others for it. Leave it out, or queue the work by itself with enqueue(..., skip_queue=True)."
        )


def check_name(value: object, name: str) -> str:
    """Return a queue or fairness label: 1 to 64 characters."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH or not value.isprintable():
        raise InvalidOption(
            f"expected {name} to be a text of 1 to {MAX_NAME_LENGTH} printable characters, got: {value!r}."
        )
    return value


def check_priority(value: object, name: str) -> int:
    """Return a priority: a whole number that fits 32 bits; larger goes first."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_PRIORITY:
        raise InvalidOption(f"expected {name} to be a whole number within ±{MAX_PRIORITY}, got: {value!r}.")
    return value


def check_flag(value: object, name: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise InvalidOption(f"expected {name} to be True or False, got: {value!r}.")
    return value


def check_retry(value: object, name: str) -> Retry:
    """Return a retry policy, possibly partial."""
    if not isinstance(value, Retry):
        raise InvalidOption(f"expected {name} to be a Retry(...), got: {value!r}.")
    return value


def check_dedup(value: object, name: str) -> Dedup:
    """Return a deduplication."""
    if not isinstance(value, Dedup):
        raise InvalidOption(f"expected {name} to be a Dedup(...), got: {value!r}.")
    return value


def check_unit(value: object, name: str) -> str:
    """Return a unit's name."""
    try:
        return require_unit(value)
    except ValueError as error:
        raise InvalidOption(f"{name}: {error}.") from None


def check_about(value: Any, name: str) -> tuple[str, str]:
    """Return a saved model object as its label and primary key."""
    if isinstance(value, tuple) and len(value) == 2:  # resolved before
        return cast(tuple[str, str], value)
    key, meta = getattr(value, "pk", None), getattr(value, "_meta", None)
    if key is None or meta is None:
        raise InvalidOption(f"expected {name} to be a saved model object, got: {value!r}.")
    if len(str(key)) > MAX_NAME_LENGTH:
        raise InvalidOption(f"expected {name} to have a primary key of at most {MAX_NAME_LENGTH} characters.")
    return str(meta.label_lower), str(key)


def check_blockers(value: Any, name: str) -> tuple[str, ...]:
    """Return the ids of the chains a work waits for; handles and requests stand for their chains."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"expected {name} to be a list of handles or chain ids, got: {value!r}.")
    ids = (getattr(item, "chain_id", None) or getattr(item, "id", item) for item in value)
    return tuple(dict.fromkeys(require_work_id(id) for id in ids))


def check_moment(value: Any, name: str) -> datetime:
    """Return an aware datetime."""
    return require_aware(value, name)


def check_seconds(value: Any, name: str) -> float:
    """Return a duration in seconds."""
    return seconds(value, name)


def check_id(value: object, name: str) -> str:
    """Return a usable work id."""
    return require_work_id(value)


CHECKS: dict[str, Any] = {
    "delay": check_seconds,
    "run_at": check_moment,
    "priority": check_priority,
    "fairness": check_name,
    "retry": check_retry,
    "timeout": check_seconds,
    "expires": check_seconds,
    "deadline": check_moment,
    "queue": check_name,
    "lease": check_seconds,
    "about": check_about,
    "blockers": check_blockers,
    "dedup": check_dedup,
    "unit": check_unit,
    "skip_queue": check_flag,
}
#: All that ``enqueue`` takes by name.
ENQUEUE_OPTIONS = frozenset({*CHECKS, "id", "on_commit"})
