"""``schedule()``: a function, or a built work, that runs again and again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import date, datetime, tzinfo
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from django_ayework.define.providers import default_name
from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.define.types import WorkType
from django_ayework.errors import ImproperWork, InvalidOption, did_you_mean
from django_ayework.rules.durations import Seconds, require_aware, seconds
from django_ayework.rules.schedules import CatchUp, Dst, Overlap, parse_cron, zone_of

# --- schedule options ---
# The options of ``schedule()``, read and checked.

#: What a firing queues: a built work, or a function that returns one, or queues by itself and returns None.
Run: TypeAlias = WorkRequest[Any, Any] | Callable[[], Any]

LONGEST_NAME = 128
LONGEST_CRON = 255
CHOICES = {
    "overlap": ("allow", "skip", "queue"),
    "catch_up": ("none", "last", "all"),
    "dst": ("skip", "shift"),
}


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return what was said about when and how, checked."""
    times = [key for key in ("cron", "every", "next") if given.get(key) is not None]
    if len(times) != 1:
        raise TypeError(
            "expected schedule() to have exactly one of a cron expression, every= and next=, "
            f"got: {', '.join(times) or 'none of them'}."
        )
    checks: dict[str, Callable[[Any], Any]] = {
        "cron": check_cron,
        "every": check_every,
        "next": check_next,
        "tz": check_tz,
        "jitter": lambda value: seconds(value, "jitter"),
        "start": lambda value: check_moment(value, "start"),
        "end": lambda value: check_moment(value, "end"),
        **{key: partial(check_choice, key) for key in CHOICES},
    }
    return {key: checks[key](value) for key, value in given.items() if key in checks and value is not None}


def check_cron(value: str) -> str:
    """Return the expression if it can be read and stored."""
    expression = parse_cron(value).expression
    if len(expression) > LONGEST_CRON:
        raise InvalidOption(f"expected at most {LONGEST_CRON} characters of cron, got: {len(expression)}.")
    return expression


def check_every(value: Any) -> float:
    """Return the interval in seconds; a scheduler looks once a second."""
    number = seconds(value, "every")
    if number < 1:
        raise InvalidOption(f"expected every to be 1 second or more, got: {value!r}.")
    return number


def check_next(value: Any) -> Any:
    """Return the function that tells the next moment."""
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise InvalidOption(
            f"expected next to be a plain function from the present moment to the next, got: {value!r}."
        )
    return value


def check_tz(value: Any) -> str:
    """Return the IANA name of a zone."""
    name = getattr(zone_of(value), "key", None)
    if not isinstance(name, str):
        raise InvalidOption(f"expected tz to be a name such as 'Europe/Paris', got: {value!r}.")
    return name


def check_choice(key: str, value: Any) -> str:
    """Return one of the few words an option takes."""
    choices = CHOICES[key]
    if value not in choices:
        words = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise InvalidOption(
            f"expected {key} to be {words}, got: {value!r}.{did_you_mean(str(value), choices)}"
        )
    return str(value)


def check_moment(value: Any, key: str) -> date:
    """Return a date, or an aware datetime."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    return require_aware(value, key)


def require_run(run: Run | None) -> Run:
    """Return what a firing runs if it can do without arguments; raise ImproperWork otherwise."""
    if run is None:
        raise ImproperWork(
            "expected run= to be a function, or a work built by calling its type, got: None. Was a function "
            "called? Give the function itself: run=nightly, without parentheses."
        )
    if isinstance(run, GateRequest) or not (isinstance(run, WorkRequest) or callable(run)):
        raise ImproperWork(
            f"expected run= to be a function, or a work built by calling its type, got: {run!r}; "
            "build a gate in a function that returns it."
        )
    if isinstance(run, WorkRequest):
        return run
    if inspect.iscoroutinefunction(run) or inspect.isgeneratorfunction(run):
        raise ImproperWork(
            f"expected run= to be a plain function, got {origin(run)}; let it return a work that is async."
        )
    if missing := inputs_of(run):
        raise ImproperWork(
            f"a schedule runs {origin(run)} without arguments, so {', '.join(missing)} needs a default; "
            "or give run= a built work, such as run=add(a=1, b=2)."
        )
    return run


def inputs_of(run: Callable[..., Any]) -> list[str]:
    """Return the parameters without a default."""
    signature = run.signature if isinstance(run, WorkType) else inspect.signature(run)
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


def name_of(run: Run, given: Any) -> str:
    """Return the name: the one given, else that of the type, or of the function with the label of its app."""
    name = given if given is not None else own_name(run)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidOption(
            f"expected the name of a schedule to be 1 to {LONGEST_NAME} printable characters, got: {name!r}."
        )
    return name


def own_name(run: Run) -> str:
    """Return the name of a type, or the label of a function's app and its name."""
    if isinstance(run, WorkType):
        return run.name
    if getattr(run, "__name__", "<lambda>") == "<lambda>":
        raise ImproperWork(f"expected name= for a schedule that runs {run!r}, which has no name of its own.")
    return default_name(cast("Callable[..., Any]", run), "schedule")


def origin(function: Callable[..., Any]) -> str:
    """Return where a function is defined, as its module and name."""
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


