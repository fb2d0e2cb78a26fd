"""Databases without messages: new works are seen soon in SQLite, MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Callable

from django_ayework.ports.pubsub.base import Listener
from django_ayework.ports.pubsub.listener import CannotHear, Ear, Listening
from django_ayework.rules.notifications import DUE
from django_ayework.store.database import alias, vendor
from django_ayework.store.watches import ArrivalWatch, CommitWatch, file_of

# --- mariadb ---
# No messages are sent, but works that become pending in MariaDB or MySQL are seen soon.

WATCHING = "watching for new works"


class MariadbPubSub(Listening):
    """Calls those who listen for due works with a message that names them, soon after they became pending.

    It hears nothing else, so it never says that it is live: workers look for the rest as often as without it.
    """

    reaches_others = False  # a row does, by itself
    is_quick = True
    #: What a process has connections to the queue's database for, besides those of its own threads.
    connections = (WATCHING,)

    def __init__(self) -> None:
        super().__init__("arrivals", open_arrival_watch)

    def publish(self, channel: str, message: str) -> None:
        """Send nothing: what there is to be told has been committed."""

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """See PubSub.subscribe(); on other channels nothing is ever heard, so no connection is opened."""
        return super().subscribe(channel, listener) if channel == DUE else lambda: None

    def _begin(self, channels: set[str]) -> None:
        """See Listening."""
        super()._begin(channels)
        self.is_live = False


def open_arrival_watch() -> Ear:
    """Watch the queue's table."""
    if vendor() != "mysql":
        raise CannotHear(f"the database {alias()!r} is neither MariaDB nor MySQL.")
    return ArrivalWatch()


# --- sqlite ---
# No messages, but every commit to an SQLite file is seen: it means "look".


class SqlitePubSub(Listening):
    """Calls every listener with an empty message soon after any commit, of this process too."""

    reaches_others = False  # a commit does, by itself
    is_quick = True

    def __init__(self) -> None:
        super().__init__("commits", open_commit_watch)

    def publish(self, channel: str, message: str) -> None:
        """Send nothing: what there is to be told has been committed."""


def open_commit_watch() -> Ear:
    """Watch the queue's file."""
    file = file_of(alias())
    if file is None:
        raise CannotHear(f"the database {alias()!r} is not an SQLite file.")
    return CommitWatch(file)
