"""Wake-ups through the queue's database: how they are sent, and how a process receives them.

PostgreSQL sends notifications. SQLite tells that another connection has committed. MariaDB and MySQL are
asked for new works by short queries.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import sqlite3
import time
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

from django_ayework.heartbeat import beat, current_heartbeat
from django_ayework.rules.durations import later
from django_ayework.rules.notifications import DUE, Due, Place, due_to_text
from django_ayework.store.database import clock, connection
from django_ayework.store.dialects import Bounds
from django_ayework.store.lanes import FIRST_OF_LANE, IN_LANE, QUEUES, WORK, fetch_each, lanes_behind
from django_ayework.store.processes import live_processes
from django_ayework.store.sessions import engine_session, number_of_socket, own_connection

#: Several may commit at once, and each waits for the lock of those before it, but not for ever.
#: Nor does anybody wait for the disk: what a crash of the server takes is found by polling.
NOTIFY = """
SELECT set_config('lock_timeout', '250ms', true), set_config('synchronous_commit', 'off', true),
       pg_notify(%s, %s)
"""
#: A session that listens is idle on purpose. PostgreSQL has this setting from version 14 on.
NEVER_IDLE = """
SELECT set_config('idle_session_timeout', '0', false)
WHERE current_setting('idle_session_timeout', true) <> '0'
"""
#: PostgreSQL has one name space of channels for everybody who uses a database.
PREFIX = "ayework_"
#: Seconds between two tests of a session that has received nothing, and how long the echo may take.
TEST_EVERY, ECHO_WITHIN = 60.0, 5.0
#: Seconds the echo of another session may take, where sessions are lent.
PROOF_WITHIN = 2.0


def notify(channel: str, message: str) -> None:
    """Send a message by this thread's session: past Django, whose log and counts are about queries.

    Outside of a transaction only: inside, every commit would wait for the one before it.
    """
    wrapper = connection()
    wrapper.ensure_connection()
    raw: Any = wrapper.connection
    try:
        with raw.cursor() as cursor:
            cursor.execute(NOTIFY, (PREFIX + channel, message))
    except Exception:
        wrapper.errors_occurred = True  # so that Django sees whether it can be used again
        raise


def can_notify() -> bool:
    """Tell whether this thread's session is there and outside of a transaction."""
    wrapper = connection()
    return wrapper.connection is not None and not wrapper.in_atomic_block and wrapper.autocommit


class Unsupported(Exception):
    """Messages will never arrive here; the text says why, and what to do."""


