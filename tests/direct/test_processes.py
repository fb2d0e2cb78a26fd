"""Processes that enqueue works which skip the queue, and end in one way or another."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from django_ayework import enqueue
from django_ayework.models import Work
from django_ayework.testing import running_worker
from tests.direct.works import relay
from tests.marks import on_sqlite
from tests.processes import PATIENCE, ROOT, eventually, worker_process
from tests.worker.works import started

#: How a process ends does not depend on the database.
PREAMBLE = """
import os, sys, time, threading
import django
django.setup()
from django.db import connections
from django_ayework import enqueue
from tests.direct.works import quick, quick_async
from tests.worker.works import at, at_async
place = sys.argv[1]
def until_started(place):
    while not os.path.exists(os.path.join(place, "started-0")): time.sleep(0.01)
"""


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.direct.settings"}


@pytest.fixture
def process(env, tmp_path):
    """Run a source in a process."""

    @contextmanager
    def process(source: str):
        command = [sys.executable, "-c", PREAMBLE + source, str(tmp_path)]
        options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, env=env, **options) as running:
            try:
                yield running
            finally:
                running.kill()
                running.communicate()

    return process


@pytest.fixture
def output_of(process):
    """Run a source in a process until its end, which must be a good one; the result is what it printed."""

    def output_of(source: str) -> str:
        with process(source) as running:
            output, _ = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, output
        return output

    return output_of


def stands() -> list[tuple[str, int]]:
    return list(Work.objects.values_list("status", "attempt"))


@pytest.mark.parametrize("is_started", [True, False], ids=["while it runs", "before its start"])
def test_when_it_is_killed_a_worker_finishes_the_work(process, configure, tmp_path, is_started):
    before = """
from django_ayework.flow import enqueue as queueing
queueing.providers.intake = lambda works: os.kill(os.getpid(), 9)
"""
    source = "enqueue(at(place=place), skip_queue=True); time.sleep(60)"
    with process(source if is_started else before + source) as victim:
        if is_started:
            eventually(lambda: started(tmp_path) == "1\n")
            victim.kill()
        assert victim.wait(PATIENCE) == -signal.SIGKILL
    assert stands() == [("running", 1) if is_started else ("pending", 0)]
    (tmp_path / "go").touch()
    configure()
    with running_worker():
        eventually(lambda: Work.objects.get().status == "success")
    assert started(tmp_path) == ("1\n2\n" if is_started else "1\n")
    assert Work.objects.get().attempt == (2 if is_started else 1)


@on_sqlite
def test_when_it_ends_it_lets_the_works_end_first_and_gives_back_what_goes_on_too_long(output_of):
    """An async handler that queries still can: the executors of asyncio live as long as it does."""
    source = """
places = [os.path.join(place, name) for name in ("plain", "async", "too-long")]
for type, folder in zip((at, at_async, at), places):
    os.mkdir(folder)
    enqueue(type(place=folder), skip_queue=True, queue=os.path.basename(folder))
    until_started(folder)
threading.Timer(0.3, lambda: [open(os.path.join(folder, "go"), "w").close() for folder in places[:2]]).start()
"""
    assert output_of(source) == ""
    assert {queue: stand for queue, *stand in Work.objects.values_list("queue", "status", "attempt")} == {
        "plain": ["success", 1],
        "async": ["success", 1],
        "too-long": ["pending", 0],
    }


def test_works_that_are_enqueued_right_before_its_end_are_run(env, output_of):
    """An async handler queries, as above."""
    env["TEST_GRACE"] = "60"
    assert output_of("for _ in range(2): enqueue(quick()), enqueue(quick_async())") == ""
    assert stands() == [("success", 1)] * 4


@on_sqlite
def test_a_function_of_a_schedule_that_enqueues_starts_nothing_in_a_scheduler(output_of):
    source = """
from datetime import timedelta
from django.core.management import execute_from_command_line
from django_ayework import schedule
soon = timedelta(microseconds=1)
schedule(name="now", next=lambda moment: moment + soon, run=lambda: enqueue(quick()))
execute_from_command_line(["manage.py", "ayework_scheduler", "--once", "--verbosity=0"])
"""
    assert output_of(source) == "Fired 1 schedules.\n"
    assert stands() == [("pending", 0)]


# SQLite keeps its locks per process. A child inherits those that a thread of the parent holds at the fork,
# and nothing releases them there: sqlite.org/howtocorrupt.html, 2.6. The page on running workers says so.
@pytest.mark.vendors("postgresql", "mysql")
def test_a_forked_process_has_threads_of_its_own(output_of):
    source = """
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
    # Python 3.12 and later warn of a fork beside threads, before the last line.
    assert output_of(source).splitlines()[-1] == "direct-"


@on_sqlite
def test_a_worker_that_stops_stops_what_skips_the_queue_in_it(env, tmp_path):
    """A handler enqueues such a work: its worker's process makes the first attempt, and gives it back.

    It does so before it ends, for which it has no more time than a worker has.
    """
    enqueue(relay(place=str(tmp_path)), skip_queue=False)
    with worker_process(env | {"TEST_EXIT": "0.2"}, "--queues=default") as worker:
        eventually(lambda: started(tmp_path) == "1\n")
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
    held = Work.objects.get(type="worker.at")
    assert (held.status, held.attempt) == ("pending", 0)
