"""Commits to an SQLite file, watched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_ayework.store import watches
from django_ayework.store.watches import LOOK_FOR_COMMITS_EVERY, CommitWatch
from tests.clocks import Clock, put_in_place


class SleepingClock(Clock):
    """Stands in for ``time``: sleeping takes as long as was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> SleepingClock:
    return put_in_place(SleepingClock(), watches, monkeypatch)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "file", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    yield connection
    connection.close()


@pytest.fixture
def watch(tmp_path: Path, writer: sqlite3.Connection, clock: SleepingClock) -> Iterator[CommitWatch]:
    watch = CommitWatch(str(tmp_path / "file"))
    yield watch
    watch.close()


def test_a_commit_is_seen_at_the_next_look(watch, writer, clock):
    assert watch.hear(3 * LOOK_FOR_COMMITS_EVERY) == []
    assert set(clock.slept) == {LOOK_FOR_COMMITS_EVERY}
    writer.execute("INSERT INTO t VALUES (1)")
    assert watch.hear(1.0) == [(None, "")]
