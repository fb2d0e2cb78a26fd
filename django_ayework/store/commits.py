"""Commits to an SQLite file, seen from a connection of its own."""

from __future__ import annotations

import sqlite3
import time

from django.db import connections

#: Seconds between two looks: what a wake-up waits for at most, and most of what an idle worker costs.
LOOK_EVERY = 0.02
#: The same at most where looks would take more than this part of a core: on some machines a thread that has
#: slept needs ten times as long for one as on others. What one costs is measured over so many.
LOOK_RARELY, SHARE, MEASURED = 0.03, 0.007, 16
#: The same for some seconds after a commit, as more are likely.
LOOK_OFTEN, BUSY_FOR = 0.008, 0.5
#: The same while the process has so much to do that a thread that sleeps gets the interpreter back so late,
#: twice in a row: to ask for it costs those who have it more than the look.
LOOK_SELDOM, LATE, IN_A_ROW = 0.05, 0.002, 2


def file_of(alias: str) -> str | None:
    """Return the file of an SQLite database; None for one in memory, and for other databases."""
    wrapper = connections[alias]
    if wrapper.vendor != "sqlite":
        return None
    name = str(wrapper.settings_dict["NAME"])
    return None if ":memory:" in name or "mode=memory" in name else name


class CommitWatch:
    """Tells that somebody has committed. One thread uses it, any may ring."""

    can_be_lent = False

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
        self._times_late = 0
        self._at_rest = LOOK_EVERY

    def follow(self, channels: set[str]) -> bool:
        """Follow nothing in particular: a commit does not say what it is about."""
        return True

    def hear(self, seconds: float) -> list[tuple[str | None, str]]:
        """Wait for a commit of any other connection at most that long; it is news for all channels."""
        until, began, looks = time.monotonic() + seconds, time.thread_time(), 0
        while not self._is_rung and (now := time.monotonic()) < until:
            version = self._read()
            if version != self._version:
                self._version, self._busy_until = version, now + BUSY_FOR
                return [(None, "")]
            self._rest(now)
            looks += 1
        if looks >= MEASURED:
            cost = (time.thread_time() - began) / looks
            self._at_rest = min(LOOK_RARELY, max(LOOK_EVERY, cost / SHARE))
        self._is_rung = False
        return []

    def ring(self) -> None:
        """Let ``hear`` return soon."""
        self._is_rung = True

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _rest(self, now: float) -> None:
        """Sleep until the next look, and see whether others need the interpreter when that is over."""
        pause = LOOK_OFTEN if now < self._busy_until else self._at_rest
        if self._times_late >= IN_A_ROW:
            pause = LOOK_SELDOM
        time.sleep(pause)
        self._times_late = self._times_late + 1 if time.monotonic() - now > pause + LATE else 0

    def _read(self) -> int:
        """Return a number that changes with every commit of others; it reads one page, and takes no lock."""
        try:
            return int(self._cursor.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.OperationalError:  # it is being recovered, or was busy: next time
            return -1
