"""Commits to an SQLite file, seen from a connection of its own."""

from __future__ import annotations

import sqlite3
import time

from django.db import connections

#: Seconds between two looks: what a wake-up waits for at most, and most of what an idle worker costs.
LOOK_EVERY = 0.02
#: The same for some seconds after a commit, as more are likely.
LOOK_OFTEN, BUSY_FOR = 0.01, 0.5


def file_of(alias: str) -> str | None:
    """Return the file of an SQLite database; None for one in memory, and for other databases."""
    wrapper = connections[alias]
    if wrapper.vendor != "sqlite":
        return None
    name = str(wrapper.settings_dict["NAME"])
    return None if ":memory:" in name or "mode=memory" in name else name


class CommitWatch:
    """Tells that somebody has committed. One thread uses it, any may ring."""

    def __init__(self, file: str) -> None:
        self._connection = sqlite3.connect(
            file,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            uri=file.startswith("file:"),
        )
        self._cursor = self._connection.cursor()
        self._is_rung = False
        self._version = self._read()
        self._busy_until = 0.0

    def follow(self, channels: set[str]) -> bool:
        """Follow nothing in particular: a commit does not say what it is about."""
        return True

    def hear(self, seconds: float) -> list[tuple[str | None, str]]:
        """Wait for a commit of any other connection at most that long; it is news for all channels."""
        until = time.monotonic() + seconds
        while not self._is_rung and (now := time.monotonic()) < until:
            version = self._read()
            if version != self._version:
                self._version, self._busy_until = version, now + BUSY_FOR
                return [(None, "")]
            time.sleep(LOOK_OFTEN if now < self._busy_until else LOOK_EVERY)
        self._is_rung = False
        return []

    def ring(self) -> None:
        """Let ``hear`` return soon."""
        self._is_rung = True

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _read(self) -> int:
        """Return a number that changes with every commit of others; it reads one page, and takes no lock."""
        try:
            return int(self._cursor.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.OperationalError:  # it is being recovered, or was busy: next time
            return -1
