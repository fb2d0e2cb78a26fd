"""Schedulers: the thread beside a worker or alone, and processes at the same occurrences."""

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_ayework import Worker, schedule
from django_ayework.flow import scheduler as steps
from django_ayework.models import Firing, Schedule, Work
from django_ayework.testing import now, running_worker, tick, time_travel
from django_ayework.testing.factories import ScheduleFactory
from django_ayework.worker import maintenance as scheduling
from django_ayework.worker.maintenance import Scheduler
from tests.processes import PATIENCE, ROOT, ended_well, eventually, full_disk
from tests.schedules.works import note

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_schedule_that_is_looked_at_too_early_is_left_until_it_is_due():
    """Else every tick would look at it again at once."""
    schedule(name="tick", every=60, run=note)
    tick()
    Schedule.objects.update(due_at=now() - timedelta(seconds=1))
    assert tick() == 0
    assert Schedule.objects.get().due_at == Schedule.objects.get().next_at > now()


def test_no_more_firings_wait_than_a_bound_and_later_ones_are_skipped(monkeypatch):
    monkeypatch.setattr(steps, "BOUND", 2)
    schedule(name="tick", every=60, run=note, overlap="queue")
    tick()
    for _ in range(5):
        time_travel(60)
        tick()
    assert Counter(Firing.objects.values_list("status", flat=True)) == {"fired": 1, "queued": 2, "skipped": 2}


def test_no_firing_passes_a_queued_one_when_the_works_before_end_during_the_step(monkeypatch):
    schedule(name="tick", every=60, run=note, overlap="queue")
    tick()
    for _ in range(2):
        time_travel(60)
        tick()
    answers = iter([False, True])
    monkeypatch.setattr(steps, "has_ended", lambda group: next(answers))
    time_travel(60)
    assert steps.fire_due().fired == 0
    assert Schedule.objects.get().queued == 2


@pytest.mark.parametrize("scheduler", [True, pytest.param(False, marks=pytest.mark.vendors("sqlite"))])
def test_a_worker_fires_schedules_unless_told_otherwise_and_takes_up_later_ones(scheduler):
    def is_running() -> bool:
        return "ayework-scheduler" in {thread.name for thread in threading.enumerate()}

    def is_enabled(name: str) -> bool | None:
        return Schedule.objects.filter(name=name).values_list("enabled", flat=True).first()

    schedule(name="tick", every=1, run=note)
    with running_worker(scheduler=scheduler):
        if scheduler:
            eventually(is_running)
            eventually(lambda: Firing.objects.filter(status="fired").exists())
            late = schedule(name="late", every=3600, run=note)
            eventually(lambda: is_enabled("late"))
            late.cancel()
            eventually(lambda: is_enabled("late") is False)
        assert is_running() is scheduler
    assert not is_running()
    assert Schedule.objects.exists() is scheduler


def test_a_resting_scheduler_takes_up_schedules_of_its_process_and_of_others(monkeypatch):
    """It rests for long, as there are no schedules."""
    monkeypatch.setattr(scheduling, "NO_SCHEDULES", 600.0)
    for module in (steps, scheduling):
        monkeypatch.setattr(module, "IDLE", 0.01)
    with running_worker() as worker:
        thread = worker._scheduler
        eventually(lambda: thread.was_started and math.isfinite(thread.heartbeat._moved_at))
        eventually(lambda: thread.heartbeat._moved_at > time.monotonic() + 60)
        ScheduleFactory(origin="admin", every=3600, function="schedules.note", next_at=now(), due_at=now())
        eventually(lambda: Firing.objects.filter(status="fired").exists())
        schedule(name="late", every=3600, run=note)
        eventually(lambda: Schedule.objects.filter(name="late", enabled=True).exists())


def test_a_slow_function_delays_no_lease_and_no_other_scheduler():
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
        if connections["default"].vendor != "sqlite":  # which has one lock for all
            eventually(lambda: Firing.objects.filter(schedule__name="quick").exists())
    finally:
        may_end.set()
        eventually(lambda: Firing.objects.filter(status="fired").count() == 2)
        for each in (one, other):
            each.stop()


