"""Firings that fail: nothing is left of them, the error is shown, and they are tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_ayework import enqueue, schedule
from django_ayework.flow import firing as steps
from django_ayework.models import Firing, Schedule, Work
from django_ayework.rules.schedules import TRIES
from django_ayework.testing import now, tick, time_travel
from tests.schedules.works import note

pytestmark = pytest.mark.django_db


def row(name: str = "tick") -> Schedule:
    return Schedule.objects.get(name=name)


class TestFailures:
    def test_what_fails_queues_nothing_and_is_tried_again(self):
        broken = [True]

        def run() -> Any:
            enqueue(note())
            if broken:
                raise RuntimeError("no luck" if broken.pop() else "")
            return note()

        schedule(name="tick", every=60, run=run)
        schedule(name="other", every=60, run=note)
        tick()
        time_travel(60)
        assert tick() == 1, "the other"
        assert (Work.objects.count(), Firing.objects.count()) == (1, 1)
        assert (row().failures, row().error) == (1, "RuntimeError: no luck")
        time_travel(5)
        assert tick() == 1
        assert (row().failures, row().error, Work.objects.count()) == (0, "", 3)
        assert Firing.objects.get(schedule__name="tick").occurrence == row().last_at

    def test_what_fails_for_long_has_failed_and_the_next_has_its_turn(self):
        def run() -> None:
            raise RuntimeError("no luck")

        schedule("0 0 * * *", name="tick", run=run)
        tick()
        first = row().next_at
        for count in range(TRIES):
            time_travel(row().due_at - now())
            assert tick() == 0, count
        [firing] = Firing.objects.all()
        assert (firing.status, firing.occurrence, firing.error) == ("failed", first, "RuntimeError: no luck")
        assert row().next_at == row().due_at == first + timedelta(days=1)

    def test_a_function_that_returns_something_else_is_told_so(self):
        schedule(name="tick", every=60, run=lambda: 7)
        tick()
        time_travel(60)
        assert tick() == 0
        assert "to return a work built by calling its type, or None, got: 7" in row().error

    def test_a_schedule_that_was_moved_meanwhile_keeps_nothing_of_the_step(self, monkeypatch):
        schedule(name="tick", every=60, run=note)
        tick()
        time_travel(60)
        monkeypatch.setattr(steps, "move_schedule", lambda row, changes: False)
        assert tick() == 0
        assert (Work.objects.count(), Firing.objects.count()) == (0, 0)

    def test_an_occurrence_that_has_its_firing_queues_nothing(self):
        schedule(name="tick", every=60, run=note)
        tick()
        Firing.objects.create(schedule=row(), occurrence=row().next_at, status="fired", made_at=now())
        time_travel(60)
        for _ in range(TRIES):
            assert tick() == 0
            time_travel(max(row().due_at - now(), timedelta()))
        assert Work.objects.count() == 0
        assert row().failures == 0, "it has gone on"

    def test_a_tick_that_is_rolled_back_has_not_happened(self):
        schedule(name="tick", every=60, run=note)
        tick()
        time_travel(60)
        with transaction.atomic():
            assert tick() == 1
            transaction.set_rollback(True)
        assert (Work.objects.count(), Firing.objects.count()) == (0, 0)
        assert tick() == 1
