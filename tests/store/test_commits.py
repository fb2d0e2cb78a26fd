"""Commits to an SQLite file, watched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_ayework.store import commits as module
from django_ayework.store.commits import (
    LATE,
    LOOK_EVERY,
    LOOK_OFTEN,
    LOOK_RARELY,
    LOOK_SELDOM,
    MEASURED,
    SHARE,
    CommitWatch,
)
from tests.clocks import Clock, put_in_place


class SleepingClock(Clock):
    """Stands in for ``time``: sleeping takes as long as was asked, and as much longer as others need.

    Each sleep costs the thread so many seconds of a core.
    """

    def __init__(self) -> None:
        super().__init__()
        self.others_need = 0.0
        self.cost = 0.0
        self.slept: list[float] = []

    def thread_time(self) -> float:
        return self.cost * len(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + self.others_need


@pytest.fixture
def clock(monkeypatch) -> SleepingClock:
    return put_in_place(SleepingClock(), module, monkeypatch)


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
    assert watch.hear(3 * LOOK_EVERY) == []
    assert set(clock.slept) == {LOOK_EVERY}
    writer.execute("INSERT INTO t VALUES (1)")
    assert watch.hear(1.0) == [(None, "")]


def test_after_a_commit_it_looks_more_often(watch, writer, clock):
    writer.execute("INSERT INTO t VALUES (1)")
    watch.hear(1.0)
    watch.hear(3 * LOOK_OFTEN)
    assert set(clock.slept) == {LOOK_OFTEN}


def test_it_looks_seldom_while_others_need_the_interpreter(watch, writer, clock):
    """Each look would cost them more than it costs itself."""
    clock.others_need = 2 * LATE
    watch.hear(4 * LOOK_SELDOM)
    assert clock.slept[:2] == [LOOK_EVERY, LOOK_EVERY]
    assert set(clock.slept[2:]) == {LOOK_SELDOM}
    writer.execute("INSERT INTO t VALUES (1)")
    assert watch.hear(1.0) == [(None, "")]

    clock.others_need = 0.0
    watch.hear(LOOK_SELDOM / 2)
    clock.slept.clear()
    watch.hear(3 * LOOK_OFTEN)
    assert set(clock.slept) == {LOOK_OFTEN}


def test_to_be_late_once_means_nothing(watch, clock):
    clock.others_need = 2 * LATE
    watch.hear(LOOK_EVERY)
    clock.others_need = 0.0
    watch.hear(3 * LOOK_EVERY)
    assert set(clock.slept) == {LOOK_EVERY}


@pytest.mark.parametrize(
    ("cost", "pause"),
    [(0.0, LOOK_EVERY), (0.5 * LOOK_EVERY * SHARE, LOOK_EVERY), (0.025 * SHARE, 0.025), (1.0, LOOK_RARELY)],
)
def test_where_a_look_costs_much_there_are_fewer(watch, clock, cost, pause):
    clock.cost = cost
    watch.hear(2 * MEASURED * LOOK_EVERY)
    assert set(clock.slept) == {LOOK_EVERY}
    clock.slept.clear()
    watch.hear(2 * MEASURED * LOOK_EVERY)
    assert clock.slept == pytest.approx([pause] * len(clock.slept))
    clock.cost = 0.0
    watch.hear(2 * MEASURED * LOOK_RARELY)
    clock.slept.clear()
    watch.hear(3 * LOOK_EVERY)
    assert set(clock.slept) == {LOOK_EVERY}


def test_a_few_looks_tell_nothing_of_their_cost(watch, clock):
    clock.cost = 1.0
    for _ in range(3):
        watch.hear((MEASURED - 2) * LOOK_EVERY)
    assert set(clock.slept) == {LOOK_EVERY}


def test_however_much_looks_cost_it_looks_often_after_a_commit(watch, writer, clock):
    clock.cost = 1.0
    watch.hear(2 * MEASURED * LOOK_EVERY)
    writer.execute("INSERT INTO t VALUES (1)")
    watch.hear(1.0)
    clock.slept.clear()
    watch.hear(3 * LOOK_OFTEN)
    assert set(clock.slept) == {LOOK_OFTEN}
