"""Works that become pending on MariaDB and MySQL, watched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_ayework.rules.notifications import due_from_text
from django_ayework.store import watches
from django_ayework.store.watches import (
    BUSY_FOR,
    COUNT_EVERY,
    FEW,
    LOOK_FOR_WORKS_EVERY,
    LOOK_OFTEN,
    REST,
    REST_WHEN_SLOW,
    ArrivalWatch,
)
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.clocks import put_in_place
from tests.store.plans import explained
from tests.store.test_commits import SleepingClock

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("mysql")]


def seen(watch: ArrivalWatch, seconds: float = 1.0) -> set[tuple[str, str]]:
    """Let the watch look for so long; return the queues and types of which works have arrived."""
    messages = watch.hear(seconds)
    assert {channel for channel, _ in messages} <= {"due"}
    return {place for _, text in messages for place in due_from_text(text, "elsewhere").places or ()}


class ThreadClock(SleepingClock):
    """Tells, too, for how many seconds the thread has used a processor."""

    used = 0.0

    def thread_time(self) -> float:
        return self.used


@pytest.fixture
def clock(monkeypatch) -> ThreadClock:
    return put_in_place(ThreadClock(), watches, monkeypatch)


@pytest.fixture
def watch(clock: ThreadClock) -> Iterator[ArrivalWatch]:
    watch = ArrivalWatch()
    yield watch
    watch.close()


def test_a_work_that_arrives_is_seen_at_the_next_look(watch, clock):
    assert watch.hear(2.5 * LOOK_FOR_WORKS_EVERY) == []
    assert clock.slept == pytest.approx([LOOK_FOR_WORKS_EVERY] * 3)
    WorkFactory(queue="mail", type="shop.pay")
    assert seen(watch) == {("mail", "shop.pay")}


def test_works_that_are_not_due_or_have_ended_are_no_news(watch):
    for status in ("scheduled", "blocked", "running", "success"):
        WorkFactory(status=status)
    assert watch.hear(3 * LOOK_FOR_WORKS_EVERY) == []


def test_a_work_that_stays_is_told_once_and_hides_no_other(watch):
    WorkFactory(queue="paused")
    assert seen(watch) == {("paused", "shop.add")}
    assert watch.hear(1.0) == []
    WorkFactory(queue="mail")
    assert seen(watch) == {("mail", "shop.add")}
    assert watch.hear(1.0) == []


def test_beside_many_that_stay_the_first_of_another_queue_or_type_is_news(watch):
    WorkFactory.create_batch(2 * FEW, queue="paused", type="shop.add")
    assert seen(watch) == {("paused", "shop.add")}
    assert watch.hear(1.0) == []
    WorkFactory(queue="paused", type="shop.pay")
    assert seen(watch) == {("paused", "shop.pay")}
    WorkFactory(queue="zoo", type="shop.add")
    assert seen(watch) == {("zoo", "shop.add")}
    assert watch.hear(1.0) == []


def test_what_takes_the_place_of_a_work_between_two_looks_is_news(watch):
    taken = WorkFactory()
    assert seen(watch)
    taken.delete()
    WorkFactory()
    assert seen(watch)


def test_after_an_arrival_it_looks_more_often_for_a_while(watch, clock):
    WorkFactory()
    assert seen(watch)
    assert watch.hear(BUSY_FOR + 3 * LOOK_FOR_WORKS_EVERY) == []
    assert clock.slept[0] == pytest.approx(LOOK_OFTEN)
    assert clock.slept[-1] == pytest.approx(LOOK_FOR_WORKS_EVERY)


def test_beside_many_that_wait_it_looks_no_more_often(watch, clock):
    WorkFactory.create_batch(FEW)
    assert seen(watch)
    assert watch.hear(0.5 * LOOK_FOR_WORKS_EVERY) == []
    assert clock.slept == pytest.approx([LOOK_FOR_WORKS_EVERY])


def test_the_workers_of_a_fleet_share_the_looks(watch, clock):
    WorkerProcessFactory.create_batch(12)
    assert watch.hear(2 * COUNT_EVERY) == []
    assert clock.slept[-1] == pytest.approx(3 * LOOK_FOR_WORKS_EVERY)


def test_a_server_that_answers_slowly_is_asked_less_often(watch, clock, monkeypatch):
    def slowly() -> list:
        clock.now += 0.02
        return []

    monkeypatch.setattr(watch, "_arrived", slowly)
    assert watch.hear(1.0) == []
    assert clock.slept[1:] == pytest.approx([0.02 * REST_WHEN_SLOW] * len(clock.slept[1:]))


def test_looks_take_a_small_share_of_a_processor_however_dear_they_are(watch, clock, monkeypatch):
    def dearly() -> list:
        clock.used += 0.0004
        return []

    monkeypatch.setattr(watch, "_arrived", dearly)
    assert watch.hear(1.0) == []
    assert clock.slept == pytest.approx([0.0004 * REST] * len(clock.slept))


def test_who_rings_is_not_kept_waiting(watch, clock):
    watch.ring()
    assert watch.hear(60.0) == []
    assert clock.slept == []


def test_a_look_reads_entries_of_the_index_alone():
    WorkFactory.create_batch(2 * FEW)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE django_ayework_work")
        cursor.fetchall()
    plan = explained(watches.FIRST_FEW, None)
    assert "ayework_lane" in plan
    assert "Using index" in plan
    assert "filesort" not in plan
