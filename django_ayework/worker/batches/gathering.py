"""Where works wait for their batch: until it is full, or its first work has waited long enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django_ayework.define.registry import AnyBatchType
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.batches.batch import Batch


@dataclass(slots=True)
class Buffer:
    """Works of one type; ``due_at`` is when they run, however few they are."""

    size: int
    due_at: float
    deliveries: list[Delivery] = field(default_factory=list)


class Gathering:
    """The batches that are not full yet, one per type. For one thread; moments are those of ``tick``."""

    def __init__(self, tick: Callable[[], float] = time.monotonic) -> None:
        self._tick = tick
        self._buffers: dict[str, Buffer] = {}

    def add(self, delivery: Delivery, batch_type: AnyBatchType) -> Batch | None:
        """Let a work wait for others of its type; return its batch if that is full now."""
        type, now = delivery.row.type, self._tick()
        fresh = Buffer(batch_type.size, now + batch_type.max_wait)
        buffer = self._buffers.setdefault(type, fresh)
        buffer.deliveries.append(delivery)
        return self._take(type) if len(buffer.deliveries) >= buffer.size else None

    def is_empty(self, type: str) -> bool:
        """Tell whether no work of a type waits."""
        return type not in self._buffers

    def due(self) -> list[Batch]:
        """Take out the batches that have waited long enough."""
        now = self._tick()
        return [self._take(type) for type, buffer in list(self._buffers.items()) if buffer.due_at <= now]

    def all(self) -> list[Batch]:
        """Take out every batch."""
        return [self._take(type) for type in list(self._buffers)]

    def room(self) -> dict[str, int]:
        """Return how many more works the batches take, by type."""
        return {type: buffer.size - len(buffer.deliveries) for type, buffer in self._buffers.items()}

    def pause(self) -> float:
        """Return how many seconds are left until a batch is due; infinity when none waits."""
        due_at = min((buffer.due_at for buffer in self._buffers.values()), default=float("inf"))
        return max(0.0, due_at - self._tick())

    def _take(self, type: str) -> Batch:
        return Batch(self._buffers.pop(type).deliveries)
