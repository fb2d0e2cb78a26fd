"""Watching for new works without notifications: commits of SQLite, short queries of MariaDB and MySQL."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack
from itertools import count, groupby
from typing import Any

from django.db import connections

from django_ayework.rules.durations import later
from django_ayework.rules.notifications import DUE, Due, Place, due_to_text
from django_ayework.store.attempts import living
from django_ayework.store.clock import clock
from django_ayework.store.database import connection
from django_ayework.store.lanes import IN_LANE, QUEUES, WORK, heads_of, lanes_behind
from django_ayework.store.sessions import engine_session


class Watch:
    """Asks the database again and again whether there are new works. One thread uses it, any may ring."""

    def __init__(self) -> None:
        self._is_rung = False

    def follow(self, channels: set[str]) -> bool:
        """Do nothing: what a watch finds does not depend on the channels."""
        return True

    def hear(self, seconds: float) -> list[tuple[str | None, str]]:
        """Wait at most that long, or until ``ring()``; return messages with their channels (None: all)."""
        until = time.monotonic() + seconds
        while not self._is_rung and time.monotonic() < until:
            messages, rest = self._look()
            if messages:
                return messages
            time.sleep(rest)
        self._is_rung = False
        return []

    def ring(self) -> None:
        """Let ``hear`` return soon."""
        self._is_rung = True

    def _look(self) -> tuple[list[tuple[str | None, str]], float]:
        """Return the messages of one query, and the seconds to wait before the next one."""
        raise NotImplementedError


# MariaDB and MySQL: a short query for pending works.

#: Seconds between two looks, at least: what a work waits for at most, and most of what an idle worker costs.
LOOK_FOR_WORKS_EVERY = 0.035
#: The same for some seconds after a work has arrived, as more are likely.
LOOK_OFTEN, BUSY_FOR = 0.01, 0.5
#: A rest is this many times as long as the look before it has used a processor. The server uses up to half
#: as much again, so looks take 0.8 % of a core, also where a thread that has slept is slow to begin.
REST = 300
#: The same for the time that the look has taken: a server that is slow to answer is asked less often.
REST_WHEN_SLOW = 4
LONGEST_REST = 1.0
#: More workers than these share the looks of these: each looks less often, all of them as often as before.
WORKERS = 4
#: Seconds between two readings of how many workers are alive, and within which they were seen.
COUNT_EVERY, SEEN_WITHIN = 10.0, 25.0
#: Pending works up to this number are told apart one by one; of more, only the first of each queue and type.
FEW = 20
FIRST_FEW = f"""
SELECT id, queue, type FROM {WORK} WHERE status = 'pending'
ORDER BY queue, type, {IN_LANE} LIMIT {FEW}
"""
#: Where the messages come from: no process that enqueues is called so.
ORIGIN = "arrivals"


class ArrivalWatch(Watch):
    """Finds works that have become pending.

    A work that stays pending is reported once: its queue may be paused, or served by no worker.
    """

    def __init__(self) -> None:
        super().__init__()
        self._session = ExitStack()
        self._session.enter_context(engine_session())
        self._pending: set[str] = set()
        self._are_few = True
        self._numbers = count()
        self._workers = 0
        self._count_at = self._busy_until = float("-inf")
        try:
            self._cursor = own_cursor()
        except BaseException:
            self.close()
            raise

    def _look(self) -> tuple[list[tuple[str | None, str]], float]:
        """See Watch; the message says where works are due."""
        now = time.monotonic()
        if now >= self._count_at:
            self._count_at = now + COUNT_EVERY
            self._workers = len(living(later(clock.now(), -SEEN_WITHIN)))
        used = time.thread_time()
        if arrived := self._arrived():
            self._busy_until = now + BUSY_FOR
            due = Due(frozenset(arrived), works=len(arrived))
            return [(DUE, due_to_text(due, ORIGIN, next(self._numbers)))], 0.0
        return [], self._rest(now, time.monotonic() - now, time.thread_time() - used)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _arrived(self) -> list[Place]:
        """Look; return the places of the works that are there and were not there before."""
        self._cursor.execute(FIRST_FEW)
        found = {id: (queue, type) for id, queue, type in self._cursor.fetchall()}
        self._are_few = len(found) < FEW
        if not self._are_few:
            found = first_of_each_lane()
        before, self._pending = self._pending, set(found)
        return [place for id, place in found.items() if id not in before]

    def _rest(self, now: float, taken: float, used: float) -> float:
        """Return the seconds until the next look, from those the last one has taken and used a processor."""
        often = now < self._busy_until and self._are_few
        usual = LOOK_OFTEN if often else max(LOOK_FOR_WORKS_EVERY, REST * used)
        rest = max(usual * max(1.0, self._workers / WORKERS), REST_WHEN_SLOW * taken)
        return min(rest, LONGEST_REST)


def first_of_each_lane() -> dict[str, Place]:
    """Return the first pending work of each type of each queue, by its id."""
    lanes = groupby(lanes_behind("", QUEUES), key=lambda lane: lane.queue)
    return {
        head.id: (queue, head.type)
        for queue, some in lanes
        for head in heads_of(queue, {lane.type: 1 for lane in some})
    }


def own_cursor() -> Any:
    """Return the driver's own cursor: fifty statements a second are no affair of Django's log and counts."""
    database = connection()
    database.ensure_connection()
    return database.connection.cursor()


# SQLite: the version of the file, which any other connection's commit changes.

#: Seconds between two looks: what a wake-up waits for at most, and most of what an idle worker costs.
LOOK_FOR_COMMITS_EVERY = 0.02


def file_of(alias: str) -> str | None:
    """Return the file of an SQLite database; None for one in memory, and for other databases."""
    wrapper = connections[alias]
    if wrapper.vendor != "sqlite":
        return None
    name = str(wrapper.settings_dict["NAME"])
    return None if ":memory:" in name or "mode=memory" in name else name


class CommitWatch(Watch):
    """Finds that another connection has committed."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._connection = sqlite3.connect(
            file,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            uri=file.startswith("file:"),
        )
        self._cursor = self._connection.cursor()
        self._version = self._read()

    def _look(self) -> tuple[list[tuple[str | None, str]], float]:
        """See Watch; a commit does not say what it is about, so its message is for all channels."""
        before, self._version = self._version, self._read()
        return ([(None, "")] if self._version != before else []), LOOK_FOR_COMMITS_EVERY

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _read(self) -> int:
        """Return a number that changes with every commit of others; it reads one page, and takes no lock."""
        try:
            return int(self._cursor.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.OperationalError:  # it is being recovered, or was busy: next time
            return -1
