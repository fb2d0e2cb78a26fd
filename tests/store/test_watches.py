"""Watches of commits to an SQLite file, and of works that become pending on MariaDB and MySQL."""

import sqlite3
from contextlib import closing
from functools import partial

import pytest
from django.db import connection

from django_ayework import heartbeat
from django_ayework.rules.notifications import due_from_text
from django_ayework.store import notifications
from django_ayework.store.notifications import (
    BUSY_FOR,
    COUNT_EVERY,
    FEW,
    LOOK_FOR_COMMITS_EVERY,
    LOOK_FOR_WORKS_EVERY,
    LOOK_OFTEN,
    REST,
    REST_WHEN_SLOW,
    ArrivalWatch,
    CommitWatch,
)
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.clocks import Clock, put_in_place
from tests.store.plans import explained, make_works


class ThreadClock(Clock):
    """Stands in for ``time``: sleeping takes as long as was asked. It counts the thread's processor time."""

    used = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def thread_time(self) -> float:
        return self.used


@pytest.fixture
def clock(monkeypatch):
    return put_in_place(ThreadClock(), notifications, monkeypatch)


def test_a_commit_is_seen_at_the_next_look(tmp_path, clock):
    path = str(tmp_path / "file")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (x)")
        with closing(CommitWatch(path)) as watch:
            assert watch.receive(3 * LOOK_FOR_COMMITS_EVERY) == []
            assert set(clock.slept) == {LOOK_FOR_COMMITS_EVERY}
            writer.execute("INSERT INTO t VALUES (1)")
            assert watch.receive(1.0) == [(None, "")]


def seen(watch: ArrivalWatch, seconds: float = 1.0) -> set[tuple[str, str]]:
    """Let the watch look for so long; return the queues and types of which works have arrived."""
    messages = watch.receive(seconds)
    assert {channel for channel, _ in messages} <= {"due"}
    return {place for _, text in messages for place in due_from_text(text, "elsewhere").places or ()}


@pytest.fixture
def watch(clock):
    with closing(ArrivalWatch()) as watch:
        yield watch


@pytest.mark.django_db(transaction=True)
@pytest.mark.vendors("mysql")
class TestArrivals:
    def test_a_work_that_becomes_pending_is_seen_at_the_next_look(self, watch, clock):
        for status in ("scheduled", "blocked", "running", "success"):
            WorkFactory(status=status)
        assert watch.receive(2.5 * LOOK_FOR_WORKS_EVERY) == []
        assert clock.slept == pytest.approx([LOOK_FOR_WORKS_EVERY] * 3)
        WorkFactory(queue="mail", type="shop.pay")
        assert seen(watch) == {("mail", "shop.pay")}

    def test_a_work_that_stays_is_reported_once_and_hides_no_other(self, watch):
        WorkFactory(queue="paused")
        assert seen(watch) == {("paused", "shop.add")}
        assert watch.receive(1.0) == []
        WorkFactory(queue="mail")
        assert seen(watch) == {("mail", "shop.add")}
        make_works(2 * FEW, queue="paused", type="shop.add")
        assert watch.receive(1.0) == []
        for place in (("paused", "shop.pay"), ("zoo", "shop.add")):
            WorkFactory(queue=place[0], type=place[1])
            assert seen(watch) == {place}
        assert watch.receive(1.0) == []

    def test_a_work_that_replaces_another_between_two_looks_is_reported(self, watch):
        taken = WorkFactory()
        assert seen(watch)
        taken.delete()
        WorkFactory()
        assert seen(watch)

    def test_after_an_arrival_it_looks_more_often_for_a_while(self, watch, clock):
        WorkFactory()
        assert seen(watch)
        assert watch.receive(BUSY_FOR + 3 * LOOK_FOR_WORKS_EVERY) == []
        assert (clock.slept[0], clock.slept[-1]) == pytest.approx((LOOK_OFTEN, LOOK_FOR_WORKS_EVERY))

    def test_beside_many_that_wait_it_looks_no_more_often(self, watch, clock):
        make_works(FEW)
        assert seen(watch)
        assert watch.receive(0.5 * LOOK_FOR_WORKS_EVERY) == []
        assert clock.slept == pytest.approx([LOOK_FOR_WORKS_EVERY])

    def test_the_workers_of_a_fleet_share_the_looks(self, watch, clock):
        WorkerProcessFactory.create_batch(12)
        assert watch.receive(2 * COUNT_EVERY) == []
        assert clock.slept[-1] == pytest.approx(3 * LOOK_FOR_WORKS_EVERY)

    def test_the_thread_beats_at_each_look(self, watch, clock, monkeypatch):
        put_in_place(clock, heartbeat, monkeypatch)
        silences = []
        monkeypatch.setattr(clock, "sleep", lambda seconds: silences.append(beats.silence()) or tick(seconds))
        tick = partial(ThreadClock.sleep, clock)
        beats = heartbeat.Heartbeat("listening")
        with beats.of_this_thread():
            assert watch.receive(0.5 * COUNT_EVERY) == []
        assert set(silences) == {0.0}

    @pytest.mark.parametrize("cost", ["time", "processor time"])
    def test_looks_are_rarer_where_they_cost_much(self, watch, clock, monkeypatch, cost):
        def arrived() -> list:
            clock.now += 0.02 * (cost == "time")
            clock.used += 0.0004 * (cost == "processor time")
            return []

        monkeypatch.setattr(watch, "_arrived", arrived)
        assert watch.receive(1.0) == []
        slept, rest = clock.slept, 0.0004 * REST
        if cost == "time":
            slept, rest = clock.slept[1:], 0.02 * REST_WHEN_SLOW
        assert slept == pytest.approx([rest] * len(slept))

    def test_ringing_ends_the_wait(self, watch, clock):
        watch.interrupt()
        assert watch.receive(60.0) == []
        assert clock.slept == []

    def test_a_look_reads_entries_of_the_index_alone(self):
        make_works(2 * FEW)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE TABLE django_ayework_work")
            cursor.fetchall()
        plan = explained(notifications.FIRST_FEW, None)
        assert "ayework_lane" in plan
        assert "Using index" in plan
        assert "filesort" not in plan