def once() -> Any:
    """A function that gives one moment, which is now, and then the end."""
    moments = [now() + timedelta(seconds=1)]
    return lambda moment: moments.pop() if moments else None


@pytest.mark.vendors("sqlite")
def test_a_scheduler_waits_for_a_database_that_is_away(monkeypatch):
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


DUE = 60
FUNCTION = "tests.schedules.race.works.<lambda>"


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.schedules.settings"}


def scheduler(stack: ExitStack, env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
    """Start a scheduler; it is killed at the latest at the end of the block."""
    command = [sys.executable, "-m", "django", "ayework_scheduler", "--verbosity", "0", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    process = stack.enter_context(subprocess.Popen(command, env=env, cwd=ROOT, **pipes))
    stack.callback(process.kill)
    return process


def race_row(**given: Any) -> Schedule:
    """The row as the processes declare it, so that they find nothing to change."""
    columns = {"name": "race", "every": 1.0, "function": FUNCTION, "catch_up": "all"}
    return ScheduleFactory(**columns | given)


@pytest.mark.vendors("sqlite")
def test_a_scheduler_fires_although_nothing_can_be_printed(env):
    """As a worker does while the disk of the log is full."""
    with full_disk() as log, ExitStack() as stack:
        process = scheduler(stack, env, stdout=log)
        eventually(lambda: Firing.objects.exists() or process.poll() is not None)
        process.terminate()
        process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, 120)  # 120: Python could not print the rest at its end


@pytest.mark.races
@pytest.mark.vendors("postgresql", "mysql")  # on SQLite one process may fire them all
def test_processes_make_one_work_for_each_of_many_occurrences(env):
    """Both are up, and sleep until the same moment, when all of the occurrences are due."""
    first = now() - timedelta(hours=1)
    last = first + timedelta(seconds=DUE - 1)
    env |= {"RACE_START": first.isoformat(), "RACE_END": last.isoformat()}
    ages_ago, later = first - timedelta(hours=1), now() + timedelta(hours=1)
    row = race_row(next_at=first, due_at=later, last_at=ages_ago, start_at=first, end_at=last)
    with ExitStack() as stack:
        processes = [scheduler(stack, env) for _ in range(2)]
        for process in processes:
            assert process.stdout
            assert json.loads(process.stdout.readline()) == {"schedules": ["race"]}
        Schedule.objects.filter(pk=row.pk).update(due_at=now() + timedelta(seconds=1))
        eventually(lambda: Schedule.objects.filter(pk=row.pk, next_at=None).exists())
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            ended_well(process)
    occurrences = list(Firing.objects.order_by("occurrence").values_list("occurrence", flat=True))
    assert Counter(Firing.objects.values_list("status", flat=True)) == {"fired": DUE}
    assert (occurrences[0], occurrences[-1]) == (first, last)
    assert {after - before for before, after in pairwise(occurrences)} == {timedelta(seconds=1)}
    assert Counter(Work.objects.values_list("type", flat=True)) == {"schedules.raced": DUE}
    shares = Counter(Work.objects.values_list("input", flat=True))
    assert len(shares) > 1, f"only one process took part: {shares}"
    print("fired by each process:", sorted(shares.values()))
    linked = set(Firing.objects.values_list("work_id", flat=True))
    assert linked == set(Work.objects.values_list("id", flat=True))


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("scheduler", [True, False])
def test_a_burst_fires_due_schedules_before_it_looks_for_works(scheduler):
    schedule(name="tick", every=3600, run=note)
    tick()
    Schedule.objects.update(next_at=now(), due_at=now())
    Worker(burst=True, scheduler=scheduler).run()
    assert Work.objects.filter(status="success").exists() is scheduler
    assert not Work.objects.exclude(status="success").exists()
