"""Messages by LISTEN and NOTIFY."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from django_ayework.conf import get_settings
from django_ayework.ports.pubsub.listener import CannotHear, Ear, Listening
from django_ayework.store import notifications
from django_ayework.store.database import alias

HEARING, SENDING = "hearing wake-ups", "sending many"


class PostgresPubSub(Listening):
    """Sends by the session of whoever publishes, outside of a transaction; hears by a session of its own.

    That one leads by ``AYEWORK["PUBSUB_DATABASE"]``, another way to the same database, if that is set.
    """

    reaches_others = True

    @property
    def connections(self) -> tuple[str, ...]:
        """What a process has connections to the queue's database for, besides those of its own threads."""
        return (SENDING,) if get_settings().pubsub_database else (HEARING, SENDING)

    def __init__(self) -> None:
        super().__init__("listener", open_ear)

    @property
    def is_quick(self) -> bool:
        """Whether this thread has a session at hand that can send one short statement."""
        return notifications.can_notify()

    def publish(self, channel: str, message: str) -> None:
        """See PubSub.publish()."""
        notifications.notify(channel, message)


class PostgresEar(notifications.Ear):
    """Hears by a session of its own."""

    def follow(self, channels: set[str]) -> bool:
        """See Ear.follow()."""
        with deaf_for_good():
            return super().follow(channels)


def open_ear() -> Ear:
    """Connect where it can be heard."""
    with deaf_for_good():
        return PostgresEar(get_settings().pubsub_database or alias())


@contextmanager
def deaf_for_good() -> Generator[None]:
    """Say of a session that it cannot hear in the words of the one who listens."""
    try:
        yield
    except notifications.Deaf as reason:
        raise CannotHear(str(reason)) from None
