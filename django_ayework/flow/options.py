"""Options, resolved when a work is queued and stored with it: whichever worker runs it applies the same."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.options import QueueOptions
from django_ayework.define.registry import registry
from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.rules.backoff import RetryPolicy
from django_ayework.rules.deadlines import resolve_deadline
from django_ayework.rules.dedup import Dedup
from django_ayework.rules.durations import later

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOptions:
    """The options a worker needs. Durations are seconds."""

    retry: RetryPolicy
    timeout: float | None = None
    expires: float | None = None
    explicit_deadline: bool = False
    lease: float | None = None
    released: bool = False  # queued by a gate, so its context has dependents
    blocked: bool = False  # has blockers, whose results its context shows
    redact: tuple[str, ...] = ()  # dotted paths into the input that people are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Everything decided about a work when it is queued."""

    queue: str
    priority: int
    fairness: str
    about: tuple[str | None, str | None]
    run_at: datetime
    deadline: datetime | None
    blockers: tuple[str, ...]
    stored: StoredOptions
    dedup: Dedup | None = None
    unit: str | None = None


def resolve(
    request: WorkRequest[Any, Any], given: Mapping[str, Any], now: datetime, released: bool
) -> Resolved:
    """Merge the levels: queue-time over the type's ``options()`` over its constants over the settings.

    ``retry`` is merged field by field; of everything else the first one given wins.
    """
    constants = constants_of(request)
    levels = (given, request.options, constants)
    options: dict[str, Any] = {**constants, **request.options, **given}
    deadline, expires = bounds(levels)
    return Resolved(
        queue=options.get("queue", DEFAULT_QUEUE),
        priority=options.get("priority", 0),
        fairness=options.get("fairness", ""),
        about=options.get("about", (None, None)),
        run_at=start_of(levels, now),
        deadline=resolve_deadline(now, expires, deadline),
        blockers=tuple(options.get("blockers", ())),
        stored=StoredOptions(
            retry=RetryPolicy.resolve(*(level.get("retry") for level in levels), get_settings().retry),
            timeout=options.get("timeout"),
            expires=expires,
            explicit_deadline=deadline is not None,
            lease=options.get("lease"),
            released=released,
            blocked=bool(options.get("blockers")),
            redact=redacted_by(request),
        ),
        dedup=options.get("dedup"),
        unit=options.get("unit"),
    )


def constants_of(request: WorkRequest[Any, Any]) -> QueueOptions:
    """Return the defaults of the request's type; a gate's has none."""
    work_type = registry.find(request.type)
    return work_type.constants() if work_type is not None else {}


def redacted_by(request: WorkRequest[Any, Any]) -> tuple[str, ...]:
    """Return what the request's type hides from people."""
    work_type = registry.find(request.type)
    return work_type.settings.redact if work_type is not None else ()


def start_of(levels: tuple[Mapping[str, Any], ...], now: datetime) -> datetime:
    """Return when the work may start: of the first level that says so, ``run_at`` before ``delay``."""
    for level in levels:
        if "run_at" in level:
            return level["run_at"]  # type: ignore[no-any-return]  # checked when it was given
        if "delay" in level:
            return later(now, level["delay"])
    return now


def bounds(levels: tuple[Mapping[str, Any], ...]) -> tuple[datetime | None, float | None]:
    """Return the deadline and the ``expires`` of the first level that gives either."""
    for level in levels:
        if "deadline" in level or "expires" in level:
            return level.get("deadline"), level.get("expires")
    return None, None


@functools.lru_cache(maxsize=1024)
def encode_options(options: StoredOptions) -> str:
    """Return the options as text; the same few come again and again."""
    retry = options.retry
    plain: dict[str, Any] = {
        "retry": [retry.attempts, retry.base, retry.factor, retry.max, retry.jitter],
    }
    for name in ("timeout", "expires", "explicit_deadline", "lease", "released", "blocked", "redact"):
        value = getattr(options, name)
        if value is not None and value is not False and value != ():
            plain[name] = value
    return json.dumps(plain, separators=(",", ":"))


@functools.lru_cache(maxsize=1024)
def decode_options(text: str) -> StoredOptions:
    """Read back what :func:`encode_options` made; anything else gives the defaults, so no work is lost."""
    try:
        plain = json.loads(text)
        names = ("attempts", "base", "factor", "max", "jitter")
        retry = RetryPolicy(**dict(zip(names, plain.pop("retry"), strict=True)))
        return StoredOptions(retry=retry, redact=tuple(map(str, plain.pop("redact", ()))), **plain)
    except (ValueError, TypeError, KeyError, AttributeError):
        return StoredOptions(retry=RetryPolicy.resolve(get_settings().retry))


def needs_clock(request: WorkRequest[Any, Any], given: QueueOptions) -> bool:
    """Tell whether a relative time (a window of ``dedup`` too) must be measured on the database's clock."""
    if isinstance(request, GateRequest) and request.timeout is not None:
        return True
    options = {**constants_of(request), **request.options, **given}
    return bool(options.get("delay") or options.get("expires") or options.get("dedup"))
