"""Everything this process has claimed and not yet settled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from django_ayework.define.signal import AbortReason
from django_ayework.worker.attempts.delivery import Delivery


class Holdings:
    """Claimed works by id; shared by claiming, slots, settling, leases and maintenance."""

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Delivery] = {}
        self._unfinished = 0
        self.in_doers = 0  # works and batches that doers hold, waiting or running
        self._on_room = on_room
        self.finished = 0  # works and batches that have left their slots
        self.attempts = 0  # made since the start, or to be made
        self.low_water = 0

    def add(self, deliveries: list[Delivery]) -> None:
        """Note claimed works."""
        with self._lock:
            self._held.update((delivery.row.id, delivery) for delivery in deliveries)
            self._unfinished += in_slots(deliveries)
            self.in_doers += in_doers(deliveries)
            self.attempts += len(deliveries)

    def begin_batch(self, in_doer: bool = False) -> None:
        """Note that works gather for a batch, which will take a slot, or be one task of a doer."""
        with self._lock:
            if in_doer:
                self.in_doers += 1
            else:
                self._unfinished += 1

    def finish(self, in_doer: bool = False) -> None:
        """Note that a work or a batch has ended; its settlement may still be on its way."""
        with self._lock:
            if in_doer:
                self.in_doers -= 1
            else:
                self._unfinished -= 1
                self.finished += 1
            has_room = in_doer or self._unfinished <= self.low_water
        if has_room:
            self._on_room()

    def settle(self, deliveries: list[Delivery]) -> None:
        """Forget works that are settled."""
        with self._lock:
            for delivery in deliveries:
                if self._held.get(delivery.row.id) is delivery:
                    del self._held[delivery.row.id]
            empty = not self._held
        if empty:
            self._on_room()

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Forget works that were withdrawn before they started."""
        with self._lock:
            self._unfinished -= in_slots(deliveries)
            self.in_doers -= in_doers(deliveries)
            self.attempts -= len(deliveries)
        self.settle(deliveries)

    @property
    def unfinished(self) -> int:
        """How many claimed works and batches gather, wait for a slot, or run in one."""
        return self._unfinished

    @property
    def active(self) -> int:
        """How many claimed works and batches have not ended."""
        return self._unfinished + self.in_doers

    def all(self) -> list[Delivery]:
        """Return every work held."""
        with self._lock:
            return list(self._held.values())

    def abort(self, reasons: Mapping[str, AbortReason]) -> None:
        """Tell attempts of these works to stop, if they run here."""
        with self._lock:
            held = [(self._held[id], reason) for id, reason in reasons.items() if id in self._held]
        for delivery, reason in held:
            delivery.abort(reason)

    def ids(self) -> set[str]:
        """Return the ids of every work held."""
        with self._lock:
            return set(self._held)

    def all_begun(self) -> bool:
        """Tell whether every work held has started, so that none will be given back."""
        return all(delivery.started_at is not None for delivery in self.all())

    def waiting_longer_than(self, seconds: float) -> list[Delivery]:
        """Return works that have been ready for this long and have not started."""
        before = time.monotonic() - seconds
        return [d for d in self.all() if d.started_at is None and d.ready_at < before]


def in_slots(deliveries: list[Delivery]) -> int:
    """Return how many slots these take; a batch is counted by itself."""
    return sum(not delivery.in_batch and delivery.doer is None for delivery in deliveries)


def in_doers(deliveries: list[Delivery]) -> int:
    """Return how many of these a doer runs; a batch is counted by itself."""
    return sum(not delivery.in_batch and delivery.doer is not None for delivery in deliveries)
