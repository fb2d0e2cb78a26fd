"""Rows follow what code declares."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from django_ayework import schedule
from django_ayework.flow.schedules import restore, sync
from django_ayework.models import Firing, Schedule
from django_ayework.store.schedules import soonest
from django_ayework.testing import now, tick, time_travel
from django_ayework.worker.scheduler import Scheduler
from tests.schedules.works import note

pytestmark = pytest.mark.django_db


def row() -> Schedule:
    return Schedule.objects.get(name="tick")


@pytest.fixture(autouse=True)
def heard(caplog):
    caplog.set_level(logging.INFO, logger="django_ayework")
    return caplog


def test_what_is_new_is_added_and_begins_now(heard):
    schedule(name="tick", every=60, run=note, overlap="skip", jitter=0)
    sync()
    added = row()
    assert (added.origin, added.kind, added.every, added.function) == ("code", "every", 60, "schedules.note")
    assert (added.overlap, added.enabled) == ("skip", True)
    assert added.next_at - now() <= timedelta(seconds=60)
    assert "Added the schedule tick, which runs schedules.note." in heard.text


def test_what_stays_costs_one_statement(django_assert_num_queries):
    schedule(name="tick", every=60, run=note)
    schedule("0 3 * * *", name="other", run=note, jitter=5)
    sync()
    with django_assert_num_queries(1):
        sync()


def test_a_change_of_the_time_begins_anew_and_any_other_does_not(heard):
    schedule(name="tick", every=600, run=note)
    sync()
    before = row().next_at
    time_travel(601)
    schedule(name="tick", every=600, run=note, overlap="queue")
    sync()
    assert (row().overlap, row().next_at) == ("queue", before), "what is due now is not forgotten"
    schedule(name="tick", every=60, run=note, overlap="queue")
    sync()
    assert before < row().next_at <= now() + timedelta(seconds=60)
    assert "Changed the schedule tick: due_at, error, every, failures, next_at." in heard.text


def test_what_is_removed_is_disabled_and_kept(heard):
    declared = schedule(name="tick", every=60, run=note, catch_up="all")
    tick()
    time_travel(60)
    tick()
    declared.cancel()
    sync()
    assert (row().enabled, row().due_at, Firing.objects.count()) == (False, None, 1)
    assert "Disabled the schedule tick: no code declares it any more." in heard.text
    time_travel(3600)
    assert tick() == 0
    schedule(name="tick", every=60, run=note, catch_up="all")
    assert tick() == 0, "it goes on from now"
    time_travel(60)
    assert tick() == 1


def test_a_function_schedule_that_has_ended_stays_so():
    schedule(name="tick", next=lambda moment: None, run=note)
    tick()
    tick()
    assert (row().next_at, row().due_at) == (None, None)


def test_a_name_taken_in_the_admin_is_left_alone(heard):
    Schedule.objects.create(
        name="tick", origin="admin", kind="every", every=5, function="schedules.note", tz="UTC", enabled=True
    )
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


def test_what_an_older_release_disabled_is_restored(caplog):
    schedule(name="tick", every=60, run=note)
    tick()
    Schedule.objects.create(
        name="removed", kind="every", every=60.0, function="shop.add", tz="UTC", enabled=False
    )
    Schedule.objects.filter(name="tick").update(enabled=False, next_at=None, due_at=None)
    restore()
    assert row().enabled
    assert timedelta(seconds=50) < row().next_at - now() <= timedelta(seconds=60)
    assert not Schedule.objects.get(name="removed").enabled
    assert "Changed the schedule tick: due_at, enabled, error, failures, next_at." in caplog.text


def test_a_scheduler_restores_now_and_then(monkeypatch):
    schedule(name="tick", every=60, run=note)
    scheduler = Scheduler()
    scheduler.turn()
    Schedule.objects.filter(name="tick").update(enabled=False, next_at=None, due_at=None)
    scheduler.turn()
    assert not row().enabled
    monkeypatch.setattr(scheduler, "_restore_at", 0.0)
    scheduler.turn()
    assert row().enabled


def test_schedules_that_others_leave_undone_do_not_hide_ours():
    moment = now()
    common = {"kind": "every", "every": 60.0, "tz": "UTC"}
    foreign = [
        Schedule(name=f"foreign-{number}", function="elsewhere", due_at=moment - timedelta(hours=1), **common)
        for number in range(5)
    ]
    ours = Schedule(name="ours", function="shop.add", due_at=moment, **common)
    made = Schedule(name="made", origin="admin", function="shop.add", due_at=moment, **common)
    Schedule.objects.bulk_create([*foreign, ours, made])
    for limit in (2, 100):
        found = soonest(["ours"], ["shop.add"], limit)
        assert {Schedule.objects.get(id=id).name for id, _ in found} == {"ours", "made"}
    assert soonest(["absent"], [], 100) == []
