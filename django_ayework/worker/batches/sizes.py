"""How many works go into one slot: of a batch type as many as a batch has, else one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from django_ayework.define.registry import registry

#: Works of a type in one claim, unless a single batch is larger.
MOST_AT_ONCE = 1000
#: No batch gathers.
NO_ROOM: Mapping[str, int] = {}


def size_of(type: str) -> int:
    """Return how many works of a type one slot takes."""
    batch_type = registry.batch(type)
    return batch_type.size if batch_type else 1


def works_in(type: str, slots: int, room: Mapping[str, int]) -> int:
    """Return how many works of a type so many slots take.

    ``room`` is what the batch that gathers takes besides: it has its slot.
    """
    size = size_of(type)
    return min(slots * size, max(size, MOST_AT_ONCE)) + room.get(type, 0)


def slots_of(type: str, works: int, room: Mapping[str, int]) -> int:
    """Return how many slots so many works of a type take."""
    return -(-max(0, works - room.get(type, 0)) // size_of(type))


def slots_for(types: Iterable[str], room: Mapping[str, int]) -> int:
    """Return how many slots works of these types take."""
    return sum(slots_of(type, works, room) for type, works in Counter(types).items())
