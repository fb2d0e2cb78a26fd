"""What ``enqueue()`` was given, as a request, with its options resolved."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ParamSpec, TypeAlias, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from django_ayework.conf import get_settings
from django_ayework.define.options import ENQUEUE_OPTIONS, QueueOptions
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.requests import WorkRequest, require_requests
from django_ayework.define.types import WorkType
from django_ayework.errors import InvalidOption
from django_ayework.flow.payloads import arguments_for_people
from django_ayework.rules.durations import later
from django_ayework.rules.identity import Dedup
from django_ayework.rules.retry import Retry, RetryPolicy, resolve_deadline

# --- requests ---
# What enqueue() was given, as a request: a built work, or the name of a type and its input.


def request_of(work: WorkRequest[Any, Any] | str, input: Any) -> WorkRequest[Any, Any]:
    """Return a built request; a type name with its input is built now.

    Raises UnknownWorkType, suggesting the nearest name, and TypeError when the input does not fit.
    """
    if isinstance(work, WorkRequest) and input is None:
        return work
    if isinstance(work, str):
        build = registry.get(work).build
        return build(one_input(work, input) if registry.batch(work) else named_input(work, input))
    if isinstance(work, WorkType) and input is not None:
        raise TypeError(
            f"expected enqueue(work) to have a built work, got the type {work!r} and its input; "
            f"call the type: enqueue({work.handler.__name__}(…)), or give its name: "
            f"enqueue({work.name!r}, {{…}})."
        )
    if input is not None:
        shown = arguments_for_people(registry.find(getattr(work, "type", "")), input)
        raise TypeError(
            f"expected the input only with a type name, got {shown!r} with the built work {work!r}."
        )
    return next(iter(require_requests([work], "enqueue(work)")))


def refuse_arguments(name: str, options: Mapping[str, Any]) -> None:
    """Raise TypeError when inputs of a type came among the options, as in a call of the type."""
    inputs = registry.get(name).signature.parameters
    misplaced = [key for key in options if key in inputs and key not in ENQUEUE_OPTIONS]
    if misplaced:
        raise TypeError(
            f"expected the input of {name!r} as a mapping, such as "
            f"enqueue({name!r}, {{{misplaced[0]!r}: …}}), got {', '.join(misplaced)} among the options."
        )


def one_input(name: str, input: Any) -> Any:
    """Return the input given with the name of a batch type, of whatever kind."""
    if input is None:
        raise TypeError(
            f"expected enqueue({name!r}, input) to have the one input of a batch's work, got none."
        )
    return input


def named_input(name: str, input: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the input given with a name."""
    if input is not None and not isinstance(input, Mapping):
        raise TypeError(
            f"expected the input of {name!r} as a mapping of names to values, "
            f"got: {arguments_for_people(registry.find(name), input)!r}."
        )
    return input or {}


# --- twins ---
# Calls from async code: the error names the twin that can be awaited.

P = ParamSpec("P")
T = TypeVar("T")


