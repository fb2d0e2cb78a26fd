"""The engine's clock: it follows the database's, so hosts with wrong clocks cannot steal leases."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from django_ayework.store.database import dialect, fetch

#: Seconds after which the database is asked again.
REFRESH_AFTER = 60.0


class Clock:
    """Tells the time. Once synchronised it runs on the monotonic clock, so a host's clock may be changed."""

    def __init__(self) -> None:
        self._anchor: tuple[datetime, float] | None = None
        self._shift = timedelta()

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        anchor = self._anchor
        if anchor is None:
            return datetime.now(UTC) + self._shift
        moment, tick = anchor
        return moment + timedelta(seconds=time.monotonic() - tick) + self._shift

    def synchronise(self) -> None:
        """Set the clock to the database's, unless that was done within the last minute.

        Threads that measure at the same time do not wait for each other: each sets one attribute, and any of
        their measurements will do.
        """
        anchor = self._anchor
        if anchor is None or time.monotonic() - anchor[1] > REFRESH_AFTER:
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
    statement = dialect().now
    if statement is None:
        return datetime.now(UTC)
    moment: datetime = fetch(statement, ())[0][0]
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


clock = Clock()