class NotificationReceiver:
    """A session of its own, which receives the messages of some channels.

    One thread uses it, and any may interrupt it.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._raw = own_session(alias)
        if (heartbeat := current_heartbeat()) is not None:
            heartbeat.socket = number_of_socket(self._raw)
        self._near, self._far = socket.socketpair()
        self._test_channel = f"{PREFIX}test_{secrets.token_hex(8)}"
        self._followed: set[str] = set()
        self._received: list[tuple[str, str]] = []
        self._test_at = time.monotonic() + TEST_EVERY
        self._echo_by: float | None = None
        self._proof_by: float | None = None
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._near, selectors.EVENT_READ)
        if not hasattr(self._raw, "pgconn"):
            raise Unsupported("Django uses psycopg2 here; install psycopg 3 to receive them.")
        self._raw.add_notify_handler(lambda note: self._note(note.channel, note.payload))
        self._selector.register(self._raw.fileno(), selectors.EVENT_READ)
        self._execute(f"LISTEN {self._test_channel}")
        if self._is_lent():
            self._ask_for_proof()
        else:
            self._execute(NEVER_IDLE)

    def follow(self, channels: set[str]) -> bool:
        """Receive from these channels alone from now on; return False if it is interrupted before.

        Raises Unsupported if nothing would ever be received.
        """
        if self._proof_by is not None and not self._is_proven(self._proof_by):
            return False
        for channel in channels - self._followed:
            self._execute(f"LISTEN {quoted(channel)}")
        for channel in self._followed - channels:
            self._execute(f"UNLISTEN {quoted(channel)}")
        self._followed = set(channels)
        return True

    def receive(self, seconds: float) -> list[tuple[str | None, str]]:
        """Wait for messages at most that long, or until ``interrupt()``; return them with their channels."""
        now = time.monotonic()
        due = self._test_at if self._echo_by is None else self._echo_by
        self._wait(min(seconds, due - now))
        self._test()
        received, self._received = self._received, []
        messages = [(name.removeprefix(PREFIX), text) for name, text in received]
        return [(channel, text) for channel, text in messages if channel in self._followed]

    def interrupt(self) -> None:
        """Let ``receive`` return soon."""
        self._far.send(b"!")

    def close(self) -> None:
        """End the session."""
        with suppress(Exception):
            self._selector.close()
        for end in (self._raw, self._near, self._far):
            with suppress(Exception):
                end.close()

    def _wait(self, seconds: float) -> bool:
        """Wait for messages and take them in; return whether it was interrupted."""
        ready = self._selector.select(max(0.0, seconds))
        is_interrupted = any(key.fileobj is self._near for key, _ in ready)
        if is_interrupted:
            with suppress(BlockingIOError):
                self._near.recv(4096)
        self._take_in()
        return is_interrupted

    def _execute(self, statement: str) -> None:
        """Run a statement that has no parameters."""
        with self._raw.cursor() as cursor:
            cursor.execute(statement)
        self._take_in()

    def _take_in(self) -> None:
        """Read the messages that have come, without waiting. Raises if the session has ended."""
        session = self._raw.pgconn
        session.consume_input()
        while session.transaction_status == ACTIVE and not session.is_busy():
            session.get_result()  # of the last test, until there is none
        while (notification := session.notifies()) is not None:
            self._note(notification.relname.decode(), notification.extra.decode("utf-8", "replace"))

    def _note(self, name: str, text: str) -> None:
        """Keep a message until it is asked for; each shows that the session lives."""
        self._test_at, self._echo_by = time.monotonic() + TEST_EVERY, None
        self._received.append((name, text))

    def _test(self) -> None:
        """Now and then, send a message to this session; if it does not arrive, the session is dead."""
        now = time.monotonic()
        if self._echo_by is not None and now >= self._echo_by:
            raise ConnectionError("a session that received messages receives none")
        if self._echo_by is None and now >= self._test_at:
            self._raw.pgconn.send_query(f"NOTIFY {self._test_channel}".encode())
            self._echo_by = now + ECHO_WITHIN

    def _is_lent(self) -> bool:
        """Return whether a pooler is in between: it names another process than the one that answers."""
        with self._raw.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return bool(cursor.fetchone()[0] != self._raw.info.backend_pid)

    def _ask_for_proof(self) -> None:
        """Send a message by another session: it arrives if ours is lent for good."""
        other = own_session(self._alias)
        try:
            with other.cursor() as cursor:
                cursor.execute(f"NOTIFY {self._test_channel}")
        finally:
            other.close()
        self._proof_by = time.monotonic() + PROOF_WITHIN

    def _is_proven(self, until: float) -> bool:
        """Wait for the proof; return False if interrupted. Raises Unsupported when it does not come."""
        while not self._received:
            if time.monotonic() >= until:
                raise Unsupported(
                    f"notifications do not arrive through the pooler at the alias {self._alias!r}. Set "
                    'AYEWORK["PUBSUB_DATABASE"] to an alias of the same database that leads past the pooler.'
                )
            if self._wait(until - time.monotonic()):
                return False
        self._proof_by = None
        return True


#: libpq's status of a session whose statement has not ended: see ``psycopg.pq.TransactionStatus``.
ACTIVE = 1


def own_session(alias: str) -> Any:
    """Connect as Django would; the session is neither from Django's pool nor any thread's connection."""
    wrapper = own_connection(alias, Bounds(None, None))
    raw: Any = wrapper.get_new_connection(wrapper.get_connection_params())
    raw.autocommit = True
    return raw


def quoted(channel: str) -> str:
    """Return a channel's name as an identifier."""
    name = (PREFIX + channel).replace('"', '""')
    return f'"{name}"'


