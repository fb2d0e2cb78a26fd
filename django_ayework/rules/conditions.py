"""Conditions of gates and whether they hold, and the value of a group, folded from its contributions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

from django_ayework.documentation import type_error, value_error
from django_ayework.errors import did_you_mean
from django_ayework.rules.retry import is_whole
from django_ayework.rules.states import Status, is_terminal


@dataclass(frozen=True, slots=True)
class Count:
    """At least ``n`` watched works are done, or (``of="success"``) succeeded.

    >>> Count(2, of="success")
    Count(n=2, of='success')
    """

    n: int
    of: Literal["done", "success"] = "done"

    def __post_init__(self) -> None:
        if not is_whole(self.n) or self.n < 0:
            raise type_error(
                "condition-not-usable", f"Count expects a whole number of works, 0 or more, got: {self.n!r}."
            )
        if self.of not in ("done", "success"):
            raise value_error(
                "condition-not-usable", f"Count expects of='done' or of='success', got: {self.of!r}."
            )


Condition: TypeAlias = Literal["all-success", "all-done"] | Count

NAMED_CONDITIONS = ("all-success", "all-done")


class Decision(Enum):
    """The decision about a waiter."""

    MET = "met"  # the condition holds
    WAIT = "wait"  # it may hold later
    NEVER = "never"  # it can no longer hold


@dataclass(frozen=True, slots=True)
class Tally:
    """How the watched works stand: ``missed`` ended dead or cancelled, the rest is not done."""

    total: int
    succeeded: int = 0
    missed: int = 0

    @property
    def done(self) -> int:
        """The number of watched works that have ended."""
        return self.succeeded + self.missed


def condition_met(condition: Condition, statuses: Iterable[Status | str | None]) -> bool:
    """Tell whether the condition holds for these statuses; None stands for a work not known (yet).

    >>> condition_met("all-success", ["success", "dead"]), condition_met("all-done", ["success", "dead"])
    (False, True)
    >>> condition_met(Count(1), [])
    False
    """
    return decide(condition, tally(statuses)) is Decision.MET


def tally(statuses: Iterable[Status | str | None]) -> Tally:
    """Count how the watched works stand.

    >>> tally(["success", "dead", None])
    Tally(total=3, succeeded=1, missed=1)
    """
    known = list(statuses)
    succeeded = sum(1 for status in known if status == Status.SUCCESS)
    return Tally(len(known), succeeded, sum(map(is_terminal, known)) - succeeded)


def decide(condition: Condition, tally: Tally) -> Decision:
    """Decide a waiter from the counts alone, so the cost does not grow with the number of watched works.

    >>> decide("all-success", Tally(total=3, succeeded=2, missed=1))
    <Decision.NEVER: 'never'>
    >>> decide(Count(2, of="success"), Tally(total=3, succeeded=1, missed=1))
    <Decision.WAIT: 'wait'>
    """
    require_condition(condition)
    needed, counts_success = requirement(condition, tally.total)
    reached = tally.succeeded if counts_success else tally.done
    if reached >= needed:
        return Decision.MET
    reachable = tally.total - tally.missed if counts_success else tally.total
    return Decision.WAIT if reachable >= needed else Decision.NEVER


def needs_all_open(condition: Condition, tally: Tally) -> bool:
    """Tell whether every watched work that is not done must end for the condition to hold.

    >>> needs_all_open("all-done", Tally(total=3, missed=1)), needs_all_open(Count(1), Tally(total=3))
    (True, False)
    """
    needed, counts_success = requirement(condition, tally.total)
    return needed >= (tally.total - tally.missed if counts_success else tally.total)


def requirement(condition: Condition, total: int) -> tuple[int, bool]:
    """Return how many works must end, and whether only successes count."""
    if isinstance(condition, Count):
        return condition.n, condition.of == "success"
    return total, condition == "all-success"


def require_condition(condition: object, watched: int | None = None) -> None:
    """Raise unless this is a condition, and one that ``watched`` works can meet.

    >>> require_condition("all-sucess")
    Traceback (most recent call last):
    ...
    ValueError: expected a condition to be 'all-success', 'all-done' or Count(n), got: 'all-sucess'. \
Did you mean 'all-success'?
    See https://...
    """
    if isinstance(condition, Count):
        if watched is not None and condition.n > watched:
            raise value_error(
                "condition-never-met",
                f"expected Count(n) with n at most the {watched} watched works, got: {condition.n}; "
                "such a gate could never open.",
            )
        return
    if condition not in NAMED_CONDITIONS:
        raise value_error(
            "condition-not-usable",
            "expected a condition to be 'all-success', 'all-done' or Count(n), "
            f"got: {condition!r}.{did_you_mean(str(condition), NAMED_CONDITIONS)}",
        )


def condition_to_plain(condition: Condition) -> str | list[object]:
    """Return the condition as plain data, for storing."""
    return [condition.n, condition.of] if isinstance(condition, Count) else condition


def condition_from_plain(plain: object) -> Condition:
    """Read back what :func:`condition_to_plain` made.

    >>> condition_from_plain(condition_to_plain(Count(3)))
    Count(n=3, of='done')
    """
    if isinstance(plain, list) and len(plain) == 2:
        return Count(plain[0], plain[1])
    require_condition(plain)
    return plain  # type: ignore[return-value]  # just checked


class Contribution(NamedTuple):
    """One member's word on the group's value.

    ``append`` folds the value already there instead of replacing it; ``final`` locks for good.
    """

    value: Any
    final: bool = False
    append: Callable[[Any], Any] | None = None


class GroupValue(NamedTuple):
    """A group's value, None at first; no contribution changes a ``final`` one."""

    value: Any = None
    final: bool = False


def fold(current: GroupValue, contributions: Iterable[Contribution]) -> GroupValue:
    """Apply contributions in order: the last wins, ``append`` folds, nothing passes a final one.

    >>> add = lambda total: (total or 0) + 2
    >>> fold(GroupValue(), [Contribution(1), Contribution(2, append=add)]).value
    3
    >>> fold(GroupValue(), [Contribution(1, final=True), Contribution(2)]).value
    1
    """
    value, final = current
    for contribution in contributions:
        if final:
            break
        value = contribution.append(value) if contribution.append else contribution.value
        final = contribution.final
    return GroupValue(value, final)
