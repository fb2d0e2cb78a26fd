"""Workers that serve metrics, in real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from django_ayework import enqueue_many
from django_ayework.models import Work
from tests.app.works import add
from tests.metrics.kit import Samples, samples_of, value
from tests.processes import ended_well, eventually, stopped, worker_process
from tests.supervisor.kit import children, supervisor

JOBS = 40


def address(process: subprocess.Popen[str]) -> str:
    """Read where a process serves metrics, which is the first thing it prints."""
    assert process.stdout
    found = re.search(r"http://\S+/metrics", line := process.stdout.readline())
    assert found, line
    return found[0]


def fetched(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=10) as response:
        return samples_of(response.read().decode())


def has_ended(url: str, number: int) -> bool:
    try:
        return value(fetched(url), "ayework_works_succeeded_total", type="shop.add") == number
    except OSError:  # the process that serves starts last
        return False


@pytest.mark.vendors("sqlite", "postgresql")
def test_a_supervisor_serves_the_sum_of_its_processes_those_that_have_ended_included(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.metrics.settings", "TMPDIR": str(tmp_path)}
    env.pop("PROMETHEUS_MULTIPROC_DIR", None)
    with supervisor(env, "--metrics-port", "0", "--concurrency", "1") as process:
        url = address(process)
        old = children()
        enqueue_many([add(a=1, b=2) for _ in range(JOBS)])
        eventually(lambda: has_ended(url, JOBS))
        eventually(lambda: value(fetched(url), "ayework_workers_started_total") == 2)
        os.kill(old[0], signal.SIGKILL)
        children(3)  # with the row of the one that was killed
        enqueue_many([add(a=1, b=2) for _ in range(JOBS)])
        eventually(lambda: has_ended(url, 2 * JOBS))
        eventually(lambda: value(fetched(url), "ayework_workers_started_total") == 3)
        seen = fetched(url)
        assert value(seen, "ayework_attempts_started_total", type="shop.add") == 2 * JOBS
        assert value(seen, "ayework_attempt_duration_seconds_count", type="shop.add") == 2 * JOBS
        assert value(seen, "ayework_live_workers") >= 2
        [folder] = tmp_path.glob("ayework-metrics-*")
        assert not list(folder.glob(f"*_{old[0]}.db"))
        stopped(process)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.vendors("sqlite", "postgresql")
def test_the_process_that_serves_ends_with_the_bursts_of_the_workers(process_env: dict[str, str]) -> None:
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.metrics.settings"}
    enqueue_many([add(a=1, b=2) for _ in range(3)])
    with supervisor(env, "--metrics-port", "0", "--burst") as process:
        ended_well(process)
    assert Work.objects.filter(status="success").count() == 3


def test_a_single_worker_serves_its_page(process_env: dict[str, str]) -> None:
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.metrics.settings"}
    with worker_process(env, "--metrics-port", "0") as process:
        url = address(process)
        enqueue_many([add(a=1, b=2) for _ in range(3)])
        eventually(lambda: has_ended(url, 3))
        assert value(fetched(url), "ayework_live_workers") == 1
        stopped(process)
