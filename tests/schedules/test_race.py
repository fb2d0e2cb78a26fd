"""Scheduler processes at the same occurrences: each is fired once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from django_ayework.models import Firing, Schedule, Work
from django_ayework.testing import now
from django_ayework.testing.factories import ScheduleFactory
from tests.processes import ROOT, ended, eventually, worker_process

pytestmark = pytest.mark.django_db(transaction=True)
DUE = 200
FUNCTION = "tests.schedules.race.works.<lambda>"


@pytest.fixture
def env(process_env: dict[str, str]) -> dict[str, str]:
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.schedules.settings"}


def scheduler(stack: ExitStack, env: dict[str, str]) -> subprocess.Popen[str]:
    """Start a scheduler; it is killed at the latest at the end of the block."""
    command = [sys.executable, "-m", "django", "ayework_scheduler", "--verbosity", "0", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = stack.enter_context(subprocess.Popen(command, env=env, cwd=ROOT, **pipes))
    stack.callback(process.kill)
    return process


def stopped(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        status, output = ended(process)
        assert (status, output) == (0, ""), output


def race_row(**given: Any) -> Schedule:
    """The row as the processes declare it, so that they find nothing to change."""
    columns = {"name": "race", "every": 1.0, "function": FUNCTION, "catch_up": "all"}
    return ScheduleFactory(**columns | given)


@pytest.mark.races
def test_two_hundred_occurrences_and_three_schedulers_make_two_hundred_works(
    env: dict[str, str], database_vendor: str
) -> None:
    """All of them are up, and sleep until the same moment, when all of the occurrences are due."""
    first = now() - timedelta(hours=1)
    last = first + timedelta(seconds=DUE - 1)
    env |= {"RACE_START": first.isoformat(), "RACE_END": last.isoformat()}
    ages_ago, later = first - timedelta(hours=1), now() + timedelta(hours=1)
    row = race_row(next_at=first, due_at=later, last_at=ages_ago, start_at=first, end_at=last)
    with ExitStack() as stack:
        processes = [scheduler(stack, env) for _ in range(3)]
        for process in processes:
            assert process.stdout
            assert json.loads(process.stdout.readline()) == {"schedules": ["race"]}
        Schedule.objects.filter(pk=row.pk).update(due_at=now() + timedelta(seconds=3))
        eventually(lambda: Schedule.objects.filter(pk=row.pk, next_at=None).exists())
        stopped(processes)
    occurrences = list(Firing.objects.order_by("occurrence").values_list("occurrence", flat=True))
    assert Counter(Firing.objects.values_list("status", flat=True)) == {"fired": DUE}
    assert (occurrences[0], occurrences[-1]) == (first, last)
    assert {after - before for before, after in pairwise(occurrences)} == {timedelta(seconds=1)}
    assert Counter(Work.objects.values_list("type", flat=True)) == {"schedules.raced": DUE}
    shares = Counter(Work.objects.values_list("input", flat=True))
    if database_vendor != "sqlite":  # which lets the one go on that is at it
        assert len(shares) > 1, f"only one process took part: {shares}"
    print("fired by each process:", sorted(shares.values()))
    linked = set(Firing.objects.values_list("work_id", flat=True))
    assert linked == set(Work.objects.values_list("id", flat=True))


def test_workers_fire_schedules_and_run_what_they_queue(env: dict[str, str]) -> None:
    with worker_process(env, "--verbosity", "0") as process:
        eventually(lambda: Work.objects.filter(type="schedules.raced", status="success").exists())
        stopped_at = Firing.objects.count()
        eventually(lambda: Firing.objects.count() > stopped_at)
        process.send_signal(signal.SIGTERM)
        status, output = ended(process)
        assert status == 0, output


def test_a_worker_may_leave_schedules_to_others(env: dict[str, str]) -> None:
    race_row(next_at=now(), due_at=now())
    with worker_process(env, "--no-scheduler", "--burst", "--verbosity", "0") as process:
        status, output = ended(process)
        assert status == 0, output
    assert Work.objects.count() == 0


def test_a_burst_fires_what_is_due_before_it_looks_for_works(env: dict[str, str]) -> None:
    race_row(next_at=now(), due_at=now(), last_at=now() - timedelta(seconds=1), catch_up="all")
    with worker_process(env, "--burst", "--verbosity", "0") as process:
        status, output = ended(process)
        assert status == 0, output
    assert Work.objects.filter(status="success").count() >= 1
    assert Work.objects.exclude(status="success").count() == 0
