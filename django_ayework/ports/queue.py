"""Queues: they deliver the ids of due works to workers, outside of the database, here or by Redis Streams."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.documentation import logged
from django_ayework.logs import logger
from django_ayework.ports.redis import PATIENCE, PREFIX, Client

__all__ = ["PoppedId", "Queue", "get_queue"]


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


# By way of Redis Streams

#: An entry of a stream, whose fields are None once it was cut off; and what reads entries of some queues.
Entry: TypeAlias = tuple[bytes, dict[bytes, bytes] | None]
Read: TypeAlias = Callable[..., list[PoppedId]]
#: The names of all consumers and of their group. A stream needs no more, as each entry goes to one reader
#: whatever its name is, and names of processes that have ended would stay in the stream.
GROUP = CONSUMER = "workers"
#: About how many entries a stream has. Beyond that the oldest are dropped, and workers find their works.
LONGEST_STREAM = 20_000
#: Ids of one entry, at most. The client and the server need about as long for an entry as for many ids.
MOST_IN_ENTRY = 50
#: Entries that are read at once, at most.
MOST_READ = 64
#: Seconds for which a reader waits at a time, and that an answer may take beyond that.
LONGEST_WAIT, ANSWER = 1.0, 2.0


class RedisStreamsQueue:
    """Keeps a stream for each queue on the server at ``AYEWORK["REDIS_URL"]``, Redis 6.2 or newer.

    Many ids that are pushed together share entries: they are popped together, and acknowledged together. An
    entry that is acknowledged is deleted. ``lapse`` is in seconds; None is the setting ``LEASE``.
    """

    def __init__(self, lapse: float | None = None) -> None:
        self._lapse = lapse
        self._writer = Client(socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
        self._reader = Client(socket_timeout=LONGEST_WAIT + ANSWER, socket_connect_timeout=ANSWER)
        #: When to look for lapsed entries again, in monotonic seconds.
        self._look_at = 0.0
        #: How many ids the entries had that were read last.
        self._ids_per_entry = MOST_IN_ENTRY

    def push(self, name: str, ids: Sequence[str]) -> None:
        """See Queue.push()."""
        pipeline = self._writer.get().pipeline(transaction=False)
        add_entries(pipeline, name, ids)
        pipeline.execute()

    def pop(self, names: Sequence[str], most: int, wait: float) -> list[PoppedId]:
        """See Queue.pop()."""
        number = min(MOST_READ, max(1, part_of(most, names) // self._ids_per_entry))
        return self._in_groups(names, self._claim_lapsed, number) or self._in_groups(
            names, self._read, number, wait
        )

    def ack(self, popped: Iterable[PoppedId]) -> None:
        """See Queue.ack()."""
        self._drop(popped, again=False)

    def put_back(self, popped: Iterable[PoppedId]) -> None:
        """See Queue.put_back(). The ids come behind all others, as a stream has no way back."""
        self._drop(popped, again=True)

    def close(self) -> None:
        """See Queue.close()."""
        self._writer.close()
        self._reader.close()

    def _read(self, names: Sequence[str], number: int, wait: float) -> list[PoppedId]:
        """Read entries that no reader has got; a block of 0 would wait for ever."""
        streams = {key_of(name): ">" for name in names}
        block = max(1, round(min(wait, LONGEST_WAIT) * 1000))
        found = self._reader.get().xreadgroup(GROUP, CONSUMER, streams, count=number, block=block)
        popped = [each for key, entries in found for each in self._popped(name_of(key), entries)]
        if popped:
            self._ids_per_entry = -(-len(popped) // sum(len(entries) for _, entries in found))
        return popped

    def _claim_lapsed(self, names: Sequence[str], number: int) -> list[PoppedId]:
        """Take entries over that a reader has kept for too long; look for them some times per lapse."""
        lapse, now = lapse_of(self._lapse), time.monotonic()
        if now < self._look_at:
            return []
        lapsed: list[PoppedId] = []
        for name in names:
            _, entries, *_ = self._reader.get().xautoclaim(
                key_of(name), GROUP, CONSUMER, round(lapse * 1000), count=number
            )
            lapsed += self._popped(name, entries)
        if not lapsed:
            self._look_at = now + lapse / 4
        return lapsed

    def _popped(self, name: str, entries: Iterable[Entry]) -> list[PoppedId]:
        """Return the ids of entries. Those that were cut off have none; unreadable ones are dropped."""
        popped: list[PoppedId] = []
        unreadable: list[PoppedId] = []
        for key, fields in entries:
            if fields is None:
                continue
            if ids := ids_of(fields):
                popped += [PoppedId(name, id, key.decode()) for id in ids]
                continue
            unreadable.append(PoppedId(name, "", key.decode()))
            logger.warning(
                "The entry %s of the stream %s has no readable ids and is deleted. %s",
                key.decode(), key_of(name), logged("entry-not-read"),
            )  # fmt: skip
        if unreadable:
            self.ack(unreadable)
        return popped

    def _in_groups(self, names: Sequence[str], read: Read, *args: Any) -> list[PoppedId]:
        """Read by the groups of these streams; make those that are missing, as after a flush."""
        from redis.exceptions import ResponseError

        with suppress(ResponseError):  # a group is missing, or any other error, which comes again
            return read(names, *args)
        for name in names:
            try:
                self._reader.get().xgroup_create(key_of(name), GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):  # another worker was first
                    raise
        return read(names, *args)

    def _drop(self, popped: Iterable[PoppedId], again: bool) -> None:
        """Delete entries, and add their ids once more if they are to be popped again."""
        by_name = defaultdict[str, list[PoppedId]](list)
        for each in popped:
            by_name[each.queue].append(each)
        pipeline = self._writer.get().pipeline(transaction=again)
        for name, some in by_name.items():
            handles = {each.handle for each in some}
            if again:
                add_entries(pipeline, name, [each.id for each in some])
            pipeline.xack(key_of(name), GROUP, *handles)
            pipeline.xdel(key_of(name), *handles)
        pipeline.execute()


def add_entries(pipeline: Any, name: str, ids: Sequence[str]) -> None:
    """Add entries with these ids. Few ids have an entry each, so that several workers can take them."""
    size = min(MOST_IN_ENTRY, 1 + len(ids) // 40)
    for start in range(0, len(ids), size):
        entry = {"ids": json.dumps(ids[start : start + size])}
        pipeline.xadd(key_of(name), entry, maxlen=LONGEST_STREAM, approximate=True)


def ids_of(fields: dict[bytes, bytes]) -> list[str]:
    """Return the ids of an entry; none if something else than a Queue has added it."""
    try:
        ids = json.loads(fields[b"ids"])
    except (KeyError, ValueError, RecursionError):
        return []
    return ids if isinstance(ids, list) and all(isinstance(id, str) for id in ids) else []


def key_of(name: str) -> str:
    """Return the key of a queue's stream."""
    return f"{PREFIX}queue:{name}"


def name_of(key: bytes) -> str:
    """Return the queue of a stream.

    >>> name_of(key_of("bulk").encode())
    'bulk'
    """
    return key.decode().removeprefix(f"{PREFIX}queue:")


# The Queue of the settings

#: Ours: one object of each for the whole process.
BUILT_IN: dict[str, Queue] = {"redis-streams": RedisStreamsQueue(), "local": LocalQueue()}


def get_queue(name: str) -> Queue:
    """Return the Queue that delivers the ids of a queue. Raises KeyError for a queue without delivery."""
    chosen = get_settings().queues[name].delivery
    return BUILT_IN[chosen] if isinstance(chosen, str) else cast(Queue, chosen)
