"""``schedule()``: a function, or a built work, that runs again and again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from django_ayework.compat import calling_frame
from django_ayework.define.options import checks_of, label, one_of
from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.define.types import Declared, WorkType, default_name, required_inputs
from django_ayework.documentation import type_error
from django_ayework.errors import ImproperWork, InvalidOption, by_other_name, did_you_mean
from django_ayework.rules.durations import EARLIEST, LATEST, Seconds, require_aware, seconds
from django_ayework.rules.schedules import CatchUp, Dst, Overlap, parse_cron, zone_of
from django_ayework.rules.signatures import signature_of

F = TypeVar("F", bound=Callable[..., Any])

#: A firing queues a built work, or calls a function that returns one or queues by itself.
Run: TypeAlias = WorkRequest[Any, Any] | Callable[[], Any]
Next: TypeAlias = Callable[[datetime], date | None]
Kind: TypeAlias = Literal["cron", "every", "next"]

#: The options of schedules in other packages, by what to write here.
MEANINGS = by_other_name(
    {
        "a cron expression, such as '0 3 * * *'": (
            *("crontab", "minute", "hour", "day", "day_of_month", "day_of_week", "month_of_year"),
        ),
        "every": ("interval", "seconds"),
        "run": ("func", "function", "task"),
        "tz": ("timezone", "time_zone"),
    }
)

LONGEST_NAME = 128
LONGEST_CRON = 255


def check_cron(value: Any, name: str) -> str:
    """Return the expression if it can be read and stored."""
    expression = parse_cron(value).expression
    if len(expression) > LONGEST_CRON:
        raise InvalidOption(
            f"expected at most {LONGEST_CRON} characters of cron, got: {len(expression)}.",
            code="schedule-options",
        )
    return expression


def check_every(value: Any, name: str) -> float:
    """Return the interval in seconds; a scheduler polls once a second."""
    number = seconds(value, name)
    if number < 1:
        raise InvalidOption(
            f"expected {name} to be 1 second or more, got: {value!r}.", code="schedule-options"
        )
    return number


def check_next(value: Any, name: str) -> Any:
    """Return the function from the present moment to the next."""
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise InvalidOption(
            f"expected {name} to be a plain function from the present moment to the next, got: {value!r}.",
            code="schedule-options",
        )
    return value


def check_tz(value: Any, name: str) -> str:
    """Return the IANA name of a zone."""
    key = getattr(zone_of(value), "key", None)
    if not isinstance(key, str):
        raise InvalidOption(
            f"expected {name} to be a name such as 'Europe/Paris', got: {value!r}.", code="schedule-options"
        )
    return key


def check_moment(value: Any, name: str) -> date:
    """Return a date, or an aware datetime; ``date.max`` is the last day that has an end in all time zones."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return min(max(value, EARLIEST.date()), LATEST.date() - timedelta(days=1))
    return require_aware(value, name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeclaredSchedule:
    """A schedule as code declares it; ``cancel()`` removes the declaration."""

    name: str
    run: Run
    place: str = ""  # the module and the line
    cron: Annotated[str, check_cron] = ""
    every: Annotated[float | None, check_every] = None
    next: Annotated[Next | None, check_next] = None
    tz: Annotated[str | None, check_tz] = None
    overlap: Annotated[Overlap, one_of("allow", "skip", "queue")] = "allow"
    catch_up: Annotated[CatchUp, one_of("none", "last", "all")] = "last"
    dst: Annotated[Dst, one_of("skip", "shift")] = "skip"
    jitter: Annotated[float, seconds] = 0.0
    start: Annotated[date | None, check_moment] = None
    end: Annotated[date | None, check_moment] = None

    @property
    def kind(self) -> Kind:
        """The option that gives the times of its firings."""
        return "next" if self.next is not None else "cron" if self.every is None else "every"

    @property
    def function(self) -> str:
        """The name of the type of work, or of the function with its module, that it runs."""
        if isinstance(self.run, WorkType):
            return self.run.name
        if isinstance(self.run, WorkRequest):
            return self.run.type
        return origin(self.run)

    @property
    def origin(self) -> str:
        """The function that it runs, and the place of the declaration."""
        return f"{self.function} (declared in {self.place})"

    def cancel(self) -> None:
        """Remove the declaration: this process no longer fires it, and its next tick disables the row.

        Other processes that declare it fire it until then; one that starts later enables it again.
        """
        if schedules.find(self.name) is self:  # no other declaration has taken the name
            schedules.unregister(self.name)


#: The options that say when and how a schedule fires, with their checks.
CHECKS = checks_of(DeclaredSchedule)


schedules: Declared[DeclaredSchedule] = Declared()


class ScheduleOptions(TypedDict, total=False):
    """The options of ``schedule()`` as type checkers see them; DeclaredSchedule has their checks."""

    name: str | None
    every: Seconds | None
    next: Next | None
    tz: str | tzinfo | None
    overlap: Overlap
    catch_up: CatchUp
    dst: Dst
    jitter: Seconds
    start: date | None
    end: date | None


@overload
def schedule(cron: str | None = ..., *, run: Run, **options: Unpack[ScheduleOptions]) -> DeclaredSchedule: ...
@overload
def schedule(cron: str | None = ..., **options: Unpack[ScheduleOptions]) -> Callable[[F], F]: ...
def schedule(cron: str | None = None, **options: Any) -> Any:
    """Declare a schedule: decorate a function with it, or call it with ``run=``, a function or built work.

    Exactly one of ``cron``, ``every`` and ``next`` is given. ``cron`` is an expression, ``every`` an interval
    (seconds or timedelta, at least a second). ``next`` is a function that is given the present moment and
    returns the next occurrence (a date or an aware datetime), or None for the end.

    - ``name`` is by default that of the type, or of the function with its app. ``tz`` is an IANA name, by
      default ``settings.TIME_ZONE``.
    - ``overlap`` applies while works of the previous firing have not ended: "allow", "skip" or "queue".
    - ``catch_up`` chooses the missed occurrences that fire later: "none", "last" or "all".
    - ``dst`` applies to occurrences in an hour that a clock change leaves out: "skip" or "shift".
    - ``jitter`` (seconds or timedelta) delays each firing by a random part of it.
    - ``start`` and ``end`` are dates or aware datetimes; the end is included.

    Return the decorator, or with ``run=`` an object with ``cancel()``. Raises CronError, InvalidOption,
    ImproperWork and TypeError for options that cannot be used.

    Example::

        @schedule("0 3 * * *", tz="Europe/Paris", overlap="skip")
        def nightly():
            return report()
    """
    given = options if cron is None else {"cron": cron, **options}
    known = ["name", "run", *CHECKS]
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known, MEANINGS)
            raise type_error("schedule-options", f"{key!r} is not an option of schedule().{hint}")
    caller = calling_frame(1)
    place = f"{caller.f_globals.get('__name__')}, line {caller.f_lineno}"
    if "run" in given:
        return declare(given, place)

    def decorate(function: F) -> F:
        declare({**given, "run": function}, place)
        return function

    checked(given)
    return decorate


