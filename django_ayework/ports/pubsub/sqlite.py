"""No messages, but every commit to an SQLite file is seen: it means "look"."""

from __future__ import annotations

from django_ayework.ports.pubsub.ear import CannotHear, Ear
from django_ayework.ports.pubsub.listening import Listening
from django_ayework.store.commits import CommitWatch, file_of
from django_ayework.store.database import alias


class SqlitePubSub(Listening):
    """Calls every listener with an empty message soon after any commit, of this process too."""

    reaches_others = False  # a commit does, by itself
    is_quick = True

    def __init__(self) -> None:
        super().__init__("commits", open_watch)

    def publish(self, channel: str, message: str) -> None:
        """Send nothing: what there is to be told has been committed."""


def open_watch() -> Ear:
    """Watch the queue's file."""
    file = file_of(alias())
    if file is None:
        raise CannotHear(f"the database {alias()!r} is not an SQLite file.")
    return CommitWatch(file)
