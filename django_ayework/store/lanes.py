"""Lanes: where claims are taken from. Pending works of one queue and one type stand in one lane, in order."""

from __future__ import annotations

from typing import NamedTuple

from django_ayework.models import Work
from django_ayework.store.database import fetch, vendor

WORK = Work._meta.db_table
#: The order within a lane: by priority, then by unit where the type is ordered by units, then by age.
IN_LANE = "priority DESC, sort_key, run_at, id"


class QueueColumn(NamedTuple):
    """What names the queue of a work in the lanes' index, and that beside the condition of being in it."""

    name: str
    pending: str


PARTIAL = QueueColumn("queue", "status = 'pending' AND queue")
#: See ``store.stand_ins``.
STAND_IN = QueueColumn("pending_in", "pending_in")


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
    column = queue_column()
    next_queue = f"SELECT MIN({column.name}) FROM {WORK} WHERE {column.pending} > %s"
    queues = [first] if first else []
    while first is not None:
        first = fetch(next_queue, (first,))[0][0]
        queues += [first] if first is not None else []
    return queues


def types_with_work(queue: str) -> list[str]:
    """Return the types of which a queue has pending works."""
    next_type = f"SELECT MIN(type) FROM {WORK} WHERE {queue_column().pending} = %s AND type > %s"
    types, last = [], ""
    while (found := fetch(next_type, (queue, last))[0][0]) is not None:
        types.append(found)
        last = found
    return types


def queue_column() -> QueueColumn:
    """Return how this database names the queue in the lanes' index."""
    return STAND_IN if vendor() == "mysql" else PARTIAL
