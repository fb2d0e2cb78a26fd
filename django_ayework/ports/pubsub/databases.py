"""Wake-ups by the database: messages on PostgreSQL, new works that are watched for on the others."""

from __future__ import annotations

from collections.abc import Callable

from django_ayework.conf import get_settings
from django_ayework.ports.pubsub.base import Listener
from django_ayework.ports.pubsub.listener import Listening
from django_ayework.rules.notifications import DUE
from django_ayework.store import notifications
from django_ayework.store.database import alias, database_file, dialect
from django_ayework.store.notifications import ArrivalWatch, CommitWatch, Unsupported

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

    It receives nothing else, so ``is_live()`` is False: workers poll for the rest as often as without it.
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
