"""The options of queueing and of types of work: their names, the values they take, and their checks.

Each option is declared once, with the function that checks its value in its annotation: options of queueing
in ``EnqueueOptions``, options of ``@work`` and ``@batch_work`` in ``WorkSettings``. A check is given the
value, and the name for its error message, and returns the value as the engine uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, cast, get_origin, get_type_hints

from django_ayework.documentation import type_error
from django_ayework.doers import Doer
from django_ayework.errors import InvalidOption, by_other_name, did_you_mean
from django_ayework.rules.codec import Codec
from django_ayework.rules.controls import DEFAULT_WEIGHT
from django_ayework.rules.durations import Seconds, positive_seconds, require_aware, seconds
from django_ayework.rules.identity import About, Dedup, require_unit, require_work_id
from django_ayework.rules.retry import Retry, is_whole
from django_ayework.rules.signatures import misfit

Check: TypeAlias = Callable[[Any, str], Any]
#: ``def m(ctx, call_next): return call_next(**extra)``, where ``ctx`` is the Context; or ``async def``, with
#: ``await call_next(**extra)``.
Middleware: TypeAlias = Callable[[Any, Callable[..., Any]], Any]

MAX_NAME_LENGTH = 64
MAX_TYPE_LENGTH = 128
MAX_INTEGER = 2**31 - 1


def checks_of(table: type) -> dict[str, Check]:
    """Return the checks of the options that a class annotates as ``Annotated[kind, check]``, by name."""
    hints = get_type_hints(table, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def unchecked(value: Any, name: str) -> Any:
    """Return the value as it is."""
    return value


# Checks of values


def checking(expected: str, fits: Callable[[Any], bool]) -> Check:
    """Return a check for values that fit; the error says what is expected."""

    def check(value: Any, name: str) -> Any:
        if not fits(value):
            raise InvalidOption(f"expected {name} to be {expected}, got: {value!r}.")
        return value

    return check


#: The hooks of a type, and what each is called with.
HOOKS = {"on_event": ("event",), "on_failure": ("exception", "info"), "log_context": ("input", "type")}


def check_hook(value: Any, name: str) -> Any:
    """Return a function that takes what the hook is called with; a dotted path is imported later."""
    wrong = misfit(value, len(HOOKS[name]))
    if isinstance(value, str) or (callable(value) and not wrong):
        return value
    raise InvalidOption(
        f"expected {name} to be a function that takes ({', '.join(HOOKS[name])}), or the dotted path of one, "
        f"got: {value!r}{wrong and f', which takes {wrong}'}."
    )


def instance_of(kind: type, expected: str) -> Check:
    """Return a check for objects of one class."""
    return checking(expected, lambda value: isinstance(value, kind))


def whole_number(least: int, most: int | None = None, note: str = "") -> Check:
    """Return a check for whole numbers within these bounds."""
    span = f", {least} or more{note}" if most is None else f" from {least} to {most}{note}"
    return checking(
        f"a whole number{span}",
        lambda value: is_whole(value) and least <= value and (most is None or value <= most),
    )


def is_listable(text: str) -> bool:
    """Tell whether a text can be one of several that commas separate on a command line."""
    return "," not in text and text == text.strip() and not text.startswith("-")


def label(most: int, expected: str = "a text", fits: Callable[[str], bool] = bool) -> Check:
    """Return a check for printable texts of limited length that fit a condition."""
    return checking(
        f"{expected} of 1 to {most} printable characters",
        lambda value: (
            isinstance(value, str) and 0 < len(value) <= most and value.isprintable() and fits(value)
        ),
    )


def one_of(*choices: str) -> Check:
    """Return a check for one of a few words."""

    def check(value: object, name: str) -> str:
        if value not in choices:
            words = " or ".join((", ".join(map(repr, choices[:-1])), repr(choices[-1])))
            hint = did_you_mean(str(value), choices)
            raise InvalidOption(f"expected {name} to be {words}, got: {value!r}.{hint}")
        return str(value)

    return check


check_flag = instance_of(bool, "True or False")
check_function = checking("a function of the input", callable)
check_limit = whole_number(0, MAX_INTEGER, ", 0 for no limit")
check_name = label(MAX_NAME_LENGTH)
check_pace = whole_number(1, MAX_INTEGER, ", or None for no bound")
check_priority = whole_number(-MAX_INTEGER, MAX_INTEGER)
check_queue = label(MAX_NAME_LENGTH, "a text without commas, outer spaces or a leading hyphen", is_listable)
check_retry = instance_of(Retry, "a Retry(...), such as Retry(attempts=5)")
check_weight = whole_number(1, MAX_INTEGER)


def check_span(value: Any, name: str) -> float:
    """Return a duration in seconds; the error for a datetime has the option that takes one."""
    if isinstance(value, datetime):
        raise type_error(
            "duration-not-usable",
            f"expected {name} to be seconds (a number) or a timedelta, got: {value!r} (datetime). "
            f"Did you mean {SAME_MEANING[name]!r}?",
        )
    return seconds(value, name)


def check_unit(value: object, name: str) -> str:
    """Return a unit's name."""
    try:
        return require_unit(value)
    except ValueError as error:
        raise InvalidOption(f"{name}: {error}.", code="unit-not-usable") from None


