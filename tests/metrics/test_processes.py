"""Workers that serve metrics, in real processes."""

import os
import re
import signal
import urllib.request

import pytest

from django_ayework import enqueue_many
from django_ayework.models import Work
from tests.app.works import add
from tests.metrics.kit import samples_of, value
from tests.processes import ended_well, eventually, stopped, worker_process
from tests.supervisor.kit import children, supervisor

JOBS = 40


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.metrics.settings"}


def address(process):
    """Read where a process serves metrics, which is the first thing it prints."""
    found = re.search(r"http://\S+/metrics", line := process.stdout.readline())
    assert found, line
    return found[0]


def read(url, name, **labels):
    """Return a value of the page; none while nobody serves it."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return value(samples_of(response.read().decode()), name, **labels)
    except OSError:  # the process that serves starts last
        return None


def work_off(url, jobs, started):
    """Queue works; wait until so many have succeeded in all, and so many workers have started."""
    enqueue_many([add(a=1, b=2) for _ in range(JOBS)])
    eventually(lambda: read(url, "works_succeeded_total", type="shop.add") == jobs)
    eventually(lambda: read(url, "workers_started_total") == started)


@pytest.mark.vendors("sqlite")
def test_a_supervisor_serves_the_sum_of_its_processes_those_that_have_ended_included(env, tmp_path):
    env = env | {"TMPDIR": str(tmp_path)}
    env.pop("PROMETHEUS_MULTIPROC_DIR", None)
    with supervisor(env, "--metrics-port", "0", "--concurrency", "1") as process:
        url = address(process)
        old = children()
        work_off(url, JOBS, started=2)
        [folder] = tmp_path.glob("ayework-metrics-*")
        os.kill(old[0], signal.SIGKILL)
        (folder / f"summary_{old[0]}.db").touch()  # it may be killed while it makes a file
        children(3)  # with the row of the one that was killed
        work_off(url, 2 * JOBS, started=3)
        for name in ("attempts_started_total", "attempt_duration_seconds_count"):
            assert read(url, name, type="shop.add") == 2 * JOBS
        assert read(url, "live_workers") >= 2
        assert not list(folder.glob(f"*_{old[0]}.db"))
        stopped(process)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.vendors("sqlite")
def test_a_process_that_has_ended_shows_no_live_gauge_in_a_folder_of_the_project(env, tmp_path):
    with supervisor(env | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}) as process:
        old, other = children()
        ended, counted, living = (
            tmp_path / name
            for name in (f"gauge_livesum_{old}.db", f"gauge_max_{old}.db", f"gauge_livesum_{other}.db")
        )
        for path in (ended, counted, living):
            path.touch()
        os.kill(old, signal.SIGKILL)
        eventually(lambda: not ended.exists())
        assert counted.exists()
        assert living.exists()
        stopped(process)


@pytest.mark.vendors("sqlite")
def test_a_process_that_is_spawned_serves_metrics_at_the_port_that_was_printed(env):
    with supervisor(env | {"TEST_THREAD": "1"}, "--metrics-port", "0") as process:
        url = address(process)
        eventually(lambda: read(url, "workers_started_total") == 2)
        stopped(process)


@pytest.mark.vendors("sqlite")
def test_the_process_that_serves_ends_with_the_bursts_of_the_workers(env):
    enqueue_many([add(a=1, b=2) for _ in range(3)])
    with supervisor(env, "--metrics-port", "0", "--burst") as process:
        ended_well(process)
    assert Work.objects.filter(status="success").count() == 3


def test_a_single_worker_serves_its_page(env):
    with worker_process(env, "--metrics-port", "0") as process:
        url = address(process)
        work_off(url, JOBS, started=1)
        assert read(url, "live_workers") == 1
        stopped(process)
