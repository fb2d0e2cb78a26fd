"""Firing: one work per occurrence, whatever the clock and the function do."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from django_ayework import enqueue, schedule
from django_ayework.define.schedules import schedules
from django_ayework.flow import firing as steps
from django_ayework.models import Firing, Schedule, Work
from django_ayework.store.clock import clock
from django_ayework.testing import drain, now, tick, time_travel
from tests.app.works import add
from tests.schedules.works import note

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


def row(name: str = "tick") -> Schedule:
    return Schedule.objects.get(name=name)


class TestFiring:
    def test_each_occurrence_queues_a_work_under_an_id_of_its_own(self):
        schedule(name="tick", every=60, run=add(a=1, b=2))
        assert tick() == 0, "it begins now"
        for count in (1, 2, 3):
            time_travel(60)
            assert (tick(), tick()) == (1, 0)
            assert Work.objects.filter(type="shop.add").count() == count
        assert drain().succeeded == 3
        linked = {firing.work_id: firing.group_id for firing in Firing.objects.all()}
        assert linked == {id: id for id in Work.objects.values_list("id", flat=True)}

    def test_a_cron_expression_fires_in_its_own_zone(self):
        schedule("0 3 * * *", name="nightly", tz="Asia/Tokyo", run=note)
        tick()
        first = row("nightly").next_at
        assert (first.hour, first.minute) == (18, 0)
        time_travel(first - now())
        assert tick() == 1
        assert Firing.objects.get().occurrence == first
        assert row("nightly").next_at == first + timedelta(days=1)

    def test_the_zone_is_the_projects_unless_given(self, settings):
        settings.TIME_ZONE = "Asia/Tokyo"
        schedule("0 3 * * *", name="nightly", run=note)
        tick()
        assert (row("nightly").tz, row("nightly").next_at.hour) == ("Asia/Tokyo", 18)

    @pytest.mark.parametrize("made", ["request", "handle", "nothing"])
    def test_a_function_returns_a_work_or_queues_by_itself(self, made):
        def nightly() -> Any:
            return {"request": note, "handle": lambda: enqueue(note()), "nothing": lambda: None}[made]()

        schedule(name="nightly", every=60)(nightly)
        tick()
        time_travel(60)
        assert tick() == 1
        queued = list(Work.objects.values_list("id", flat=True))
        assert len(queued) == (made != "nothing")
        assert Firing.objects.get().work_id == "".join(queued)

    def test_one_request_returned_again_and_again_is_a_new_work_each_time(self):
        request = note()
        schedule(name="tick", every=60, run=lambda: request)
        tick()
        for _ in range(3):
            time_travel(60)
            assert tick() == 1
        assert Work.objects.count() == 3

    def test_what_is_cancelled_fires_no_more(self):
        declared = schedule(name="tick", every=60, run=note)
        tick()
        declared.cancel()
        time_travel(60)
        assert tick() == 0
        assert not row().enabled

    def test_a_start_and_an_end_bound_it(self):
        start = now() + 10 * MINUTE
        schedule(name="tick", every=60, run=note, start=start, end=start + MINUTE, catch_up="all")
        tick()
        assert row().next_at == start
        time_travel(9 * MINUTE)
        assert tick() == 0
        time_travel(5 * MINUTE)
        assert tick() == 2
        assert (row().next_at, row().due_at) == (None, None)

    def test_dates_begin_and_end_in_the_zone_of_the_schedule(self):
        schedule(
            "@hourly", name="tick", run=note, tz="Asia/Tokyo", start=date(2050, 1, 1), end=date(2050, 1, 1)
        )
        tick()
        assert row().next_at == datetime(2049, 12, 31, 15, tzinfo=UTC)
        assert row().end_at == datetime(2050, 1, 1, 14, 59, 59, 999999, tzinfo=UTC)

    def test_a_jitter_delays_each_firing_by_so_much_at_most(self):
        schedule(name="tick", every=60, run=note, jitter=20)
        tick()
        delays = []
        for _ in range(20):
            at, due = row().next_at, row().due_at
            delays.append((due - at).total_seconds())
            time_travel(at - now() - timedelta(seconds=1))
            assert tick() == 0
            time_travel(due - now())
            assert tick() == 1
        assert 0 <= min(delays) < max(delays) <= 20


class TestClockChanges:
    """In New York clocks go forward on 14 March 2100, and back on 7 November."""

    @pytest.mark.parametrize(
        ("dst", "first"),
        [("skip", datetime(2100, 3, 15, 6, 30, tzinfo=UTC)), ("shift", datetime(2100, 3, 14, 7, tzinfo=UTC))],
    )
    def test_the_missing_hour_is_skipped_or_shifted(self, dst, first):
        begins = date(2100, 3, 14)
        schedule("30 2 * * *", name="tick", tz="America/New_York", dst=dst, start=begins, run=note)
        tick()
        assert row().next_at == first
        time_travel(first - now())
        assert tick() == 1
        assert Firing.objects.get().occurrence == first

    def test_the_repeated_hour_fires_once(self):
        begins = date(2100, 11, 7)
        schedule("30 1 * * *", name="tick", tz="America/New_York", start=begins, run=note, catch_up="all")
        tick()
        first = datetime(2100, 11, 7, 5, 30, tzinfo=UTC)
        assert row().next_at == first
        time_travel(first + timedelta(hours=2) - now())
        assert tick() == 1
        assert row().next_at == datetime(2100, 11, 8, 6, 30, tzinfo=UTC)


class TestFunctions:
    def test_a_function_tells_each_next_moment_and_none_ends_it(self):
        left = [5, 7]

        def following(moment: datetime) -> datetime | None:
            assert moment.tzinfo is not None
            return moment + timedelta(minutes=left.pop()) if left else None

        schedule(name="tick", next=following, run=note)
        assert tick() == 0
        time_travel(7 * MINUTE)
        assert tick() == 1
        time_travel(5 * MINUTE)
        assert tick() == 1
        assert (row().next_at, row().due_at) == (None, None)
        time_travel(timedelta(days=1))
        assert tick() == 0

    def test_a_date_is_its_midnight_in_the_zone(self):
        schedule(name="tick", next=lambda now: date(2050, 1, 1), tz="Asia/Tokyo", run=note)
        tick()
        assert row().next_at == datetime(2049, 12, 31, 15, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("following", "message"),
        [
            (lambda now: 1 / 0, "ZeroDivisionError"),
            (lambda now: 60, "TypeError: expected next of the schedule 'tick' to return a datetime"),
            (
                lambda now: datetime(2050, 1, 1),
                "ValueError: expected next of the schedule 'tick' to be an aware",
            ),
            (
                lambda now: now - timedelta(days=1),
                "ValueError: expected next of the schedule 'tick' to return a",
            ),
        ],
    )
    def test_an_error_is_told_shown_and_tried_again_later_and_later(self, settings, following, message):
        told = []
        settings.AYEWORK = {"ON_ERROR": lambda error, phase: told.append((type(error).__name__, phase))}
        schedule(name="tick", next=following, run=note)
        waits = []
        for count in range(1, 13):
            assert tick() == 0
            assert tick() == 0, "not before its time"
            assert len(told) == row().failures == count
            assert row().error.startswith(message)
            waits.append(round((row().due_at - now()).total_seconds()))
            time_travel(row().due_at - now())
        assert waits[:4] == [5, 10, 20, 40]
        assert waits[-1] == 300

    def test_it_recovers(self):
        broken = [True]

        def following(moment: datetime) -> datetime:
            if broken:
                raise RuntimeError(broken.pop())
            return moment + MINUTE

        schedule(name="tick", next=following, run=note)
        tick()
        time_travel(10)
        tick()
        assert (row().failures, row().error) == (0, "")
        time_travel(60)
        assert tick() == 1

    def test_one_that_always_says_now_fires_once_a_tick(self):
        schedule(name="tick", next=lambda moment: moment + timedelta(microseconds=1), run=note)
        assert [tick(), tick(), tick()] == [1, 1, 1]


class TestClocks:
    def test_a_clock_that_goes_back_fires_nothing_again(self):
        schedule(name="tick", every=60, run=note, catch_up="all")
        tick()
        time_travel(300)
        assert tick() == 5
        time_travel(-300)
        assert tick() == 0
        time_travel(240)
        assert tick() == 0
        time_travel(120)
        assert tick() == 1
        assert len(set(Firing.objects.values_list("occurrence", flat=True))) == 6

    @pytest.mark.parametrize("skew", [-90, -1, 1, 90])
    def test_processes_whose_clocks_differ_fire_each_occurrence_once(self, skew):
        schedule(name="tick", every=60, run=note, catch_up="all")
        tick()
        for _ in range(10):
            time_travel(30)
            tick()
            with time_travel(skew):
                tick()
        occurrences = list(Firing.objects.order_by("occurrence").values_list("occurrence", flat=True))
        assert all(b - a == MINUTE for a, b in pairwise(occurrences))
        assert Work.objects.count() == len(occurrences) in (5, 6)
        assert clock.now() < occurrences[-1] + MINUTE


class TestOthers:
    def test_what_only_other_processes_know_is_left_to_them(self):
        schedule(name="tick", every=60, run=note)
        tick()
        declared = schedules.find("tick")
        assert declared is not None
        time_travel(60)
        schedules.remove(declared)
        from django_ayework.flow.firing import fire_due

        assert fire_due().fired == 0
        assert steps.step(row().pk) is steps.Did.NOTHING
        schedules.add(declared)
        assert fire_due().fired == 1
