"""Lanes: where claims are taken from. Pending works of one queue and one type stand in one lane, in order."""

from __future__ import annotations

from typing import NamedTuple

from django_ayework.models import Work
from django_ayework.store.database import fetch

#: The order within a lane: by priority, then by unit where the type is ordered by units, then by age.
IN_LANE = "priority DESC, sort_key, run_at, id"

NEXT_QUEUE = f"SELECT MIN(queue) FROM {Work._meta.db_table} WHERE status = 'pending' AND queue > %s"
NEXT_TYPE = (
    f"SELECT MIN(type) FROM {Work._meta.db_table} WHERE status = 'pending' AND queue = %s AND type > %s"
)


class Lane(NamedTuple):
    """The pending works of a type in a queue."""

    queue: str
    type: str


def lanes_with_work(first_queue: str | None) -> list[Lane]:
    """Return every lane with pending works, hopping from one to the next through the lanes' index.

    ``first_queue`` is the first queue with pending works, as a look has found it.
    """
    return [Lane(queue, type) for queue in queues_with_work(first_queue) for type in types_with_work(queue)]


def queues_with_work(first: str | None = "") -> list[str]:
    """Return the queues with pending works, from the first one on if it is known; none after None."""
    queues = [first] if first else []
    while first is not None:
        first = fetch(NEXT_QUEUE, (first,))[0][0]
        queues += [first] if first is not None else []
    return queues


def types_with_work(queue: str) -> list[str]:
    """Return the types of which a queue has pending works."""
    types, last = [], ""
    while (found := fetch(NEXT_TYPE, (queue, last))[0][0]) is not None:
        types.append(found)
        last = found
    return types
