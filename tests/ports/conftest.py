"""Ports of every kind."""

import uuid

import pytest
from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture
def redis_server(settings, redis_url):
    """Ports in Redis have a server."""
    settings.AYEWORK = {"REDIS_URL": redis_url}


@pytest.fixture
def redis_cache(settings, redis_url):
    """A cache in Redis, the default one; whatever was set in it is deleted afterwards."""
    import redis
    from django.core.cache import caches

    backend, prefix = "django.core.cache.backends.redis.RedisCache", f"ayework-tests-{uuid.uuid4()}"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": redis_url, "KEY_PREFIX": prefix}}
    yield settings.CACHES["default"]
    caches["default"].close()
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            client.delete(key)
