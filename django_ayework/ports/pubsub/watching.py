"""Databases without messages: new works are seen soon in SQLite, MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Callable

from django_ayework.ports.pubsub.base import Listener
from django_ayework.ports.pubsub.listener import Listening
from django_ayework.rules.notifications import DUE
from django_ayework.store.database import alias, dialect
from django_ayework.store.receivers import ArrivalWatch, CommitWatch, Unsupported, file_of

WATCHING = "watching for new works"


class Watching(Listening):
    """Sends no messages: listeners see the commit themselves."""

    reaches_others = False
    is_quick = True

    def publish(self, channel: str, message: str) -> None:
        """Send nothing."""


class MariadbPubSub(Watching):
    """Calls listeners for due works with a message that names those, soon after they became pending.

    It receives nothing else, so it never says that it is live: workers poll for the rest as often as without
    it.
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
        if (file := file_of(alias())) is None:
            raise Unsupported(f"the database {alias()!r} is not an SQLite file.")
        return CommitWatch(file)
