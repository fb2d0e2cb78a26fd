"""Messages by way of Redis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_ayework.conf import get_settings
from django_ayework.ports.pubsub.listener import CannotHear, Ear, Listening

#: Before the name of each channel: others may use the same server.
PREFIX = "ayework:"
#: Seconds that whoever publishes may be kept by a server that does not answer.
PATIENCE = 0.25
#: Seconds to connect when there is time, and between two signs of life of a connection.
CONNECT_TIMEOUT, TEST_EVERY = 5.0, 30.0
#: Seconds a listener waits at a time, as nothing can ring it.
WAIT = 0.25


class RedisPubSub(Listening):
    """Sends to the server at ``AYEWORK["REDIS_URL"]``, and hears from it."""

    reaches_others = True
    is_quick = True

    def __init__(self) -> None:
        super().__init__("listener", open_ear)

    def forget(self) -> None:
        """See Listening.forget()."""
        super().forget()
        self._client: tuple[str, Any] | None = None

    def publish(self, channel: str, message: str) -> None:
        """See PubSub.publish()."""
        url = url_of_server()
        if self._client is None or self._client[0] != url:
            self._client = url, client_of(url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
        self._client[1].publish(PREFIX + channel, message)

    def close(self) -> None:
        """See PubSub.close()."""
        super().close()
        client, self._client = self._client, None
        if client is not None:
            client[1].close()


class RedisEar:
    """A connection that hears channels of a Redis server."""

    def __init__(self, url: str) -> None:
        options = {"socket_connect_timeout": CONNECT_TIMEOUT, "health_check_interval": TEST_EVERY}
        self._client = client_of(url, socket_timeout=CONNECT_TIMEOUT, socket_keepalive=True, **options)
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        self._followed: set[str] = set()

    def follow(self, channels: set[str]) -> bool:
        """See Ear.follow()."""
        if fresh := channels - self._followed:
            self._pubsub.subscribe(*(PREFIX + channel for channel in fresh))
        if gone := self._followed - channels:
            self._pubsub.unsubscribe(*(PREFIX + channel for channel in gone))
        self._followed = set(channels)
        return True

    def hear(self, seconds: float) -> Iterable[tuple[str | None, str]]:
        """See Ear.hear()."""
        message = self._pubsub.get_message(timeout=min(seconds, WAIT))
        if message is None or message["type"] != "message":
            return []
        channel = message["channel"].decode("utf-8", "replace")
        return [(channel.removeprefix(PREFIX), message["data"].decode("utf-8", "replace"))]

    def ring(self) -> None:
        """Do nothing: ``hear`` never takes long."""

    def close(self) -> None:
        """See Ear.close()."""
        self._pubsub.close()
        self._client.close()


def open_ear() -> Ear:
    """Connect to the server."""
    try:
        return RedisEar(url_of_server())
    except ImproperlyConfigured as reason:
        raise CannotHear(str(reason)) from None


def url_of_server() -> str:
    """Return where the server is. Raises ImproperlyConfigured if nobody has said so."""
    url = get_settings().redis_url
    if not url:
        raise ImproperlyConfigured('expected AYEWORK["REDIS_URL"] to be the address of a Redis server.')
    return url


def client_of(url: str, **options: Any) -> Any:
    """Return a client that tries each command once: wake-ups are worth no more."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as missing:
        raise ImproperlyConfigured(
            "wake-ups by way of Redis need the package redis: pip install django-ayework[redis]."
        ) from missing
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
