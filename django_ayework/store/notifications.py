"""Notifications of PostgreSQL: sent by any session, heard by a session of their own."""

from __future__ import annotations

import secrets
import selectors
import socket
import time
from contextlib import suppress
from copy import deepcopy
from typing import Any

from django.db import connections

from django_ayework.heartbeat import current_heartbeat
from django_ayework.store.database import connection
from django_ayework.store.sessions import number_of_socket

#: Several may commit at once, and each waits for the lock of those before it, but not for ever.
#: Nor does anybody wait for the disk: what a crash of the server takes is found by polling.
NOTIFY = """
SELECT set_config('lock_timeout', '250ms', true), set_config('synchronous_commit', 'off', true),
       pg_notify(%s, %s)
"""
#: PostgreSQL has one name space of channels for everybody who uses a database.
PREFIX = "ayework_"
#: Seconds to connect, unless the project says otherwise.
CONNECT_TIMEOUT = 10
#: Seconds between two tests of a session that nothing was heard by, and how long the echo may take.
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


class Deaf(Exception):
    """The session cannot hear, and never will."""


class Ear:
    """A session of its own, which hears what is sent to some channels. One thread uses it, any may ring."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._raw = own_session(alias)
        if (heartbeat := current_heartbeat()) is not None:
            heartbeat.socket = number_of_socket(self._raw)
        self._near, self._far = socket.socketpair()
        self._test_channel = f"{PREFIX}test_{secrets.token_hex(8)}"
        self._followed: set[str] = set()
        self._heard: list[tuple[str, str]] = []
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
            raise Deaf("Django uses psycopg2 here; install psycopg 3 to hear them.")
        self._raw.add_notify_handler(lambda note: self._note(note.channel, note.payload))
        self._selector.register(self._raw.fileno(), selectors.EVENT_READ)
        self._execute(f"LISTEN {self._test_channel}")
        if self._is_lent():
            self._ask_for_proof()

    def follow(self, channels: set[str]) -> bool:
        """Hear these channels from now on, and no others; return False if somebody rings before that.

        Raises Deaf if they would never be heard.
        """
        if self._proof_by is not None and not self._is_proven(self._proof_by):
            return False
        for channel in channels - self._followed:
            self._execute(f"LISTEN {quoted(channel)}")
        for channel in self._followed - channels:
            self._execute(f"UNLISTEN {quoted(channel)}")
        self._followed = set(channels)
        return True

    def hear(self, seconds: float) -> list[tuple[str | None, str]]:
        """Wait for messages at most that long, or until somebody rings; return them with their channels."""
        now = time.monotonic()
        due = self._test_at if self._echo_by is None else self._echo_by
        self._wait(min(seconds, due - now))
        self._test()
        heard, self._heard = self._heard, []
        return [(name[len(PREFIX) :], text) for name, text in heard if name[len(PREFIX) :] in self._followed]

    def ring(self) -> None:
        """Let ``hear`` return soon."""
        self._far.send(b"!")

    def close(self) -> None:
        """End the session."""
        with suppress(Exception):
            self._selector.close()
        for end in (self._raw, self._near, self._far):
            with suppress(Exception):
                end.close()

    def _wait(self, seconds: float) -> bool:
        """Wait for messages and take them in; return whether somebody rang."""
        ready = self._selector.select(max(0.0, seconds))
        is_rung = any(key.fileobj is self._near for key, _ in ready)
        if is_rung:
            with suppress(BlockingIOError):
                self._near.recv(4096)
        self._take_in()
        return is_rung

    def _execute(self, statement: str) -> None:
        """Run a statement that has no parameters."""
        with self._raw.cursor() as cursor:
            cursor.execute(statement)
        self._take_in()

    def _take_in(self) -> None:
        """Read what has come, without waiting. Raises if the session has ended."""
        session = self._raw.pgconn
        session.consume_input()
        while session.transaction_status == ACTIVE and not session.is_busy():
            session.get_result()  # of the last test, until there is none
        while (notification := session.notifies()) is not None:
            self._note(notification.relname.decode(), notification.extra.decode("utf-8", "replace"))

    def _note(self, name: str, text: str) -> None:
        """Keep a message until it is asked for; whatever is heard shows that the session lives."""
        self._test_at, self._echo_by = time.monotonic() + TEST_EVERY, None
        self._heard.append((name, text))

    def _test(self) -> None:
        """Now and then, send a message to oneself; a session that does not hear it is dead."""
        now = time.monotonic()
        if self._echo_by is not None and now >= self._echo_by:
            raise ConnectionError("nothing is heard by a session that was heard before")
        if self._echo_by is None and now >= self._test_at:
            self._raw.pgconn.send_query(f"NOTIFY {self._test_channel}".encode())
            self._echo_by = now + ECHO_WITHIN

    def _is_lent(self) -> bool:
        """Tell whether a pooler is in between: its clients are told another process than answers them."""
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
        """Wait for the proof; return False if somebody rings before it. Raises Deaf when it does not come."""
        while not self._heard:
            if time.monotonic() >= until:
                raise Deaf(
                    f"LISTEN is not heard through the pooler at the alias {self._alias!r}. Set "
                    'AYEWORK["PUBSUB_DATABASE"] to an alias of the same database that leads past the pooler.'
                )
            if self._wait(until - time.monotonic()):
                return False
        self._proof_by = None
        return True


#: What libpq calls a session whose statement has not ended: see ``psycopg.pq.TransactionStatus``.
ACTIVE = 1


def own_session(alias: str) -> Any:
    """Connect as Django would; the session is neither from Django's pool nor any thread's connection."""
    wrapper = connections.create_connection(alias)
    wrapper.settings_dict = deepcopy(wrapper.settings_dict)
    wrapper.settings_dict["OPTIONS"].pop("pool", None)
    params = {"connect_timeout": CONNECT_TIMEOUT, **wrapper.get_connection_params()}
    raw = wrapper.get_new_connection(params)
    raw.autocommit = True
    return raw


def quoted(channel: str) -> str:
    """Return a channel's name as an identifier."""
    name = (PREFIX + channel).replace('"', '""')
    return f'"{name}"'
