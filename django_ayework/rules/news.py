"""News: what one process tells others, as short texts. Whoever cannot read one looks for itself."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: A queue, and a type of which it has works.
Place: TypeAlias = tuple[str, str]

#: Channels. DUE: works became due. ENDED: works, groups or chains have ended. REVOKED: running works were
#: cancelled or completed. ANSWERED: a worker has taken the works of a DUE message.
DUE, ENDED, REVOKED, ANSWERED = "due", "ended", "revoked", "answered"
#: More names than that are not told one by one: to look is cheaper.
MOST_NAMED = 100
#: Characters; PostgreSQL takes fewer than 8000 bytes.
LONGEST = 7000


@dataclass(frozen=True, slots=True)
class Due:
    """Works that are due now: their places, or None for "anywhere". ``start`` is when others will be.

    That is in seconds since 1970; None is for none. ``works`` is how many works are due, and is not compared.
    """

    places: frozenset[Place] | None = frozenset()
    start: float | None = None
    works: int = field(default=1, compare=False)

    def __or__(self, other: Due) -> Due:
        """Join two.

        >>> Due(frozenset({("mail", "send")}), 5.0) | Due(start=4.0)
        Due(places=frozenset({('mail', 'send')}), start=4.0, works=2)
        """
        if not self:
            return other
        places = None if self.places is None or other.places is None else self.places | other.places
        return Due(places, earlier(self.start, other.start), self.works + other.works)

    def is_known_from(self, other: Due) -> bool:
        """Tell whether the other says all of it.

        >>> Due(frozenset({("mail", "send")})).is_known_from(ANYTHING), Due(start=4.0).is_known_from(ANYTHING)
        (True, False)
        """
        if self.start is not None and self.start != other.start:
            return False
        return other.places is None or (self.places is not None and self.places <= other.places)

    def __bool__(self) -> bool:
        """Tell whether it says anything."""
        return self.places is None or bool(self.places) or self.start is not None


#: Look: anything may be due.
ANYTHING = Due(None)


def earlier(one: float | None, other: float | None) -> float | None:
    """Return the earlier of two moments, either of which may be missing."""
    return min((moment for moment in (one, other) if moment is not None), default=None)


def due_to_text(due: Due, origin: str, number: int = 0) -> str:
    """Write down what is due, for others than its origin; the number makes the text unlike all others."""
    return to_text(origin, named(due.places), due.start, due.works, number)


def due_from_text(text: str, origin: str) -> Due:
    """Read what is due; nothing if it comes from this origin itself, anything if it cannot be read.

    >>> due_from_text(due_to_text(Due(start=5.0), "here"), "there")
    Due(places=frozenset(), start=5.0, works=1)
    >>> bool(due_from_text(due_to_text(ANYTHING, "here"), "here"))
    False
    >>> due_from_text("scribble", "here") == ANYTHING
    True
    """
    try:
        told_by, places, start, works, _ = json.loads(text)
        if told_by == origin:
            return Due()
        known = None if places is None else frozenset((str(queue), str(type)) for queue, type in places)
        return Due(known, None if start is None else float(start), int(works))
    except (ValueError, TypeError):
        return ANYTHING


def ids_to_text(ids: Collection[str] | None, origin: str) -> str:
    """Write down ids, or None for "any", for others than their origin."""
    return to_text(origin, named(ids))


def ids_from_text(text: str, origin: str) -> frozenset[str] | None:
    """Read ids; none if they come from this origin itself, None ("any") if they cannot be read.

    >>> sorted(ids_from_text(ids_to_text(["b", "a"], "here"), "there"))
    ['a', 'b']
    >>> ids_from_text(ids_to_text(["a"], "here"), "here"), ids_from_text("", "here")
    (frozenset(), None)
    """
    try:
        told_by, ids = json.loads(text)
        if told_by == origin:
            return frozenset()
        return None if ids is None else frozenset(map(str, ids))
    except (ValueError, TypeError):
        return None


def named(names: Collection[Any] | None) -> list[Any] | None:
    """Return names to be told one by one, or None where that would be too many."""
    return None if names is None or len(names) > MOST_NAMED else sorted(names)


def to_text(origin: str, names: list[Any] | None, *rest: Any) -> str:
    """Return plain ASCII, never longer than a message may be."""
    text = json.dumps([origin, names, *rest], separators=(",", ":"))
    return text if len(text) <= LONGEST else json.dumps([origin, None, *rest])
