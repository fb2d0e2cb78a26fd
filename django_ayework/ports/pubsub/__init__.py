"""Wake-ups: short messages that may be lost, from process to process."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from django.core.signals import setting_changed

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.ports.pubsub.base import LocalPubSub, PollingPubSub, PubSub
from django_ayework.ports.pubsub.databases import MariadbPubSub, PostgresPubSub, SqlitePubSub
from django_ayework.ports.pubsub.redis import RedisPubSub
from django_ayework.store.database import database_file, dialect

__all__ = ["PubSub", "get_pubsub"]

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
