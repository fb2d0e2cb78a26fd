"""Processes that enqueue works which skip the queue, and end in one way or another."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from django_ayework.models import Work
from tests.processes import PATIENCE, ROOT, eventually, worker_process

PREAMBLE = """
import os, sys, time, threading
import django
django.setup()
from django.db import transaction
from django_ayework import enqueue
from tests.direct.works import quick
from tests.worker.works import at, at_async
place = sys.argv[1]
def until_started(place):
    while not os.path.exists(os.path.join(place, "started-0")): time.sleep(0.01)
"""


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.direct.settings"}


@contextmanager
def process(env, place: Path, source: str):
    command = [sys.executable, "-c", PREAMBLE + source, str(place)]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=env, **options) as running:
        try:
            yield running
        finally:
            running.kill()
            running.communicate()


def started(place: Path) -> list[str]:
    path = place / "started-0"
    return path.read_text().split() if path.exists() else []


def test_when_it_is_killed_a_worker_finishes_the_work(env, tmp_path):
    source = "enqueue(at(place=place), skip_queue=True); time.sleep(60)"
    with process(env, tmp_path, source) as victim:
        eventually(lambda: started(tmp_path) == ["1"])
        victim.send_signal(signal.SIGKILL)
        victim.wait(PATIENCE)
    work = Work.objects.get()
    assert (work.status, work.attempt) == ("running", 1)
    (tmp_path / "go").touch()
    with worker_process(env):
        eventually(lambda: Work.objects.get().status == "success")
    assert started(tmp_path) == ["1", "2"]
    assert Work.objects.get().attempt == 2


def test_when_it_is_killed_before_the_start_a_worker_makes_the_first_attempt(env, tmp_path):
    (tmp_path / "go").touch()
    source = """
from django_ayework.flow import enqueue as queueing
queueing.providers.intake = lambda works: os.kill(os.getpid(), 9)
enqueue(at(place=place), skip_queue=True)
"""
    with process(env, tmp_path, source) as victim:
        assert victim.wait(PATIENCE) == -signal.SIGKILL
    assert (Work.objects.get().status, Work.objects.get().attempt) == ("pending", 0)
    with worker_process(env):
        eventually(lambda: Work.objects.get().status == "success")
    assert started(tmp_path) == ["1"]


def test_when_it_ends_it_lets_the_works_end_first(env, tmp_path):
    """An async handler that queries still can: the executors of asyncio live as long as it does."""
    source = """
places = [os.path.join(place, name) for name in ("plain", "async")]
for type, folder in zip((at, at_async), places):
    os.mkdir(folder)
    enqueue(type(place=folder), skip_queue=True)
    until_started(folder)
threading.Timer(0.3, lambda: [open(os.path.join(folder, "go"), "w").close() for folder in places]).start()
"""
    with process(env, tmp_path, source) as leaving:
        output, _ = leaving.communicate(timeout=PATIENCE)
    assert (leaving.returncode, output) == (0, "")
    assert list(Work.objects.values_list("status", "attempt")) == [("success", 1)] * 2


def test_when_it_ends_at_once_an_async_work_with_queries_is_whole_or_has_not_begun(env, tmp_path):
    source = """
from tests.direct.works import quick_async
for _ in range(4): enqueue(quick_async())
"""
    with process(env, tmp_path, source) as leaving:
        output, _ = leaving.communicate(timeout=PATIENCE)
    assert (leaving.returncode, output) == (0, "")
    stands = set(Work.objects.values_list("status", "attempt"))
    assert stands <= {("success", 1), ("pending", 0)}


def test_when_it_ends_what_goes_on_too_long_is_given_back(env, tmp_path):
    source = "enqueue(at(place=place), skip_queue=True); until_started(place)"
    with process(env, tmp_path, source) as leaving:
        assert leaving.wait(PATIENCE) == 0
    assert (Work.objects.get().status, Work.objects.get().attempt) == ("pending", 0)


# SQLite keeps its locks per process. A child inherits those that a thread of the parent holds at the fork,
# and nothing releases them there: sqlite.org/howtocorrupt.html, 2.6. The page on running workers says so.
@pytest.mark.vendors("postgresql", "mysql")
def test_a_forked_process_has_threads_of_its_own(env, tmp_path):
    source = """
from django.db import connections
enqueue(quick()).result(20)
connections.close_all()
child = os.fork()
if not child:
    handle = enqueue(quick())
    handle.result(20)
    print(handle.state().completed_by[:7], flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    with process(env, tmp_path, source) as parent:
        output, _ = parent.communicate(timeout=PATIENCE)
    # Python 3.12 and later warn of a fork beside threads, before the last line.
    assert (parent.returncode, output.splitlines()[-1]) == (0, "direct-"), output


def test_a_worker_that_stops_stops_what_skips_the_queue_in_it(env, tmp_path):
    """A handler enqueues such a work: its worker's process makes the first attempt, and gives it back.

    It does so before it ends, for which it has no more time than a worker has.
    """
    from django_ayework import enqueue
    from tests.direct.works import relay

    enqueue(relay(place=str(tmp_path)), skip_queue=False)
    with worker_process(env | {"TEST_EXIT": "0.2"}, "--queues=default") as worker:
        eventually(lambda: started(tmp_path) == ["1"])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    held = Work.objects.get(type="worker.at")
    assert (held.status, held.attempt) == ("pending", 0)