class DatabaseWatch:
    """Asks the database again and again whether there are new works.

    One thread uses it, and any may interrupt it.
    """

    def __init__(self) -> None:
        self._is_interrupted = False

    def follow(self, channels: set[str]) -> bool:
        """Do nothing: what a watch finds does not depend on the channels."""
        return True

    def receive(self, seconds: float) -> list[tuple[str | None, str]]:
        """Wait at most that long, or until ``interrupt()``; return messages and channels (None: all)."""
        until = time.monotonic() + seconds
        while not self._is_interrupted and time.monotonic() < until:
            messages, rest = self._poll()
            beat()  # the thread does not rest for as long as its next beat may be away
            if messages:
                return messages
            time.sleep(rest)
        self._is_interrupted = False
        return []

    def interrupt(self) -> None:
        """Let ``receive`` return soon."""
        self._is_interrupted = True

    def _poll(self) -> tuple[list[tuple[str | None, str]], float]:
        """Return the messages of one query, and the seconds to wait before the next one."""
        raise NotImplementedError


# MariaDB and MySQL: a short query for pending works.

#: Seconds between two queries, at least: what a work waits for at most, and most of the cost of idling.
LOOK_FOR_WORKS_EVERY = 0.035
#: The same for some seconds after a work has arrived, as more are likely.
LOOK_OFTEN, BUSY_FOR = 0.01, 0.5
#: A rest is this many times as long as the query before it has used a processor. The server uses up to half
#: as much again, so queries take 0.8 % of a core, also where a thread that has slept is slow to begin.
REST = 300
#: The same for the time that the query has taken: a server that is slow to answer is asked less often.
REST_WHEN_SLOW = 4
LONGEST_REST = 1.0
#: More workers than these share the queries of these: each sends fewer, all of them as many as before.
WORKERS = 4
#: Seconds between two readings of how many workers are alive, and within which they were seen.
COUNT_EVERY, SEEN_WITHIN = 10.0, 25.0
#: Pending works up to this number are compared one by one; of more, only the first of each queue and type.
FEW = 20
FIRST_FEW = f"""
SELECT id, queue, type FROM {WORK} WHERE status = 'pending'
ORDER BY queue, type, {IN_LANE} LIMIT {FEW}
"""
FIRST = f"SELECT id, queue, type {FIRST_OF_LANE}"
#: Where the messages come from: no process that enqueues is called so.
ORIGIN = "arrivals"


class ArrivalWatch(DatabaseWatch):
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
            database = connection()
            database.ensure_connection()
            # The driver's own: fifty statements a second are no affair of Django's log and counts.
            self._cursor: Any = database.connection.cursor()
            self._arrived()  # a table that is locked can be connected to, and not read
        except BaseException:
            self.close()
            raise

    def _poll(self) -> tuple[list[tuple[str | None, str]], float]:
        """See DatabaseWatch; the message says where works are due."""
        now = time.monotonic()
        if now >= self._count_at:
            self._count_at = now + COUNT_EVERY
            self._workers = len(live_processes(later(clock.now(), -SEEN_WITHIN)))
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
        """Query; return the places of the works that are there and were not there before."""
        self._cursor.execute(FIRST_FEW)
        found = {id: (queue, type) for id, queue, type in self._cursor.fetchall()}
        self._are_few = len(found) < FEW
        if not self._are_few:
            found = first_of_each_lane()
        before, self._pending = self._pending, set(found)
        return [place for id, place in found.items() if id not in before]

    def _rest(self, now: float, taken: float, used: float) -> float:
        """Return the seconds until the next query, from those the last one has taken and used a processor."""
        often = now < self._busy_until and self._are_few
        usual = LOOK_OFTEN if often else max(LOOK_FOR_WORKS_EVERY, REST * used)
        rest = max(usual * max(1.0, self._workers / WORKERS), REST_WHEN_SLOW * taken)
        return min(rest, LONGEST_REST)


def first_of_each_lane() -> dict[str, Place]:
    """Return the first pending work of each type of each queue, by its id."""
    found = fetch_each(FIRST, [(*lane, 1) for lane in lanes_behind("", QUEUES)])
    return {id: (queue, type) for id, queue, type in found}


# SQLite: the version of the file, which any other connection's commit changes.

#: Seconds between two queries: what a wake-up waits for at most, and most of what an idle worker costs.
LOOK_FOR_COMMITS_EVERY = 0.02


class CommitWatch(DatabaseWatch):
    """Finds that another connection has committed."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._connection = sqlite3.connect(
            file, timeout=0, isolation_level=None, check_same_thread=False, uri=file.startswith("file:")
        )
        self._cursor = self._connection.cursor()
        self._version = self._read()

    def _poll(self) -> tuple[list[tuple[str | None, str]], float]:
        """See DatabaseWatch; a commit does not name its channels, so its message is for all channels."""
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
