"""Firing: one work per occurrence, whatever the clock and the function do."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction

from django_ayework import enqueue, schedule
from django_ayework.define.schedules import schedules
from django_ayework.flow import scheduler as steps
from django_ayework.flow.schedules import set_paused
from django_ayework.models import Firing, Schedule, Work
from django_ayework.rules.schedules import TRIES
from django_ayework.store.database import clock
from django_ayework.testing import drain, now, tick, time_travel
from tests.app.works import add
from tests.marks import on_sqlite
from tests.schedules.works import family, note
from tests.schedules.works import steps as two_steps

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
NEW_YORK = ZoneInfo("America/New_York")


def declare(cron: str | None = None, **options: Any) -> None:
    """Declare the schedule ``tick``, each minute unless another time is given, and let it begin."""
    times = {} if cron or "next" in options else {"every": 60}
    schedule(*([cron] if cron else []), **({"name": "tick", "run": note} | times | options))
    assert tick() == 0, "it begins now"


def row() -> Schedule:
    return Schedule.objects.get(name="tick")


def after(seconds: float | timedelta) -> int:
    """Fire what is due so much later; return the number of firings."""
    time_travel(seconds)
    return tick()


def firings(status: str = "fired") -> int:
    return Firing.objects.filter(status=status).count()


def counts() -> tuple[int, int]:
    return Work.objects.count(), Firing.objects.count()


class TestFiring:
    def test_each_occurrence_queues_a_work_under_an_id_of_its_own(self):
        declare(run=add(a=1, b=2))
        for count in (1, 2, 3):
            assert (after(60), tick()) == (1, 0)
            assert steps.fire_due().pause > steps.SOON, "nothing is due"
            assert Work.objects.filter(type="shop.add").count() == count
        assert drain().succeeded == 3
        linked = {firing.work_id: firing.group_id for firing in Firing.objects.all()}
        assert linked == {id: id for id in Work.objects.values_list("id", flat=True)}

    @on_sqlite
    @pytest.mark.parametrize("given", [True, False], ids=["its own zone", "the project's zone"])
    def test_a_cron_expression_fires_in_its_zone(self, settings, given):
        settings.TIME_ZONE = "UTC" if given else "Asia/Tokyo"
        declare("0 3 * * *", **({"tz": "Asia/Tokyo"} if given else {}))
        first = row().next_at
        assert (row().tz, first.hour, first.minute) == ("Asia/Tokyo", 18, 0)
        assert after(first - now()) == 1
        assert Firing.objects.get().occurrence == first
        assert row().next_at == first + timedelta(days=1)

    request = note()

    @on_sqlite
    @pytest.mark.parametrize(
        ("run", "queued"),
        [(note, 1), (lambda: enqueue(note()), 1), (lambda: TestFiring.request, 1), (lambda: None, 0)],
        ids=["request", "handle", "one request again and again", "nothing"],
    )
    def test_a_function_returns_a_work_or_queues_by_itself(self, run, queued):
        schedule(name="tick", every=60)(lambda: run())
        tick()
        assert [after(60) for _ in range(3)] == [1, 1, 1]
        ids = set(Work.objects.values_list("id", flat=True))
        assert len(ids) == 3 * queued
        assert set(Firing.objects.values_list("work_id", flat=True)) == (ids or {""})

    @on_sqlite
    @pytest.mark.parametrize(
        ("options", "first"),
        [
            ({"dst": "skip"}, datetime(2100, 3, 15, 6, 30, tzinfo=UTC)),
            ({"dst": "shift"}, datetime(2100, 3, 14, 7, tzinfo=UTC)),
            # A schedule begins when the missing hour ends.
            ({"cron": "*/10 * * * *", "start": datetime(2100, 3, 14, 3, tzinfo=NEW_YORK)},
             datetime(2100, 3, 14, 7, tzinfo=UTC)),
        ],
        ids=["skip", "shift", "start"],
    )  # fmt: skip
    def test_the_missing_hour_of_a_clock_change_is_skipped_or_shifted(self, options, first):
        declare(**{"cron": "30 2 * * *", "tz": NEW_YORK.key, "start": date(2100, 3, 14)} | options)
        assert row().next_at == first
        assert after(first - now()) == 1
        assert Firing.objects.get().occurrence == first

    def test_a_start_and_an_end_bound_it(self):
        start = now() + 10 * MINUTE
        declare(start=start, end=start + MINUTE, catch_up="all")
        assert row().next_at == start
        assert (after(9 * MINUTE), after(5 * MINUTE)) == (0, 2)
        assert (row().next_at, row().due_at) == (None, None)

    @on_sqlite
    @pytest.mark.parametrize("zone", ["Asia/Tokyo", NEW_YORK.key])
    def test_the_first_and_the_last_date_bound_nothing(self, zone):
        declare("@hourly", tz=zone, start=date.min, end=date.max)
        assert now() < row().next_at <= now() + timedelta(hours=1)

    def test_dates_begin_and_end_in_the_zone_of_the_schedule(self):
        first = datetime(2049, 12, 31, 15, tzinfo=UTC)
        declare("@hourly", tz="Asia/Tokyo", start=date(2050, 1, 1), end=date(2050, 1, 1))
        assert (row().next_at, row().end_at) == (first, first + timedelta(days=1) - timedelta.resolution)
        schedule(name="tick", next=lambda now: date(2050, 1, 1), tz="Asia/Tokyo", run=note)
        tick()
        assert row().next_at == first

    @on_sqlite
    def test_a_jitter_delays_each_firing_by_so_much_at_most(self):
        declare(jitter=20, catch_up="none")  # a firing that its jitter delays is on time
        delays = []
        for _ in range(10):
            at, due = row().next_at, row().due_at
            delays.append((due - at).total_seconds())
            assert after(at - now() - timedelta(seconds=1)) == 0
            assert after(due - now()) == 1
        assert 0 <= min(delays) < max(delays) <= 20

    @on_sqlite
    @pytest.mark.parametrize("cron", [None, "* * * * *"])
    def test_a_jitter_that_is_longer_than_the_interval_drops_no_firing(self, cron):
        declare(cron, jitter=300)
        for _ in range(8):
            assert after(row().due_at - now()) == 1
        assert (firings(), firings("missed")) == (8, 0)

    @on_sqlite
    def test_a_clock_that_goes_back_fires_nothing_again(self):
        declare(catch_up="all")
        assert [after(seconds) for seconds in (300, -300, 240, 120)] == [5, 0, 0, 1]
        assert len(set(Firing.objects.values_list("occurrence", flat=True))) == 6

    @on_sqlite
    @pytest.mark.parametrize("skew", [-90, 90])
    def test_processes_whose_clocks_differ_fire_each_occurrence_once(self, skew):
        declare(catch_up="all")
        for _ in range(10):
            after(30)
            with time_travel(skew):
                tick()
        occurrences = list(Firing.objects.order_by("occurrence").values_list("occurrence", flat=True))
        assert all(b - a == MINUTE for a, b in pairwise(occurrences))
        assert Work.objects.count() == len(occurrences) in (5, 6)
        assert clock.now() < occurrences[-1] + MINUTE

    @on_sqlite
    def test_a_schedule_that_only_other_processes_declare_is_left_to_them(self):
        declare()
        declared = schedules.find("tick")
        time_travel(60)
        schedules.unregister(declared.name)
        assert steps.fire_due().fired == 0
        assert steps.step(row().pk) is steps.Did.NOTHING
        schedules.register(declared)
        assert steps.fire_due().fired == 1

    def test_a_process_that_declares_it_by_other_times_does_not_end_it(self):
        declare(next=lambda moment: moment + MINUTE)
        newer = schedules.find("tick")
        Schedule.objects.update(next_at=None, due_at=now())
        schedule(name="tick", every=60, run=note)
        assert (steps.fire_due().fired, row().due_at is None) == (0, False)
        schedules.register(newer)
        assert (tick(), after(60)) == (0, 1)


EXPECTED = "expected next of the schedule 'tick' to"


class TestFunctions:
    def test_a_function_gives_each_next_moment_and_none_ends_it(self):
        left = [5, 7]

        def following(moment):
            assert moment.tzinfo is not None
            return moment + timedelta(minutes=left.pop()) if left else None

        declare(next=following)
        assert (after(7 * MINUTE), after(5 * MINUTE)) == (1, 1)
        assert (row().next_at, row().due_at) == (None, None)
        assert after(timedelta(days=1)) == 0

    @on_sqlite
    @pytest.mark.parametrize(
        ("following", "message"),
        [
            (lambda now: 1 / 0, "ZeroDivisionError"),
            (lambda now: 60, f"TypeError: {EXPECTED} return a datetime"),
            (lambda now: datetime(2050, 1, 1), f"ValueError: {EXPECTED} be an aware"),
            (lambda now: now - 1440 * MINUTE, f"ValueError: {EXPECTED} return a"),
        ],
        ids=["error", "number", "naive", "past"],
    )
    def test_an_error_is_reported_shown_and_tried_again_later_and_later(self, settings, following, message):
        reported, asked, waits = [], [], []
        settings.AYEWORK = {"ON_ERROR": lambda error, phase: reported.append((type(error).__name__, phase))}
        declare(next=lambda now: asked.append(now) or following(now))
        for count in range(1, 13):
            assert tick() == 0, "not before its time"
            assert len(reported) == row().failures == count
            assert row().error.startswith(message)
            waits.append(int((row().due_at - asked[-1]).total_seconds()))
            assert after(row().due_at - now()) == 0
        assert (waits[:4], waits[-1]) == ([5, 10, 20, 40], 300)

    @on_sqlite
    def test_a_function_that_recovers_goes_on(self):
        broken = [True]

        def following(moment: datetime) -> datetime:
            if broken:
                raise RuntimeError(broken.pop())
            return moment + MINUTE

        declare(next=following)
        after(10)
        assert (row().failures, row().error) == (0, "")
        assert after(60) == 1

    @on_sqlite
    def test_a_function_that_fails_while_a_firing_is_queued_is_asked_again_after_that(self):
        broken: list[bool] = []

        def following(moment: datetime) -> datetime:
            if broken:
                raise RuntimeError(broken.pop())
            return moment + MINUTE

        declare(next=following, overlap="queue")
        assert after(60) == 1
        broken.append(True)
        assert after(60) == 0, "its work waits for the first, and the next moment is not known"
        assert (row().queued, row().next_at, row().failures) == (1, None, 1)
        drain()
        assert after(10) == 1
        assert row().next_at is not None
        assert after(60) == 0, "it goes on: this one waits for the second"
        drain()
        assert tick() + after(10) == 1

    @on_sqlite
    def test_a_function_that_always_gives_now_fires_once_a_tick(self):
        schedule(name="tick", next=lambda moment: moment + timedelta(microseconds=1), run=note)
        assert [tick(), tick(), tick()] == [1, 1, 1]


class TestFailures:
    def test_a_failed_firing_queues_nothing_and_is_tried_again(self):
        broken = [True]

        def run():
            enqueue(note())
            if broken:
                raise RuntimeError("no luck" if broken.pop() else "")
            return note()

        schedule(name="other", every=60, run=note)
        declare(run=run)
        assert after(60) == 1, "the other"
        assert (counts(), row().failures, row().error) == ((1, 1), 1, "RuntimeError: no luck")
        assert after(5) == 1
        assert (row().failures, row().error, Work.objects.count()) == (0, "", 3)
        assert Firing.objects.get(schedule__name="tick").occurrence == row().last_at

    def test_a_failed_firing_is_tried_again_even_if_nothing_is_caught_up(self):
        broken = [True]

        def run():
            if broken:
                raise RuntimeError(broken.pop())
            return note()

        declare(run=run, catch_up="none")
        assert [after(seconds) for seconds in (60, 5, 55)] == [0, 1, 1]
        assert (firings(), firings("missed")) == (2, 0)
        broken.append(True)
        assert [after(seconds) for seconds in (60, 65)] == [0, 0]
        assert (firings(), firings("failed")) == (2, 1), "a later one is due"
        assert Firing.objects.get(status="failed").error == "RuntimeError: True"

    @on_sqlite
    def test_a_firing_that_fails_for_long_has_failed_and_the_next_has_its_turn(self):
        def run() -> None:
            raise RuntimeError("no luck")

        declare("0 0 * * *", run=run)
        first = row().next_at
        assert [after(row().due_at - now()) for _ in range(TRIES)] == [0] * TRIES
        [firing] = Firing.objects.all()
        assert (firing.status, firing.occurrence, firing.error) == ("failed", first, "RuntimeError: no luck")
        assert row().next_at == row().due_at == first + timedelta(days=1)

    @on_sqlite
    def test_a_queued_firing_that_fails_for_long_keeps_its_error(self):
        broken: list[bool] = []

        def run():
            if broken:
                raise RuntimeError("no luck")
            return note()

        declare(run=run, overlap="queue", end=now() + 2.5 * MINUTE)
        assert (after(60), after(60)) == (1, 0), "the second waits for the first"
        drain()
        broken.append(True)
        assert [after(max(row().due_at - now(), timedelta())) for _ in range(TRIES)] == [0] * TRIES
        firing = Firing.objects.get(status="failed")
        assert (firing.error, row().queued, row().failures) == ("RuntimeError: no luck", 0, 0)

    @on_sqlite
    def test_a_schedule_whose_next_moment_cannot_be_told_keeps_no_other_waiting(self):
        schedule(name="other", every=60, run=note)
        declare("0 0 * * *", tz="Europe/Paris")
        Schedule.objects.filter(name="tick").update(tz="Moon/Tycho", origin="admin", function=note.name)
        for _ in range(TRIES + 2):
            assert after(max(row().due_at - now(), timedelta(seconds=60))) >= 1, "the other"
        assert row().failures == TRIES + 2
        assert "Moon/Tycho" in row().error

    @on_sqlite
    def test_a_function_that_returns_something_else_is_refused(self):
        declare(run=lambda: 7)
        assert after(60) == 0
        assert "to return a work built by calling its type, or None, got: 7" in row().error

    @on_sqlite
    @pytest.mark.parametrize("run", [note, lambda: 1 / 0], ids=["firing", "giving up"])
    def test_a_schedule_that_was_moved_meanwhile_keeps_nothing_of_the_step(self, monkeypatch, run):
        declare(run=run)
        monkeypatch.setattr(steps, "move_schedule", lambda row, changes: False)
        assert [after(max(row().due_at - now(), timedelta())) for _ in range(TRIES)] == [0] * TRIES
        assert counts() == (0, 0)

    @pytest.mark.parametrize("cron", [None, "0 0 * * *"], ids=["of several", "alone"])
    def test_an_occurrence_that_has_its_firing_queues_nothing(self, cron):
        declare(cron)
        Firing.objects.create(schedule=row(), occurrence=row().next_at, status="fired", made_at=now())
        time_travel(row().next_at - now())
        for _ in range(TRIES):
            assert tick() == 0
            time_travel(max(row().due_at - now(), timedelta()))
        assert Work.objects.count() == 0
        assert row().failures == 0, "it has gone on"

    def test_a_tick_that_is_rolled_back_has_not_happened(self):
        declare()
        with transaction.atomic():
            assert after(60) == 1
            transaction.set_rollback(True)
        assert counts() == (0, 0)
        assert tick() == 1


class TestCatchingUp:
    @pytest.mark.parametrize(
        ("catch_up", "minutes", "expected"),
        [
            ("none", 60.5, [("missed", 60)]),
            ("none", 5.01, [("missed", 4), ("fired", 1)]),  # one that is on time
            ("last", 60.5, [("missed", 59), ("fired", 1)]),
            ("all", 60.5, [("fired", 1)] * 60),
        ],
    )
    def test_a_scheduler_that_was_stopped_for_long(self, catch_up, minutes, expected):
        declare(catch_up=catch_up)
        first, fired = row().next_at, expected.count(("fired", 1))
        assert after(minutes * MINUTE) == Work.objects.count() == fired
        assert list(Firing.objects.order_by("occurrence").values_list("status", "number")) == expected
        assert row().next_at == first + int(minutes) * MINUTE
        assert after(row().next_at - now()) == 1, "the next one is on time"

    def test_the_time_of_a_pause_is_not_made_up_for(self):
        declare(catch_up="all")
        assert set_paused(row().pk, True)
        assert after(600) == 0
        assert set_paused(row().pk, False)
        assert (tick(), after(60)) == (0, 1)


class TestOverlap:
    @on_sqlite
    @pytest.mark.parametrize(("overlap", "works"), [("allow", 3), ("skip", 1), ("queue", 1)])
    def test_the_works_of_the_firing_before_have_not_ended(self, overlap, works):
        declare(overlap=overlap)
        for _ in range(3):
            after(60)
        assert Work.objects.count() == works
        assert (firings("skipped"), firings("queued")) == (2 * (overlap == "skip"), 2 * (overlap == "queue"))

    @pytest.mark.parametrize("work", [family, two_steps], ids=["group", "chain"])
    def test_the_whole_group_or_chain_must_end(self, work):
        declare(run=work, overlap="skip")
        assert after(60) == 1
        drain(limit=1)
        assert Work.objects.filter(status="success").count() == 1
        assert after(60) == 0
        drain()
        assert after(60) == 1

    def test_queued_firings_follow_one_by_one(self):
        declare(overlap="queue")
        for _ in range(4):
            after(60)
        assert (row().queued, firings("queued")) == (3, 3)
        for left in (2, 1, 0):
            assert after(1) == 0, "the one before has not ended"
            drain()
            assert after(1) == 1
            assert (row().queued, firings("queued")) == (left, left)
        works = list(Firing.objects.order_by("occurrence").values_list("work_id", flat=True))
        assert works == sorted(works), "in the order of their occurrences"

    @on_sqlite
    def test_a_queued_firing_whose_row_was_deleted_holds_the_schedule_up_no_longer(self):
        declare(overlap="queue")
        assert (after(60), after(60), row().queued) == (1, 0, 1)
        Firing.objects.filter(status="queued").delete()
        drain()
        assert (after(1), row().queued, row().failures, row().error) == (0, 0, 0, "")
        assert after(60) == 1

    def test_works_that_were_deleted_have_ended(self):
        declare(overlap="skip")
        after(60)
        Work.objects.all().delete()
        assert after(60) == 1
