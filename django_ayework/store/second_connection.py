"""Another connection to the engine's database, for what a thread of the engine does for others."""

from __future__ import annotations

from typing import Any

from django.db import connections

from django_ayework.store.database import alias
from django_ayework.store.sessions import set_bounded
from django_ayework.store.threads import has_connected, set_connected


class SecondConnection:
    """Inside, this thread's connection to the engine's database is another than outside.

    A session of the engine's own is set up for its statements; a handler is to find what its project has
    configured, whichever thread it runs in. The second connection is opened when it is first used, and stays.
    For one thread.
    """

    def __init__(self) -> None:
        #: The one outside, once there is another.
        self.engines: Any = None
        self._others: Any = None
        self._has_connected = False
        self._outside = (False, False)  # whether what is opened there is the engine's, and anything has been

    def __enter__(self) -> None:
        name = alias()
        self._outside = set_bounded(False), has_connected()  # before there is another that it could mean
        if self._others is None:
            self.engines, self._others = connections[name], connections.create_connection(name)
        connections[name] = self._others
        set_connected(self._has_connected)

    def __exit__(self, *error: object) -> None:
        name = alias()
        self._others = connections[name]  # another one, if the handler was interrupted
        connections[name] = self.engines
        self._has_connected = has_connected()
        is_bounded, is_connected = self._outside
        set_bounded(is_bounded)
        set_connected(is_connected)

    def close(self) -> None:
        """Close it, if it was ever opened."""
        if self._others is not None:
            self._others.close()


def take_over(engines: Any) -> None:
    """Let this thread use the connection of a thread of the engine that will not use it any more.

    Drivers let a connection be used by one thread after the other, as pools do.
    """
    engines.inc_thread_sharing()
    connections[alias()] = engines
    set_connected(True)


def give_up() -> None:
    """Forget this thread's connection, which another one has taken over."""
    del connections[alias()]
