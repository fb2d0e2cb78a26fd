"""Occurrences that were missed, and those that come before the works of the last one have ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import schedule
from django_ayework.models import Firing, Schedule, Work
from django_ayework.testing import drain, tick, time_travel
from tests.schedules.works import family, note
from tests.schedules.works import steps as two_steps

pytestmark = pytest.mark.django_db


def firings(status: str = "fired") -> int:
    return Firing.objects.filter(status=status).count()


def row(name: str = "tick") -> Schedule:
    return Schedule.objects.get(name=name)


class TestCatchingUp:
    @pytest.mark.parametrize(
        ("catch_up", "fired", "missed"), [("none", 0, 60), ("last", 1, 59), ("all", 60, 0)]
    )
    def test_a_scheduler_that_was_stopped_for_an_hour(self, catch_up, fired, missed):
        schedule(name="tick", every=60, run=note, catch_up=catch_up)
        tick()
        first = row().next_at
        time_travel(timedelta(hours=1, seconds=30))
        assert tick() == fired
        assert sum(firing.number for firing in Firing.objects.filter(status="missed")) == missed
        assert Work.objects.count() == fired
        assert row().next_at == first + timedelta(hours=1)
        time_travel(30)
        assert tick() == 1, "what comes next is on time"

    def test_none_still_fires_what_is_on_time(self):
        schedule(name="tick", every=60, run=note, catch_up="none")
        tick()
        time_travel(60 * 5 + 1)
        assert tick() == 1
        assert [(f.status, f.number) for f in Firing.objects.order_by("occurrence")] == [
            ("missed", 4),
            ("fired", 1),
        ]

    def test_all_is_bounded(self):
        schedule(name="tick", every=60, run=note, catch_up="all")
        tick()
        time_travel(60 * 1500)
        assert tick() == 1000
        assert Firing.objects.get(status="missed").number == 500

    def test_what_was_paused_is_not_made_up_for(self):
        from django_ayework.flow.schedules import set_paused

        schedule(name="tick", every=60, run=note, catch_up="all")
        tick()
        assert set_paused(row().pk, True)
        time_travel(600)
        assert tick() == 0
        assert set_paused(row().pk, False)
        assert tick() == 0
        time_travel(60)
        assert tick() == 1


class TestOverlap:
    @pytest.mark.parametrize(("overlap", "works"), [("allow", 3), ("skip", 1), ("queue", 1)])
    def test_the_works_of_the_firing_before_have_not_ended(self, overlap, works):
        schedule(name="tick", every=60, run=note, overlap=overlap)
        tick()
        for _ in range(3):
            time_travel(60)
            tick()
        assert Work.objects.count() == works
        assert firings("skipped") == (2 if overlap == "skip" else 0)
        assert firings("queued") == (2 if overlap == "queue" else 0)

    @pytest.mark.parametrize(("work", "rounds"), [(family, 2), (two_steps, 2)])
    def test_the_whole_group_or_chain_is_waited_for(self, work, rounds):
        schedule(name="tick", every=60, run=work, overlap="skip")
        tick()
        time_travel(60)
        assert tick() == 1
        drain(limit=1)
        assert Work.objects.filter(status="success").count() == 1
        time_travel(60)
        assert tick() == 0
        drain()
        time_travel(60)
        assert tick() == 1

    def test_queued_firings_follow_one_by_one(self):
        schedule(name="tick", every=60, run=note, overlap="queue")
        tick()
        for _ in range(4):
            time_travel(60)
            tick()
        assert (row().queued, firings("queued")) == (3, 3)
        for left in (2, 1, 0):
            time_travel(1)
            assert tick() == 0, "the one before has not ended"
            drain()
            time_travel(1)
            assert tick() == 1
            assert (row().queued, firings("queued")) == (left, left)
        occurrences = Firing.objects.order_by("occurrence").values_list("work_id", flat=True)
        assert list(occurrences) == sorted(occurrences), "in the order of their occurrences"

    def test_works_that_were_deleted_have_ended(self):
        schedule(name="tick", every=60, run=note, overlap="skip")
        tick()
        time_travel(60)
        tick()
        Work.objects.all().delete()
        time_travel(60)
        assert tick() == 1
