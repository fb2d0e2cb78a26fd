"""How many rows go into one statement: few enough, and not too large for what the server takes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Characters of the values in one statement, unless one row has more. MariaDB takes packets of 16 MiB by
#: default, and a character has up to four bytes; a larger one ends the session.
LARGEST = 1_000_000


def portions(sizes: Sequence[int], most: int) -> Iterator[slice]:
    """Return where to cut rows of these sizes, in characters, into portions of at most so many rows.

    >>> [(part.start, part.stop) for part in portions([1, 2, LARGEST, 3, 4, 5], most=2)]
    [(0, 2), (2, 3), (3, 5), (5, 6)]
    """
    start, size = 0, 0
    for place, own in enumerate(sizes):
        if place > start and (place - start == most or size + own > LARGEST):
            yield slice(start, place)
            start, size = place, 0
        size += own
    if start < len(sizes):
        yield slice(start, len(sizes))