def declare(given: dict[str, Any], place: str) -> DeclaredSchedule:
    """Check everything, and add the schedule."""
    run = require_run(given["run"])
    name = name_of(run, given.get("name"))
    declared = DeclaredSchedule(run=run, name=name, place=place, **checked(given))
    schedules.register(declared)
    return declared


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that say when and how a schedule fires, checked."""
    times = [key for key in ("cron", "every", "next") if given.get(key) is not None]
    if len(times) != 1:
        raise type_error(
            "schedule-options",
            "expected schedule() to have exactly one of a cron expression, every= and next=, "
            f"got: {', '.join(times) or 'none of them'}.",
        )
    return {
        key: CHECKS[key](value, key) for key, value in given.items() if key in CHECKS and value is not None
    }


def require_run(run: Run | None) -> Run:
    """Return the function or work if a firing can run it without arguments; else raise ImproperWork."""
    if run is None:
        raise ImproperWork(
            "expected run= to be a function, or a work built by calling its type, got: None. Was a function "
            "called? Give the function itself: run=nightly, without parentheses.",
            code="schedule-run-not-usable",
        )
    if isinstance(run, GateRequest):
        raise ImproperWork(
            f"expected run= to be a function, or a work built by calling its type, got: {run!r}; "
            "build a gate in a function that returns it.",
            code="schedule-run-not-usable",
        )
    if not (isinstance(run, WorkRequest) or callable(run)):
        raise ImproperWork(
            f"expected run= to be a function, a type, or a work built by calling its type, got: {run!r}.",
            code="schedule-run-not-usable",
        )
    if isinstance(run, WorkRequest):
        return run
    if inspect.iscoroutinefunction(run) or inspect.isgeneratorfunction(run):
        raise ImproperWork(
            f"expected run= to be a plain function, got {origin(run)}; let it return a work that is async.",
            code="schedule-run-not-usable",
        )
    signature = run.signature if isinstance(run, WorkType) else signature_of(run)
    if missing := required_inputs(signature):
        raise ImproperWork(
            f"a schedule runs {origin(run)} without arguments, so give a default to {', '.join(missing)}; "
            "or give run= a built work, such as run=add(a=1, b=2).",
            code="schedule-needs-defaults",
        )
    return run


def name_of(run: Run, given: Any) -> str:
    """Return the name: the one given, else that of the type, or of the function with the label of its app."""
    name: str = label(LONGEST_NAME)(own_name(run) if given is None else given, "the name of a schedule")
    return name


def own_name(run: Run) -> str:
    """Return the name of a type, or the label of a function's app and its name."""
    if isinstance(run, WorkType):
        return run.name
    if getattr(run, "__name__", "<lambda>") == "<lambda>":
        raise ImproperWork(
            f"expected name= for a schedule that runs {run!r}, which has no name of its own.",
            code="schedule-without-name",
        )
    return default_name(cast("Callable[..., Any]", run), "schedule")


def origin(function: Callable[..., Any]) -> str:
    """Return where a function is defined, as its module and name."""
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
