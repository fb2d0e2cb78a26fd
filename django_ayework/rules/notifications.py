"""Notifications between processes as short texts, and which worker of a fleet reacts to one first."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from zlib import crc32

#: A queue, and a type with works in it.
Place: TypeAlias = tuple[str, str]

#: Channels. DUE: works became due. ENDED: works, groups or chains have ended. REVOKED: running works were
#: cancelled or completed. ANSWERED: a worker has taken the works of a DUE message.
DUE, ENDED, REVOKED, ANSWERED = "due", "ended", "revoked", "answered"
#: More names than that are not sent: to read the database is cheaper.
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
    """Encode due works for other processes than their origin; the number makes each text unique."""
    return to_text(origin, named(due.places), due.start, due.works, number)


def due_from_text(text: str, origin: str) -> Due:
    """Decode due works: none for a text of this origin itself, any works for an unreadable text.

    >>> due_from_text(due_to_text(Due(start=5.0), "here"), "there")
    Due(places=frozenset(), start=5.0, works=1)
    >>> bool(due_from_text(due_to_text(ANYTHING, "here"), "here"))
    False
    >>> due_from_text("scribble", "here") == ANYTHING
    True
    """
    try:
        sender, places, start, works, _ = json.loads(text)
        if sender == origin:
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
        sender, ids = json.loads(text)
        if sender == origin:
            return frozenset()
        return None if ids is None else frozenset(map(str, ids))
    except (ValueError, TypeError):
        return None


def named(names: Collection[Any] | None) -> list[Any] | None:
    """Return names in order, or None where there are too many to send."""
    return None if names is None or len(names) > MOST_NAMED else sorted(names)


def to_text(origin: str, names: list[Any] | None, *rest: Any) -> str:
    """Return plain ASCII, never longer than a message may be."""
    text = json.dumps([origin, names, *rest], separators=(",", ":"))
    return text if len(text) <= LONGEST else json.dumps([origin, None, *rest])


#: The prefix of ids under which processes hold works that skipped the queue. Ids of workers lack it.
DIRECT = "direct-"

# The order in which the workers of a fleet poll after a message: few at once, others only later. Each worker
# computes its own delay from the message and from the workers that it knows of. They need not know the same.

#: Workers that look at once besides one for each work that is due: one may be busy, or gone.
SPARE = 1
#: Spreads numbers over 32 bits (Knuth's multiplicative hashing).
FACTOR, BITS = 2_654_435_761, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Delay:
    """How many steps a worker waits before it looks. The first worker of each step ``answers`` for it."""

    steps: int = 0
    answers: bool = False


def number_of(text: str) -> int:
    """Return the number of a message, or of a worker, from which delays are drawn."""
    return crc32(text.encode())


def delay_of(message: int, own: int, others: Iterable[int], works: int) -> Delay:
    """Return the delay of a worker among others, for a message that says so many works are due.

    With each step as many workers look as have looked before. A worker that is alone looks at once. Where all
    look at once nobody needs an answer.

    >>> [delay_of(7, own, [one for one in range(5) if one != own], works=1).steps for own in range(5)]
    [0, 1, 0, 1, 2]
    >>> delay_of(7, 0, [], works=1)
    Delay(steps=0, answers=False)
    """
    mine = lot(message, own)
    lots = [lot(message, other) for other in others]
    rank = sum(other < mine for other in lots)
    steps, first, end = 0, 0, works + SPARE
    while rank >= end:
        steps, first, end = steps + 1, end, 2 * end
    return Delay(steps, answers=rank == first and len(lots) >= end)


def lot(message: int, worker: int) -> int:
    """Return what a worker has drawn for a message; the lowest is first."""
    return ((message ^ worker) * FACTOR) & BITS
