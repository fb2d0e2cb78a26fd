"""The engine's clock: it follows the database's, so hosts with wrong clocks cannot steal leases."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

from django_ayework.compat import after_fork_in_child
from django_ayework.store.database import connection, fetch

#: The database's own clock, by vendor. SQLite runs in this very host.
DATABASE_NOW = {
    "postgresql": "SELECT clock_timestamp()",
    "mysql": "SELECT UTC_TIMESTAMP(6)",
}
REFRESH_AFTER = 60.0


class Clock:
    """Tells the time. Once synchronised it runs on the monotonic clock, so a host's clock may be changed."""

    def __init__(self) -> None:
        self._anchor: tuple[datetime, float] | None = None
        self._shift = timedelta()
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make a lock for this process: a thread of its parent may hold the one before."""
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        anchor = self._anchor
        if anchor is None:
            return datetime.now(UTC) + self._shift
        moment, tick = anchor
        return moment + timedelta(seconds=time.monotonic() - tick) + self._shift

    def synchronise(self) -> None:
        """Set the clock to the database's, unless that was done within the last minute."""
        anchor = self._anchor
        if anchor is None or time.monotonic() - anchor[1] > REFRESH_AFTER:
            with self._lock:
                self._anchor = (database_now(), time.monotonic())

    def shift(self, by: timedelta) -> None:
        """Move the clock (tests travel in time)."""
        self._shift += by

    def reset(self) -> None:
        """Forget every shift and the database's clock."""
        self._shift = timedelta()
        self._anchor = None


def database_now() -> datetime:
    """Ask the database for the time."""
    statement = DATABASE_NOW.get(connection().vendor)
    if statement is None:
        return datetime.now(UTC)
    moment: datetime = fetch(statement, ())[0][0]
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


clock = Clock()
after_fork_in_child(clock.renew_lock)
