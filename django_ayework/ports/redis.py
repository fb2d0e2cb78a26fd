"""Clients of the Redis server that the settings name."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_ayework.conf import get_settings
from django_ayework.documentation import documented

#: Before each name of ours: others may use the same server.
PREFIX = "ayework:"
#: Seconds for which a server that does not answer may delay a thread that has committed.
PATIENCE = 0.25


class Client:
    """A client of the server at ``AYEWORK["REDIS_URL"]``, made when it is first needed."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._made: tuple[str, Any] | None = None

    def get(self) -> Any:
        """Return the client. Raises ImproperlyConfigured without an address, or without the package."""
        url = url_of_server()
        if self._made is None or self._made[0] != url:
            self._made = url, client_of(url, **self._options)
        return self._made[1]

    def close(self) -> None:
        """End the connections; the next call of ``get`` makes a client again."""
        made, self._made = self._made, None
        if made is not None:
            made[1].close()


def url_of_server() -> str:
    """Return where the server is. Raises ImproperlyConfigured if nobody has said so."""
    url = get_settings().redis_url
    if not url:
        raise documented(
            ImproperlyConfigured('expected AYEWORK["REDIS_URL"] to be the address of a Redis server.'),
            "redis-not-configured",
        )
    return url


def client_of(url: str, **options: Any) -> Any:
    """Return a client that tries each command once: nothing depends on a single command."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as missing:
        raise documented(
            ImproperlyConfigured(
                'AYEWORK["REDIS_URL"] needs the package redis: pip install django-ayework[redis].'
            ),
            "redis-not-configured",
        ) from missing
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
