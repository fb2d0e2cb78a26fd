"""Queues: they deliver the ids of due works to workers, outside of the database."""

from __future__ import annotations

from typing import cast

from django_ayework.conf import get_settings
from django_ayework.ports.queue.base import LocalQueue, PoppedId, Queue
from django_ayework.ports.queue.redis import RedisStreamsQueue

__all__ = ["PoppedId", "Queue", "get_queue"]

#: Ours: one object of each for the whole process.
BUILT_IN: dict[str, Queue] = {"redis-streams": RedisStreamsQueue(), "local": LocalQueue()}


def get_queue(name: str) -> Queue:
    """Return the Queue that delivers the ids of a queue. Raises KeyError for a queue without delivery."""
    chosen = get_settings().queues[name].delivery
    return BUILT_IN[chosen] if isinstance(chosen, str) else cast(Queue, chosen)
