"""What a Queue is, and a Queue within one process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple, Protocol, runtime_checkable

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings


class PoppedId(NamedTuple):
    """An id that was popped, and its queue. ``handle`` is the name that the Queue gave to the delivery."""

    queue: str
    id: str
    handle: str


@runtime_checkable
class Queue(Protocol):
    """Delivers ids of works from all processes that it reaches, each id to one worker, first in, first out.

    Delivery is at least once. A popped id that was neither acknowledged nor put back lapses after a time (the
    setting ``LEASE``), and is popped again. An id that is lost, doubled or out of order costs latency only,
    because workers claim works in the database. So an implementation may

    - drop the oldest ids when there are many,
    - let the acknowledgement of a lapsed delivery count for the later one,
    - store ids that are pushed together as one entry. Then they are popped together, even if ``pop`` asked
      for fewer, and the acknowledgement of one of them counts for all that were not put back.

    Any thread may call any method. All methods but ``pop`` return soon. They raise an error when they cannot
    reach their server.

    ``django_ayework.testing.conformance.QueueConformance`` tells whether an implementation does this.
    """

    def push(self, name: str, ids: Sequence[str]) -> None:
        """Add ids to a queue, in this order."""
        ...

    def pop(self, names: Sequence[str], most: int, wait: float) -> list[PoppedId]:
        """Return some ids of these queues, at most about ``most``: lapsed ones first, then those in order.

        Each queue that has ids gives some, at most an equal part, rounded up. Waits for the first id at most
        ``wait`` seconds.
        """
        ...

    def ack(self, popped: Iterable[PoppedId]) -> None:
        """Acknowledge ids: they are not delivered again."""
        ...

    def put_back(self, popped: Iterable[PoppedId]) -> None:
        """Release popped ids, so others can pop them. They may come after all other ids."""
        ...

    def close(self) -> None:
        """End connections. It may be used again afterwards."""
        ...


def lapse_of(given: float | None) -> float:
    """Return after how many seconds a popped id lapses."""
    return get_settings().lease if given is None else given


def part_of(most: int, names: Sequence[str]) -> int:
    """Return how many ids each of these queues gives.

    >>> part_of(5, ["bulk", "mail"])
    3
    """
    return -(-most // len(names))


class LocalQueue:
    """Delivers to the workers of this process. ``lapse`` is in seconds; None is the setting ``LEASE``."""

    def __init__(self, lapse: float | None = None) -> None:
        self._lapse = lapse
        self._reset()
        after_fork_in_child(self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiting: dict[str, deque[str]] = {}
        #: By handle, in the order in which they lapse: the popped id, and the monotonic second of that.
        self._popped: dict[str, tuple[PoppedId, float]] = {}
        self._handles = count()

    def push(self, name: str, ids: Sequence[str]) -> None:
        """See Queue.push()."""
        with self._changed:
            self._waiting.setdefault(name, deque()).extend(ids)
            self._changed.notify_all()

    def pop(self, names: Sequence[str], most: int, wait: float) -> list[PoppedId]:
        """See Queue.pop()."""
        with self._changed:
            self._bring_back_lapsed()
            self._changed.wait_for(lambda: any(self._waiting.get(name) for name in names), wait)
            number = part_of(most, names)
            return [popped for name in names for popped in self._take(name, number)]

    def ack(self, popped: Iterable[PoppedId]) -> None:
        """See Queue.ack()."""
        with self._changed:
            for each in popped:
                self._popped.pop(each.handle, None)

    def put_back(self, popped: Iterable[PoppedId]) -> None:
        """See Queue.put_back()."""
        with self._changed:
            for each in popped:
                if self._popped.pop(each.handle, None) is not None:
                    self._waiting[each.queue].appendleft(each.id)
            self._changed.notify_all()

    def close(self) -> None:
        """See Queue.close()."""

    def _take(self, name: str, number: int) -> list[PoppedId]:
        """Pop so many ids of a queue; the caller has the lock."""
        waiting = self._waiting.get(name, deque())
        taken = [
            PoppedId(name, waiting.popleft(), str(next(self._handles)))
            for _ in range(min(number, len(waiting)))
        ]
        lapses_at = time.monotonic() + lapse_of(self._lapse)
        self._popped.update({popped.handle: (popped, lapses_at) for popped in taken})
        return taken

    def _bring_back_lapsed(self) -> None:
        """Let ids that were popped too long ago be popped again; the caller has the lock."""
        now = time.monotonic()
        for handle, (popped, lapses_at) in list(self._popped.items()):
            if lapses_at > now:
                return
            del self._popped[handle]
            self._waiting[popped.queue].appendleft(popped.id)
