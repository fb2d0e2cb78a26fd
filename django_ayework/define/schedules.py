"""``schedule()``: a function, or a built work, that runs again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import date, datetime, tzinfo
from typing import Any, Literal, TypeAlias, TypeVar, overload

from django_ayework.define.requests import WorkRequest
from django_ayework.define.schedule_options import Run, checked, name_of, origin, require_run
from django_ayework.define.work_type import WorkType
from django_ayework.errors import did_you_mean
from django_ayework.rules.cron import Dst
from django_ayework.rules.durations import Seconds
from django_ayework.rules.schedules.catching_up import CatchUp, Overlap

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
