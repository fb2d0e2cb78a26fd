"""The thread that fires schedules, beside a worker or alone."""

from __future__ import annotations

import math
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_ayework import schedule
from django_ayework.flow import firing
from django_ayework.models import Firing, Schedule
from django_ayework.testing import now, running_worker
from django_ayework.worker import scheduler as scheduling
from django_ayework.worker.scheduler import Scheduler
from tests.processes import eventually
from tests.schedules.works import note

pytestmark = pytest.mark.django_db(transaction=True)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_worker_fires_and_runs_what_is_due():
    schedule(name="tick", every=1, run=note)
    with running_worker():
        eventually(lambda: "ayework-scheduler" in threads())
        eventually(lambda: Firing.objects.filter(status="fired").count() >= 2)
    assert "ayework-scheduler" not in threads()


def test_one_that_is_told_not_to_does_not():
    schedule(name="tick", every=1, run=note)
    with running_worker(scheduler=False):
        assert "ayework-scheduler" not in threads()
    assert not Schedule.objects.exists()


def test_a_declaration_that_comes_later_is_taken_up():
    schedule(name="first", every=3600, run=note)
    with running_worker():
        eventually(lambda: Schedule.objects.filter(name="first").exists())
        late = schedule(name="late", every=3600, run=note)
        eventually(lambda: Schedule.objects.filter(name="late", enabled=True).exists())
        late.cancel()
        eventually(lambda: Schedule.objects.filter(name="late", enabled=False).exists())


@pytest.fixture
def resting_worker(monkeypatch):
    """A worker whose scheduler rests for long, as there are no schedules."""
    monkeypatch.setattr(scheduling, "NO_SCHEDULES", 600.0)
    for module in (firing, scheduling):
        monkeypatch.setattr(module, "IDLE", 0.01)
    with running_worker() as worker:
        thread = worker._scheduler
        eventually(lambda: thread.was_started and math.isfinite(thread.heartbeat._moved_at))
        eventually(lambda: thread.heartbeat._moved_at > time.monotonic() + 60)
        yield


@pytest.mark.usefixtures("resting_worker")
def test_a_resting_scheduler_fires_what_another_process_makes():
    Schedule.objects.create(
        name="made",
        origin="admin",
        kind="every",
        every=3600,
        function="schedules.note",
        tz="UTC",
        next_at=now(),
        due_at=now(),
    )
    eventually(lambda: Firing.objects.filter(status="fired").exists())


@pytest.mark.usefixtures("resting_worker")
def test_a_resting_scheduler_takes_up_what_its_process_declares():
    schedule(name="late", every=3600, run=note)
    eventually(lambda: Schedule.objects.filter(name="late", enabled=True).exists())


def test_a_function_that_takes_long_keeps_no_lease_and_no_other_scheduler_waiting():
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> Any:
        begun.set()
        may_end.wait(110)
        return note()

    schedule(name="slow", next=once(), run=slow)
    one, other = Scheduler(), Scheduler()
    one.start()
    assert begun.wait(30)
    schedule(name="quick", next=once(), run=note)
    other.start()
    try:
        if connection.vendor != "sqlite":  # which has one lock for all
            eventually(lambda: Firing.objects.filter(schedule__name="quick").exists())
    finally:
        may_end.set()
        eventually(lambda: Firing.objects.filter(status="fired").count() == 2)
        for each in (one, other):
            each.stop()


def once() -> Any:
    """A function that tells one moment, which is now, and then the end."""
    moments = [now() + timedelta(seconds=1)]

    def following(moment: datetime) -> datetime | None:
        return moments.pop() if moments else None

    return following


def test_a_database_that_is_away_is_waited_for(monkeypatch):
    tried = []

    def fail() -> None:
        tried.append(1)
        if len(tried) < 3:
            raise OperationalError("away")

    monkeypatch.setattr(scheduling, "sync", fail)
    monkeypatch.setattr(scheduling, "FIRST_PAUSE", 0.01)
    alone = Scheduler()
    alone.start()
    eventually(lambda: len(tried) == 3)
    alone.stop()
    assert len(tried) == 3, "and not again once it was there"