# --- schedules ---
# ``schedule()``: a function, or a built work, that runs again and again.

F = TypeVar("F", bound=Callable[..., Any])

Next: TypeAlias = Callable[[datetime], date | None]
Kind: TypeAlias = Literal["cron", "every", "next"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeclaredSchedule:
    """A schedule as code declares it; ``cancel()`` takes it back."""

    name: str
    run: Run
    place: str = ""  # the module and the line
    cron: str = ""
    every: float | None = None
    next: Next | None = None
    tz: str | None = None
    overlap: Overlap = "allow"
    catch_up: CatchUp = "last"
    dst: Dst = "skip"
    jitter: float = 0.0
    start: date | None = None
    end: date | None = None

    @property
    def kind(self) -> Kind:
        """What says when it fires."""
        return "next" if self.next is not None else "cron" if self.every is None else "every"

    @property
    def function(self) -> str:
        """The name of what it runs: a type of work, or a function with its module."""
        if isinstance(self.run, WorkType):
            return self.run.name
        if isinstance(self.run, WorkRequest):
            return self.run.type
        return origin(self.run)

    @property
    def origin(self) -> str:
        """What it runs, and where it is declared."""
        return f"{self.function} (declared in {self.place})"

    def cancel(self) -> None:
        """Take the declaration back: this process fires it no more, and its next tick disables the row.

        Other processes that declare it go on until then; one that starts later enables it again.
        """
        schedules.remove(self)


class Schedules:
    """The declared schedules, by name."""

    def __init__(self) -> None:
        self._declared: dict[str, DeclaredSchedule] = {}
        #: Names that were declared in two places, for the system check to report: what runs, and where.
        self.clashes: dict[str, tuple[str, str]] = {}
        #: Grows with every change, so that a scheduler knows when to look again.
        self.version = 0

    def add(self, declared: DeclaredSchedule) -> None:
        """Add one; the same line again (a reload) replaces itself. Of two with one name the later counts."""
        known = self._declared.get(declared.name)
        if known is not None and known.origin != declared.origin:
            self.clashes[declared.name] = (known.origin, declared.origin)
        self._declared[declared.name] = declared
        self.version += 1

    def remove(self, declared: DeclaredSchedule) -> None:
        """Forget one, unless another took its name."""
        if self._declared.get(declared.name) is declared:
            del self._declared[declared.name]
            self.clashes.pop(declared.name, None)
            self.version += 1

    def find(self, name: str) -> DeclaredSchedule | None:
        """Return the schedule of this name, or None."""
        return self._declared.get(name)

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(self._declared)

    def __iter__(self) -> Iterator[DeclaredSchedule]:
        return iter(list(self._declared.values()))


schedules = Schedules()


@overload
def schedule(
    cron: str | None = ...,
    *,
    run: Run,
    name: str | None = ...,
    every: Seconds | None = ...,
    next: Next | None = ...,
    tz: str | tzinfo | None = ...,
    overlap: Overlap = ...,
    catch_up: CatchUp = ...,
    dst: Dst = ...,
    jitter: Seconds = ...,
    start: date | None = ...,
    end: date | None = ...,
) -> DeclaredSchedule: ...
@overload
def schedule(
    cron: str | None = ...,
    *,
    name: str | None = ...,
    every: Seconds | None = ...,
    next: Next | None = ...,
    tz: str | tzinfo | None = ...,
    overlap: Overlap = ...,
    catch_up: CatchUp = ...,
    dst: Dst = ...,
    jitter: Seconds = ...,
    start: date | None = ...,
    end: date | None = ...,
) -> Callable[[F], F]: ...
def schedule(cron: str | None = None, **options: Any) -> Any:
    """Declare a schedule: decorate a function with it, or call it with ``run=``, a function or built work.

    Exactly one of ``cron`` (an expression), ``every`` (seconds or timedelta, at least a second) and ``next``
    (a function from the present moment to the next, or to None for the end) says when it fires. ``tz`` is an
    IANA name, by default ``settings.TIME_ZONE``. ``overlap`` says what happens while the works of the firing
    before have not ended: "allow", "skip" or "queue"; ``catch_up`` what happens to occurrences that were
    missed: "none", "last" or "all"; ``dst`` to those in an hour that a clock change leaves out: "skip" or
    "shift". A firing comes up to ``jitter`` seconds later, at random. ``start`` and ``end`` are dates or
    aware datetimes; the end is included.

    Returns the decorator, or with ``run=`` an object with ``cancel()``. Raises CronError, InvalidOption,
    ImproperWork and TypeError for what cannot be used.

    Example::

        @schedule("0 3 * * *", tz="Europe/Paris", overlap="skip")
        def nightly():
            return report()
    """
    given = options if cron is None else {"cron": cron, **options}
    require_known(given)
    caller = sys._getframe(1)
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
    schedules.add(declared)
    return declared


def require_known(given: dict[str, Any]) -> None:
    """Raise TypeError for options that are not known."""
    known = [field.name for field in fields(DeclaredSchedule) if field.name != "place"]
    for key in given:
        if key not in known:
            raise TypeError(f"{key!r} is not an option of schedule().{did_you_mean(key, known)}")
