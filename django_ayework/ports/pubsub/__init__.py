"""Wake-ups: short messages that may be lost, from process to process."""

from __future__ import annotations

from typing import Any, cast

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.ports.pubsub.base import PubSub
from django_ayework.ports.pubsub.local import LocalPubSub, PollingPubSub
from django_ayework.ports.pubsub.postgres import PostgresPubSub
from django_ayework.ports.pubsub.redis import RedisPubSub
from django_ayework.ports.pubsub.watching import MariadbPubSub, SqlitePubSub
from django_ayework.store.database import alias, is_postgresql, vendor
from django_ayework.store.watches import file_of

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


def get_pubsub() -> PubSub:
    """Return what ``AYEWORK["PUBSUB"]`` says."""
    chosen = get_settings().pubsub
    if chosen == "auto":
        return BUILT_IN[automatic()]
    return BUILT_IN[chosen] if isinstance(chosen, str) else cast(PubSub, chosen)


def automatic() -> str:
    """Return the name of what needs nothing else to run, if there is such a thing."""
    if is_postgresql():
        return "postgres"
    if file_of(alias()) is not None:
        return "sqlite"
    if get_settings().redis_url:
        return "redis"
    return "mariadb" if vendor() == "mysql" else "local"


def forget_all() -> None:
    """Begin anew in a forked process: the listeners, threads and connections are its parent's."""
    for pubsub in BUILT_IN.values():
        forget: Any = getattr(pubsub, "forget", None)
        if forget is not None:
            forget()


after_fork_in_child(forget_all)
