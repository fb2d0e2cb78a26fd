"""What a handler leaves on its thread's connections: it costs that handler only, and not the next one."""

from __future__ import annotations

import logging

from django.db import connections

from django_ayework.flow.events import report
from django_ayework.store.threads import has_connected, left_behind
from django_ayework.worker.attempts.interruption import forget_connection

logger = logging.getLogger("django_ayework")


def leave_clean(load: object) -> None:
    """Replace connections of this thread that its last attempt has left inside a transaction, say.

    What was written there and not committed is rolled back. The attempt keeps its outcome: its handler has
    returned, and whatever else it did is done.
    """
    if not has_connected():
        return
    for connection in connections.all(initialized_only=True):
        try:
            if left := left_behind(connection):
                logger.warning(
                    "The handler of %s left %s on the connection %r, which is closed: what was not committed "
                    "is rolled back.", load, left, connection.alias,
                )  # fmt: skip
                forget_connection(connection)
        except Exception as error:
            report(error, "queue", f"the connection {connection.alias!r} could not be looked at after {load}")


def end_connections(load: object) -> None:
    """Close this thread's connections, as it ends with its work; warn of what the work has left on them."""
    leave_clean(load)
    connections.close_all()
