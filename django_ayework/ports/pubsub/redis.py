"""Messages by way of Redis."""

from __future__ import annotations

import time
from collections.abc import Iterable

from django.core.exceptions import ImproperlyConfigured

from django_ayework.ports.pubsub.listener import Listening
from django_ayework.ports.redis import PATIENCE, PREFIX, Client, client_of, url_of_server
from django_ayework.store.notifications import Unsupported

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
