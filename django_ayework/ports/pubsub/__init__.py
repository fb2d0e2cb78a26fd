"""Wake-ups: short messages that may be lost, from process to process; by the database, or by Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.ports.pubsub.base import Listener, Listening, LocalPubSub, PollingPubSub, PubSub
from django_ayework.ports.redis import PATIENCE, PREFIX, Client, client_of, url_of_server
from django_ayework.rules.notifications import DUE
from django_ayework.store import notifications
from django_ayework.store.database import alias, database_file, dialect
from django_ayework.store.notifications import ArrivalWatch, CommitWatch, Unsupported

__all__ = ["PubSub", "get_pubsub"]

# By the database: messages on PostgreSQL, new works that are watched for on the others

RECEIVING, SENDING, WATCHING = "receiving wake-ups", "sending many", "watching for new works"


class PostgresPubSub(Listening):
    """Sends by the session of the publishing thread, outside of a transaction; receives by its own session.

    That one leads by ``AYEWORK["PUBSUB_DATABASE"]``, another way to the same database, if that is set.
    """

    @property
    def connections(self) -> tuple[str, ...]:
        """The purposes of connections to the queue's database besides those of the engine's threads."""
        return (SENDING,) if get_settings().pubsub_database else (RECEIVING, SENDING)

    @property
    def is_quick(self) -> bool:
        """Whether this thread has a session at hand that can send one short statement."""
        return notifications.can_notify()

    def publish(self, channel: str, message: str) -> None:
        """See PubSub.publish()."""
        notifications.notify(channel, message)

    def open_receiver(self) -> notifications.NotificationReceiver:
        """See Listening."""
        return notifications.NotificationReceiver(get_settings().pubsub_database or alias())


class Watching(Listening):
    """Sends no messages: listeners see the commit themselves."""

    reaches_others = False
    is_quick = True

    def publish(self, channel: str, message: str) -> None:
        """Send nothing."""


class MariadbPubSub(Watching):
    """Calls listeners for due works with a message that names those, soon after they became pending.

    It receives nothing else, so ``is_live`` is False: workers poll for the rest as often as without it.
    """

    name = "arrivals"
    receives_all = False
    #: The purposes of connections to the queue's database besides those of the engine's threads.
    connections = (WATCHING,)

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """See PubSub.subscribe(); other channels have no messages, so no connection is opened for them."""
        return super().subscribe(channel, listener) if channel == DUE else lambda: None

    def open_receiver(self) -> ArrivalWatch:
        """Watch the queue's table."""
        if dialect().vendor != "mysql":
            raise Unsupported(f"the database {alias()!r} is neither MariaDB nor MySQL.")
        return ArrivalWatch()


class SqlitePubSub(Watching):
    """Calls every listener with an empty message soon after any commit, of this process too."""

    name = "commits"

    def open_receiver(self) -> CommitWatch:
        """Watch the queue's file."""
        if (file := database_file()) is None:
            raise Unsupported(f"the database {alias()!r} is not an SQLite file.")
        return CommitWatch(file)


# By way of Redis

#: Seconds to connect when there is time.
CONNECT_TIMEOUT = 5.0
#: Seconds between two tests of a connection that has received nothing, and how long the answer may take.
TEST_EVERY, ANSWER_WITHIN = 30.0, 5.0
#: Seconds a listener waits at a time, as nothing can interrupt it.
WAIT = 0.25


class RedisPubSub(Listening):
    """Sends to the server at ``AYEWORK["REDIS_URL"]``, and receives from it."""

    is_quick = True

    def forget(self) -> None:
        """See Listening.forget()."""
        super().forget()
        self._client = Client(socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)

    def publish(self, channel: str, message: str) -> None:
        """See PubSub.publish()."""
        self._client.get().publish(PREFIX + channel, message)

    def close(self) -> None:
        """See PubSub.close()."""
        super().close()
        self._client.close()

    def open_receiver(self) -> RedisReceiver:
        """See Listening."""
        try:
            return RedisReceiver(url_of_server())
        except ImproperlyConfigured as reason:
            raise Unsupported(str(reason)) from None


class RedisReceiver:
    """A connection that receives from channels of a Redis server."""

    def __init__(self, url: str) -> None:
        options = {"socket_connect_timeout": CONNECT_TIMEOUT, "socket_timeout": CONNECT_TIMEOUT}
        self._client = client_of(url, socket_keepalive=True, **options)
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        self._followed: set[str] = set()
        self._test_at = time.monotonic() + TEST_EVERY
        self._answer_by: float | None = None

    def follow(self, channels: set[str]) -> bool:
        """See Receiver.follow()."""
        if fresh := channels - self._followed:
            self._pubsub.subscribe(*(PREFIX + channel for channel in fresh))
        if gone := self._followed - channels:
            self._pubsub.unsubscribe(*(PREFIX + channel for channel in gone))
        self._followed = set(channels)
        return True

    def receive(self, seconds: float) -> Iterable[tuple[str | None, str]]:
        """See Receiver.receive()."""
        message = self._pubsub.get_message(timeout=min(seconds, WAIT))
        self._test(is_alive=message is not None)
        if message is None or message["type"] != "message":
            return []
        channel = message["channel"].decode("utf-8", "replace")
        return [(channel.removeprefix(PREFIX), message["data"].decode("utf-8", "replace"))]

    def _test(self, is_alive: bool) -> None:
        """Now and then, ask the server for an answer; if none arrives, the connection is dead."""
        now = time.monotonic()
        if is_alive:
            self._test_at, self._answer_by = now + TEST_EVERY, None
        elif self._answer_by is not None and now >= self._answer_by:
            raise ConnectionError("a connection that received messages receives none")
        elif self._answer_by is None and now >= self._test_at:
            self._pubsub.ping()
            self._answer_by = now + ANSWER_WITHIN

    def interrupt(self) -> None:
        """Do nothing: ``receive`` never takes long."""

    def close(self) -> None:
        """See Receiver.close()."""
        self._pubsub.close()
        self._client.close()


# The PubSub of the settings

#: Ours: one object of each for the whole process.
BUILT_IN: dict[str, PubSub] = {
    "postgres": PostgresPubSub(),
    "sqlite": SqlitePubSub(),
    "mariadb": MariadbPubSub(),
    "redis": RedisPubSub(),
    "local": LocalPubSub(),
    "polling": PollingPubSub(),
}


@cache
def get_pubsub() -> PubSub:
    """Return the PubSub that ``AYEWORK["PUBSUB"]`` chooses."""
    chosen = get_settings().pubsub
    if chosen == "auto":
        return BUILT_IN[automatic()]
    return BUILT_IN[chosen] if isinstance(chosen, str) else cast(PubSub, chosen)


def automatic() -> str:
    """Return the name of the PubSub that fits the database and needs no other server, if there is one."""
    if dialect().vendor == "postgresql":
        return "postgres"
    if database_file() is not None:
        return "sqlite"
    if get_settings().redis_url:
        return "redis"
    return "mariadb" if dialect().vendor == "mysql" else "local"


def forget_all() -> None:
    """Begin anew in a forked process: the listeners, threads and connections are its parent's."""
    for pubsub in BUILT_IN.values():
        forget: Any = getattr(pubsub, "forget", None)
        if forget is not None:
            forget()


def choose_again(**kwargs: object) -> None:
    """Forget the choice when a test changes the settings."""
    get_pubsub.cache_clear()


after_fork_in_child(forget_all)
setting_changed.connect(choose_again, dispatch_uid="django_ayework.ports.pubsub")
