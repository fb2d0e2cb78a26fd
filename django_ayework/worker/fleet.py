"""The workers that are alive, as far as one of them knows: from these it computes when it looks."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple

from django_ayework.flow.news.elsewhere import hears_others
from django_ayework.rules.durations import later
from django_ayework.rules.fleet import Delay, delay_of, number_of
from django_ayework.store.clock import clock
from django_ayework.store.processes import living

#: Seconds between two readings of who is alive, and within which they were seen (they beat every 10 s).
READ_EVERY, SEEN_WITHIN = 10.0, 25.0


class Member(NamedTuple):
    """Another worker: its number, and the queues that it serves (all, when empty)."""

    number: int
    queues: frozenset[str]


class Fleet:
    """The other workers. Until it has been read, a worker believes that it is alone."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._own = number_of(worker_id)
        self._others: tuple[Member, ...] = ()
        self._read_at = float("-inf")

    def refresh(self) -> None:
        """Read who is alive, if that is some seconds old and there is anybody to hear messages from."""
        now = time.monotonic()
        if now - self._read_at < READ_EVERY or not hears_others():
            return
        self._read_at = now
        self._others = tuple(
            Member(number_of(id), frozenset(filter(None, queues.split(","))))
            for id, queues in living(later(clock.now(), -SEEN_WITHIN))
            if id != self._worker_id
        )

    def delay(self, message: int, queues: Collection[str], works: int) -> Delay:
        """Return this worker's delay among those that serve any of these queues."""
        others = [m.number for m in self._others if not m.queues or not m.queues.isdisjoint(queues)]
        return delay_of(message, self._own, others, works)
