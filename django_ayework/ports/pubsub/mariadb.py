"""No messages are sent, but works that become pending in MariaDB or MySQL are seen soon."""

from __future__ import annotations

from collections.abc import Callable

from django_ayework.ports.pubsub.ear import CannotHear, Ear
from django_ayework.ports.pubsub.listening import Listening
from django_ayework.ports.pubsub.protocol import Listener
from django_ayework.rules.news import DUE
from django_ayework.store.arrivals import ArrivalWatch
from django_ayework.store.database import alias, vendor

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
        super().__init__("arrivals", open_watch)

    def publish(self, channel: str, message: str) -> None:
        """Send nothing: what there is to be told has been committed."""

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """See PubSub.subscribe(); on other channels nothing is ever heard, so no connection is opened."""
        return super().subscribe(channel, listener) if channel == DUE else lambda: None

    def _begin(self, channels: set[str]) -> None:
        """See Listening."""
        super()._begin(channels)
        self.is_live = False


def open_watch() -> Ear:
    """Watch the queue's table."""
    if vendor() != "mysql":
        raise CannotHear(f"the database {alias()!r} is neither MariaDB nor MySQL.")
    return ArrivalWatch()