def check_about(value: Any, name: str) -> About:
    """Return a saved model object as its label and primary key."""
    if isinstance(value, About):  # checked before
        return value
    key, meta = getattr(value, "pk", None), getattr(value, "_meta", None)
    if key is None or meta is None or isinstance(value, type):
        raise InvalidOption(
            f"expected {name} to be a saved model object, got: {value!r}.", code="about-not-saved"
        )
    text = str(key)
    if len(text) > MAX_NAME_LENGTH or "\x00" in text:
        raise InvalidOption(
            f"expected {name} to have a primary key of at most {MAX_NAME_LENGTH} characters without NUL, "
            f"got: {text!r:.80}.",
            code="about-not-saved",
        )
    return About(str(meta.label_lower), text)


def check_blockers(value: Any, name: str) -> tuple[str, ...]:
    """Return the ids of the chains a work waits for; handles and requests stand for their chains."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise type_error(
            "blockers-not-usable", f"expected {name} to be a list of handles or chain ids, got: {value!r}."
        )
    ids = (getattr(item, "chain_id", None) or getattr(item, "id", item) for item in value)
    return tuple(dict.fromkeys(require_work_id(id) for id in ids))


def check_doer(value: object, name: str) -> Doer | None:
    """Return a doer; None stays None."""
    if value is None or (isinstance(value, Doer) and not isinstance(value, type)):
        return value
    methods = ("available", "submit", "drained")
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    why = "which is a class" if isinstance(value, type) else f"which has no {', '.join(missing)}"
    raise InvalidOption(
        f"expected {name} to be a doer, such as django_ayework.doers.balanced(8), got: {value!r}, {why}.",
        code="doer-not-usable",
    )


def check_middleware(value: object, name: str) -> tuple[Middleware | str, ...]:
    """Return middlewares, given as a list of callables or dotted paths, the outermost first."""
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(f"expected {name} to be a list of callables or dotted paths, got: {value!r}.")
    for position, middleware in enumerate(value):
        if not callable(middleware) and not (isinstance(middleware, str) and "." in middleware):
            raise InvalidOption(
                f"expected {name}[{position}] to be a callable or the dotted path of one, "
                f"got: {middleware!r}."
            )
    return tuple(value)


def check_redact(value: object, name: str) -> tuple[str, ...]:
    """Return dotted paths into the input, given as a list of texts."""
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(f"expected {name} to be a list of names such as 'card.number', got: {value!r}.")
    for path in value:
        if not isinstance(path, str) or not all(path.split(".")):
            raise InvalidOption(f"expected {name} to have names such as 'card.number', got: {path!r}.")
    return tuple(value)


def check_retention(value: object, name: str) -> dict[str, float | None]:
    """Return seconds by status, None for good; statuses that are left out are left to the next level down.

    >>> check_retention({"success": 60, "dead": None}, "retention")
    {'success': 60.0, 'dead': None}
    """
    ends = ("success", "cancelled", "dead")
    if not isinstance(value, Mapping):
        raise InvalidOption(
            f"expected {name} to be a mapping of {', '.join(ends)} to seconds (a number), a timedelta, "
            f'or None for good, such as {{"success": 3600}}, got: {value!r}.'
        )
    for status in value:
        if status not in ends:
            raise InvalidOption(
                f"expected the keys of {name} to be of {', '.join(ends)}, "
                f"got: {status!r}.{did_you_mean(str(status), ends)}"
            )
    return {
        status: None if kept is None else seconds(kept, f"{name}[{status!r}]")
        for status, kept in value.items()
    }


# Options of queueing


class QueueOptions(TypedDict, total=False):
    """The options of ``enqueue``, ``ctx.queue`` and ``.next``.

    ``delay``, ``timeout``, ``expires`` and ``lease`` are seconds or timedelta. ``run_at`` and ``deadline``
    are aware datetimes, and take precedence over ``delay`` and ``expires``. ``about`` is the model object
    that the work is about. ``blockers`` are handles or ids of chains that must succeed before the work
    starts.
    """

    delay: Annotated[Seconds, check_span]
    run_at: Annotated[datetime | None, require_aware]
    priority: Annotated[int, check_priority]
    fairness: Annotated[str | None, check_name]
    retry: Annotated[Retry | None, check_retry]
    timeout: Annotated[Seconds | None, positive_seconds]
    expires: Annotated[Seconds | None, check_span]
    deadline: Annotated[datetime | None, require_aware]
    queue: Annotated[str, check_queue]
    lease: Annotated[Seconds, positive_seconds]
    about: Annotated[Any, check_about]
    blockers: Annotated[Iterable[Any], check_blockers]


class EnqueueOptions(QueueOptions, total=False):
    """The options of ``enqueue``: those of ``ctx.queue``, and some that select or place the work.

    ``dedup`` is a ``Dedup``, ``unit`` the name of a unit, and ``id`` an id of your own. With
    ``on_commit=True`` the work is inserted after the commit. With ``skip_queue=True`` this process makes the
    first attempt after the commit.
    """

    dedup: Annotated[Dedup | None, instance_of(Dedup, "a Dedup(...)")]
    unit: Annotated[str | None, check_unit]
    skip_queue: Annotated[bool, check_flag]
    # Of the call, not of the work: enqueue() takes these two away before it checks the others.
    id: str
    on_commit: bool


#: All that ``enqueue`` takes by name.
ENQUEUE_OPTIONS = frozenset(EnqueueOptions.__annotations__)
CHECKS = checks_of(EnqueueOptions)
#: Pairs of options that say the same: either one, given at a higher level, replaces both of the level below.
SAME_MEANING = {"delay": "run_at", "run_at": "delay", "expires": "deadline", "deadline": "expires"}

#: The queueing options of other packages, by what to write here.
OTHER_NAMES = {
    "delay": ("countdown", "defer_by", "schedule_in", "delay_seconds"),
    "run_at": ("at", "eta", "run_after", "schedule_at", "scheduled_at", "scheduled_time", "defer_until"),
    "retry=Retry(attempts=…)": ("retries", "max_retries", "max_attempts", "max_tries", "attempts"),
    "retry=Retry(base=…)": ("backoff", "retry_backoff", "default_retry_delay"),
    "retry=Retry(max=…)": ("retry_backoff_max",),
    "retry=Retry(jitter=…)": ("retry_jitter",),
    "ctx.queue([…]).next(…)": ("link", "link_error"),
    "timeout": ("time_limit", "soft_time_limit", "job_timeout"),
    "expires": ("ttl", "expire", "max_age"),
    "queue": ("queue_name", "routing_key"),
    "id": ("task_id", "job_id"),
    "dedup=Dedup(key)": (
        *("unique", "unique_key", "dedup_key", "deduplication_key", "idempotency_key", "queueing_lock"),
    ),
    "blockers": ("depends_on",),
    "fairness": ("tenant",),
}
MEANINGS = by_other_name(OTHER_NAMES)


def checked(options: Mapping[str, Any]) -> QueueOptions:
    """Return the options with every value checked and durations in seconds; None counts as not given.

    >>> checked({"delay": 5, "priority": None})
    {'delay': 5.0}
    >>> checked({"dealy": 5})
    Traceback (most recent call last):
    ...
    TypeError: 'dealy' is not a queueing option. Did you mean 'delay'?
    See https://...
    """
    given = {}
    for name, value in options.items():
        if name not in CHECKS:
            hint = did_you_mean(name, CHECKS, MEANINGS)
            raise type_error("unknown-option", f"{name!r} is not a queueing option.{hint}")
        if value is not None:
            given[name] = CHECKS[name](value, name)
    return cast(QueueOptions, given)


def combined(given: Mapping[str, Any], lower: Mapping[str, Any]) -> QueueOptions:
    """Return options of two levels as one: ``given`` wins, and ``retry`` is merged field by field.

    >>> combined({"delay": 5.0, "priority": 1}, {"run_at": "noon", "priority": 2, "queue": "mail"})
    {'priority': 1, 'queue': 'mail', 'delay': 5.0}
    """
    replaced = {SAME_MEANING[name] for name in given if name in SAME_MEANING}
    both = {name: value for name, value in lower.items() if name not in replaced} | {**given}
    if "retry" in given and "retry" in lower:
        both["retry"] = given["retry"].over(lower["retry"])
    return cast(QueueOptions, both)


def refuse_identity(options: Mapping[str, Any], where: str) -> None:
    """Raise TypeError for options that may select an existing work where a new one is required."""
    for name in ("dedup", "unit"):
        if name in options:
            raise type_error(
                "option-refused-in-handler",
                f"{where} takes no {name}=: gates and groups know a work by the id of its request, and "
                f"{name}= may select a work with another id. Queue it by itself with "
                f"enqueue(..., {name}=...), and use the handle.",
            )


def refuse_of_enqueue(options: Mapping[str, Any], where: str) -> None:
    """Raise TypeError for an option that only ``enqueue`` takes."""
    refuse_identity(options, where)
    if "skip_queue" in options:
        raise type_error(
            "option-refused-in-handler",
            f"{where} takes no skip_queue=: the worker commits the works that a handler queues, and "
            "wakes other workers for them. Leave it out, or queue the work by itself with "
            "enqueue(..., skip_queue=True).",
        )


# Options of @work and @batch_work


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """The options of a type for queueing and running its works; None leaves one to the next level down."""

    queue: Annotated[str | None, check_queue] = None
    priority: Annotated[int | None, check_priority] = None
    fairness: Annotated[str | None, check_name] = None
    retry: Annotated[Retry | None, check_retry] = None
    timeout: Annotated[float | None, positive_seconds] = None
    expires: Annotated[float | None, seconds] = None
    lease: Annotated[float | None, positive_seconds] = None
    atomic: Annotated[bool, check_flag] = False
    then: Annotated[str | None, label(MAX_TYPE_LENGTH, 'the name of a type, such as "shop.send",')] = None
    order: Annotated[Literal["time", "unit"] | None, one_of("time", "unit")] = None
    weight: Annotated[int, check_weight] = DEFAULT_WEIGHT
    max_running: Annotated[int, check_limit] = 0
    interval: Annotated[float | None, seconds] = None
    strict_return: Annotated[bool | None, check_flag] = None
    codec: Annotated[Codec | None, unchecked] = None
    options: Annotated[Callable[..., Mapping[str, Any]] | None, check_function] = None
    on_event: Annotated[Callable[[Any], object] | str | None, check_hook] = None
    on_failure: Annotated[Callable[[Exception, Any], object] | str | None, check_hook] = None
    log_context: Annotated[Callable[[Mapping[str, Any], str], object] | str | None, check_hook] = None
    middleware: Annotated[tuple[Middleware | str, ...], check_middleware] = ()
    interrupt: Annotated[bool, check_flag] = False
    skip_queue: Annotated[bool, check_flag] = False
    schedulable: Annotated[bool, check_flag] = False
    redact: Annotated[tuple[str, ...], check_redact] = ()
    retention: Annotated[Mapping[str, float | None] | None, check_retention] = None
    doer: Annotated[Doer | None, check_doer] = None
    keep_attempts: Annotated[bool, check_flag] = False


TYPE_CHECKS = checks_of(WorkSettings)
#: Options that only a queued work has: which work waits, until when, and which one it is.
OF_ONE_WORK = ("delay", "run_at", "deadline", "blockers", "dedup", "unit", "id", "about", "on_commit")
#: The options of types in other packages, and queueing options that a type does not take.
TYPE_MEANINGS = {
    **{name: f"enqueue(…, {name}=…)" for name in OF_ONE_WORK},
    **{
        name: f"enqueue(…, {meant if '=' in meant else f'{meant}=…'})"
        if meant.partition("=")[0] in OF_ONE_WORK
        else meant
        for name, meant in MEANINGS.items()
    },
    **by_other_name(
        {
            "on_failure": ("autoretry_for", "dont_autoretry_for", "retry_for"),
            "a first parameter named ctx": ("bind", "pass_context", "takes_context"),
            "doer=rate_limited(…)": ("rate_limit",),
            "max_running": ("concurrency", "max_concurrency"),
            "@schedule(…) above @work": ("cron", "crontab", "every", "schedule"),
            "@batch_work(size=…)": ("batch_size",),
            "no option (works are acknowledged when they end), or retry=Retry(attempts=1) for at most once": (
                "acks_late",
            ),
        }
    ),
}


def checked_settings(options: Mapping[str, Any], decorator: str, besides: Sequence[str] = ()) -> WorkSettings:
    """Return the options of a decorator with their values checked; unknown ones raise TypeError.

    ``besides`` are options that the decorator has itself.
    """
    for name in options:
        if name not in TYPE_CHECKS:
            hint = did_you_mean(name, ["name", *besides, *TYPE_CHECKS], TYPE_MEANINGS)
            raise type_error("unknown-option", f"{name!r} is not an option of {decorator}.{hint}")
    given = {name: value for name, value in options.items() if value is not None}
    return WorkSettings(**{name: TYPE_CHECKS[name](value, name) for name, value in given.items()})
