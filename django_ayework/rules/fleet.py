"""In which order the workers of a fleet look for what a message says is due: few at once, others only later.

Each worker computes its own delay from the message and from the workers that it knows of. Nothing depends on
it that all of them know the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

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