def twinned(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function with an async twin name it when it is called from async code."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except SynchronousOnlyOperation as refusal:
            raise called_from_async_code(function.__name__) from refusal

    return call


def called_from_async_code(name: str) -> SynchronousOnlyOperation:
    """Return the error of a call that queries the database from async code."""
    return SynchronousOnlyOperation(
        f"{name}() queries the database, so it cannot be called from async code; write await a{name}(…)."
    )


# --- options ---
# Options, resolved when a work is queued and stored with it: whichever worker runs it applies the same.

DEFAULT_QUEUE = "default"

#: Options that are often different for each work; they are columns, and nothing else depends on them.
OFTEN_ITS_OWN = frozenset({"about", "dedup", "fairness", "unit"})

#: Options of one level, of checked values, as something that can be looked up.
Options: TypeAlias = tuple[tuple[str, Any], ...]
#: Options by level, the one that wins first.
Levels: TypeAlias = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOptions:
    """The options a worker needs. Durations are seconds."""

    retry: RetryPolicy
    timeout: float | None = None
    expires: float | None = None
    explicit_deadline: bool = False
    lease: float | None = None
    released: bool = False  # queued by a gate, so its context has dependents
    released_by: str | None = None  # that gate, where the work has another parent
    blocked: bool = False  # has blockers, whose results its context shows
    redact: tuple[str, ...] = ()  # dotted paths into the input that people are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Everything decided about a work before it is known when it is queued."""

    queue: str
    priority: int
    fairness: str
    about: tuple[str | None, str | None]
    start: datetime | float | None  # a moment, or seconds from queueing
    deadline: datetime | None
    blockers: tuple[str, ...]
    stored: StoredOptions
    stored_text: str
    dedup: Dedup | None = None
    unit: str | None = None

    def run_at(self, now: datetime) -> datetime:
        """Return when a work may start that is queued now."""
        if self.start is None:
            return now
        return self.start if isinstance(self.start, datetime) else later(now, self.start)

    def deadline_at(self, now: datetime) -> datetime | None:
        """Return when a work expires that is queued now."""
        return resolve_deadline(now, self.stored.expires, self.deadline)

    @property
    def is_relative(self) -> bool:
        """Whether it says a time (a window of ``dedup`` too) to be measured on the database's clock."""
        in_a_while = isinstance(self.start, float) and self.start > 0
        return bool(in_a_while or self.stored.expires or self.dedup)


def resolve(request: WorkRequest[Any, Any], given: Mapping[str, Any], released: bool) -> Resolved:
    """Merge the levels: queue-time over the type's ``options()`` over its constants over the settings.

    ``retry`` is merged field by field; of everything else the first one given wins.
    """
    work_type, lowest = registry.find(request.type), get_settings().retry
    shared = tuple(item for item in request.options.items() if item[0] not in OFTEN_ITS_OWN)
    alike = resolved(work_type, shared, tuple(given.items()), released, lowest)
    if len(shared) < len(request.options):
        own = OFTEN_ITS_OWN.intersection(request.options).difference(given)
        alike = replace(alike, **{name: request.options[name] for name in own})  # type: ignore[literal-required]
    if alike.fairness:
        require_turns(request.type, work_type, alike.fairness)
    return alike


def require_turns(type: str, work_type: AnyWorkType | None, fairness: str) -> None:
    """Raise InvalidOption for a label that nothing would go by: works that are claimed by unit take no turns.

    A doer goes by the labels of those works that it holds.
    """
    if registry.order_of(type) == "time" or get_settings().doer is not None:
        return
    if work_type is None or work_type.settings.doer is None:
        raise InvalidOption(
            f"expected no fairness= for {type!r}, got: {fairness!r}. Its works are claimed by unit, as it "
            'says order="unit" or another type names it with then=, so labels take no turns. Leave fairness '
            'out, or let the works of this type go by time: @work(order="time").'
        )


@functools.lru_cache(maxsize=1024)
def resolved(
    work_type: AnyWorkType | None, own: Options, given: Options, released: bool, lowest: Retry
) -> Resolved:
    """Merge the options of a request, and of its enqueue; a type is queued in the same few ways."""
    constants = constants_of(work_type)
    levels: Levels = (dict(given), dict(own), constants)
    options: dict[str, Any] = {**constants, **dict(own), **dict(given)}
    deadline, expires = bounds(levels)
    stored = StoredOptions(
        retry=RetryPolicy.resolve(*(level.get("retry") for level in levels), lowest),
        timeout=options.get("timeout"),
        expires=expires,
        explicit_deadline=deadline is not None,
        lease=options.get("lease"),
        released=released,
        blocked=bool(options.get("blockers")),
        redact=work_type.settings.redact if work_type is not None else (),
    )
    return Resolved(
        queue=options.get("queue", DEFAULT_QUEUE),
        priority=options.get("priority", 0),
        fairness=options.get("fairness", ""),
        about=options.get("about", (None, None)),
        start=start_of(levels),
        deadline=deadline,
        blockers=tuple(options.get("blockers", ())),
        stored=stored,
        stored_text=encode_options(stored),
        dedup=options.get("dedup"),
        unit=options.get("unit"),
    )


def constants_of(work_type: AnyWorkType | None) -> QueueOptions:
    """Return the defaults of a type; a gate has none."""
    return work_type.constants() if work_type is not None else {}


def start_of(levels: Levels) -> datetime | float | None:
    """Return when the work may start: of the first level that says so, ``run_at`` before ``delay``."""
    for level in levels:
        if "run_at" in level:
            return level["run_at"]  # type: ignore[no-any-return]  # checked when it was given
        if "delay" in level:
            return float(level["delay"])
    return None


def bounds(levels: Levels) -> tuple[datetime | None, float | None]:
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
    for name in (
        "timeout",
        "expires",
        "explicit_deadline",
        "lease",
        "released",
        "released_by",
        "blocked",
        "redact",
    ):
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
