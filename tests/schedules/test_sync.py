"""Rows follow the declarations, and the history is kept for a month."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from django_ayework import schedule
from django_ayework.flow.maintenance import FIRINGS_KEPT, prune_others
from django_ayework.flow.schedules import restore, sync
from django_ayework.models import Firing, Schedule
from django_ayework.store.schedules import soonest
from django_ayework.testing import now, tick, time_travel
from django_ayework.testing.factories import FiringFactory, ScheduleFactory
from django_ayework.worker.maintenance import Scheduler
from tests.schedules.works import note

pytestmark = pytest.mark.django_db


def row() -> Schedule:
    return Schedule.objects.get(name="tick")


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.INFO, logger="django_ayework")
    return caplog


def disable() -> None:
    """Disable the schedule as an older release did."""
    Schedule.objects.filter(name="tick").update(enabled=False, next_at=None, due_at=None)


def test_a_new_schedule_is_added_and_begins_now(heard, django_assert_num_queries):
    schedule(name="tick", every=60, run=note, overlap="skip", jitter=0)
    schedule("0 3 * * *", name="other", run=note, jitter=5)
    sync()
    added = row()
    assert (added.origin, added.kind, added.every, added.function) == ("code", "every", 60, "schedules.note")
    assert (added.overlap, added.enabled) == ("skip", True)
    assert added.next_at - now() <= timedelta(seconds=60)
    assert "Added the schedule tick, which runs schedules.note." in heard.text
    with django_assert_num_queries(1):
        sync()


def test_a_change_of_the_time_begins_anew_and_any_other_does_not(heard):
    schedule(name="tick", every=600, run=note)
    sync()
    before = row().next_at
    time_travel(601)
    schedule(name="tick", every=600, run=note, overlap="queue")
    sync()
    assert (row().overlap, row().next_at) == ("queue", before), "a due occurrence is kept"
    schedule(name="tick", every=60, run=note, overlap="queue")
    sync()
    assert before < row().next_at <= now() + timedelta(seconds=60)
    assert "Changed the schedule tick: due_at, error, every, failures, next_at." in heard.text


def test_a_schedule_that_is_removed_is_disabled_and_kept(heard):
    declared = schedule(name="tick", every=60, run=note, catch_up="all")
    tick()
    time_travel(60)
    assert tick() == 1
    declared.cancel()
    sync()
    assert (row().enabled, row().due_at, Firing.objects.count()) == (False, None, 1)
    assert "Disabled the schedule tick: no code declares it any more." in heard.text
    Firing.objects.all().delete()  # nothing is fired again because its history is gone
    time_travel(3600)
    assert tick() == 0
    schedule(name="tick", every=60, run=note, catch_up="all")
    assert tick() == 0, "it goes on from now"
    time_travel(60)
    assert tick() == 1
    Firing.objects.all().delete()
    assert tick() == 0


def test_a_function_schedule_that_has_ended_stays_so():
    schedule(name="tick", next=lambda moment: None, run=note)
    tick()
    tick()
    assert (row().next_at, row().due_at) == (None, None)


def test_a_name_taken_in_the_admin_is_left_alone(heard):
    ScheduleFactory(name="tick", origin="admin", every=5, function="schedules.note")
    schedule(name="tick", every=60, run=note)
    sync()
    assert (row().origin, row().every) == ("admin", 5)
    assert "one of this name was made in the admin" in heard.text


def test_a_pause_outlives_a_sync():
    schedule(name="tick", every=60, run=note)
    sync()
    Schedule.objects.update(paused=True, next_at=None, due_at=None)
    schedule(name="tick", every=30, run=note)
    sync()
    assert (row().every, row().paused, row().due_at) == (30, True, None)


def test_a_schedule_that_an_older_release_disabled_is_restored(heard):
    schedule(name="tick", every=60, run=note)
    tick()
    ScheduleFactory(name="removed", function="shop.add", enabled=False)
    disable()
    restore()
    assert row().enabled
    assert timedelta(seconds=50) < row().next_at - now() <= timedelta(seconds=60)
    assert not Schedule.objects.get(name="removed").enabled
    assert "Changed the schedule tick: due_at, enabled, error, failures, next_at." in heard.text


def test_a_scheduler_restores_now_and_then(monkeypatch):
    schedule(name="tick", every=60, run=note)
    scheduler = Scheduler()
    scheduler.turn()
    disable()
    scheduler.turn()
    assert not row().enabled
    monkeypatch.setattr(scheduler, "_restore_at", 0.0)
    scheduler.turn()
    assert row().enabled


def test_schedules_that_other_processes_leave_due_do_not_hide_ours():
    moment = now()
    for number in range(6):
        ScheduleFactory(name=f"foreign-{number}", function="elsewhere", due_at=moment - timedelta(hours=1))
    ScheduleFactory(name="ours", function="shop.add", due_at=moment)
    ScheduleFactory(name="made", origin="admin", function="shop.add", due_at=moment)
    for limit in (2, 100):
        found = soonest(["ours"], ["shop.add"], limit)
        assert {Schedule.objects.get(id=id).name for id, _ in found} == {"ours", "made"}
    assert soonest(["absent"], [], 100) == []


def test_old_firings_are_pruned_and_those_that_wait_are_not():
    old = FiringFactory(status="fired")
    waits = FiringFactory(status="queued")
    time_travel(FIRINGS_KEPT + timedelta(minutes=1))
    young = FiringFactory(status="missed")
    prune_others()
    assert set(Firing.objects.values_list("pk", flat=True)) == {waits.pk, young.pk} != {old.pk}
