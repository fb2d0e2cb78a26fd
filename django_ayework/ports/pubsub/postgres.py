"""Messages by LISTEN and NOTIFY."""

from __future__ import annotations

from django_ayework.conf import get_settings
from django_ayework.ports.pubsub.listener import Listening
from django_ayework.store import receivers
from django_ayework.store.database import alias

RECEIVING, SENDING = "receiving wake-ups", "sending many"


class PostgresPubSub(Listening):
    """Sends by the session of the publishing thread, outside of a transaction; receives by its own session.

    That one leads by ``AYEWORK["PUBSUB_DATABASE"]``, another way to the same database, if that is set.
    """

    reaches_others = True

    @property
    def connections(self) -> tuple[str, ...]:
        """The purposes of connections to the queue's database besides those of the engine's threads."""
        return (SENDING,) if get_settings().pubsub_database else (RECEIVING, SENDING)

    @property
    def is_quick(self) -> bool:
        """Whether this thread has a session at hand that can send one short statement."""
        return receivers.can_notify()

    def publish(self, channel: str, message: str) -> None:
        """See PubSub.publish()."""
        receivers.notify(channel, message)

    def open_receiver(self) -> receivers.NotificationReceiver:
        """See Listening."""
        return receivers.NotificationReceiver(get_settings().pubsub_database or alias())
