"""Worker processes that are stopped, killed or reloaded."""

import gc
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_ayework import Retry, Worker, enqueue, enqueue_many
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.testing import running_worker
from django_ayework.worker.process import (
    DEFAULT_SWITCH_INTERVAL,
    LOST,
    SWITCH_INTERVAL,
    shorten_switch_interval,
    use_one_cpu,
)
from tests.marks import each_database
from tests.processes import (
    PATIENCE,
    ROOT,
    ended,
    ended_well,
    eventually,
    get,
    health_address,
    stopped,
    worker_process,
)
from tests.worker.works import (
    at,
    at_async,
    at_in_thread,
    cpus,
    dies,
    ends_child,
    interpreter,
    moves,
    quick,
    started,
)

pytestmark = pytest.mark.vendors("sqlite")
one_or_two = pytest.mark.parametrize("processes", ["1", "2"])


@each_database
def test_a_worker_that_stops_lets_running_works_end_and_takes_no_other(patient_env, tmp_path):
    """A service manager and a shell may each send one signal."""
    enqueue_many([quick(number=number) for number in range(50)], priority=1)
    kinds = (at, at_async)
    running = [enqueue(kind(place=str(tmp_path), number=number)) for number, kind in enumerate(kinds)]
    waiting = enqueue_many([at(place=str(tmp_path), number=number) for number in range(2, 20)], priority=-1)
    with worker_process(patient_env, "--concurrency", "2") as process:
        eventually(lambda: all(started(tmp_path, number) for number in range(2)))
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        ids = [handle.id for handle in running]
        eventually(lambda: not Work.objects.filter(status="running").exclude(id__in=ids).exists())
        (tmp_path / "go").touch()
        ended_well(process)
    assert {handle.state().status for handle in running} == {"success"}
    left = Work.objects.filter(id__in=[handle.id for handle in waiting])
    assert set(left.values_list("status", "attempt", "worker")) == {("pending", 0, None)}
    assert WorkerProcess.objects.get().stopped_at is not None


@one_or_two
def test_a_child_that_a_handler_has_forked_can_be_ended(patient_env, processes):
    """It would note the signal as its parent does, and its parent would wait for its end."""
    with worker_process(patient_env, "--processes", processes) as process:
        assert enqueue(ends_child()).result(timeout=2 * PATIENCE) == -signal.SIGTERM
        stopped(process)


@one_or_two
def test_a_terminal_that_closes_lets_running_works_end(patient_env, tmp_path, processes):
    running = enqueue(at(place=str(tmp_path)))
    with worker_process(patient_env, "--processes", processes) as process:
        eventually(lambda: started(tmp_path))
        process.send_signal(signal.SIGHUP)
        eventually(lambda: "stops. It waits up to 60 s for 1 running work." in process.stdout.readline())
        (tmp_path / "go").touch()
        ended_well(process)
    assert running.state().status == "success"


def test_a_worker_of_nohup_outlives_its_terminal(patient_env, tmp_path):
    running = enqueue(at(place=str(tmp_path)))
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with worker_process(patient_env, preexec_fn=ignore) as process:
        eventually(lambda: started(tmp_path))
        process.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        eventually(lambda: running.state().status == "success")
        later = enqueue(quick(number=1))
        eventually(lambda: later.state().status == "success")
        assert process.poll() is None
        stopped(process)


def test_a_second_signal_of_one_kind_ends_the_worker_at_once(patient_env, tmp_path):
    running = enqueue(at(place=str(tmp_path)))
    with worker_process(patient_env) as process:
        eventually(lambda: started(tmp_path))
        eventually(lambda: process.poll() is not None or process.terminate())
    assert process.returncode == 128 + signal.SIGTERM
    assert running.state().status == "running"


def test_a_signal_before_the_handlers_are_installed_stops_processes_and_their_supervisor_in_order(
    patient_env,
):
    with worker_process(patient_env | {"TEST_SIGNALLED": "1"}, "--processes", "2") as process:
        ended_well(process)
    assert not WorkerProcess.objects.filter(stopped_at=None).exists()


@one_or_two
def test_a_worker_process_freezes_the_heap_shortens_the_switch_interval_and_keeps_to_one_cpu(
    patient_env, processes
):
    handle, *handles = enqueue(interpreter()), *(enqueue(cpus()) for _ in range(4))
    with worker_process(patient_env, "--burst", "--one-cpu", "--processes", processes) as process:
        ended_well(process)
    frozen, interval = handle.result(timeout=0)
    assert frozen > 10_000
    assert interval == SWITCH_INTERVAL < DEFAULT_SWITCH_INTERVAL
    assert [len(handle.result(timeout=0)) for handle in handles] == [1, 1, 1, 1]


def test_a_worker_within_another_process_leaves_its_interpreter_and_its_cpus_as_they_are():
    before, frozen_before = sorted(os.sched_getaffinity(0)), gc.get_freeze_count()
    handles = [enqueue(interpreter()), enqueue(cpus())]
    call_command("ayework_worker", "--burst", "--one-cpu", stdout=StringIO())
    (frozen, interval), allowed = [handle.result(timeout=0) for handle in handles]
    assert frozen <= frozen_before
    assert (interval, allowed) == (DEFAULT_SWITCH_INTERVAL, before)
    assert sorted(os.sched_getaffinity(0)) == before


# A process under ``taskset`` may have fewer CPUs than the machine.
@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is one CPU")
def test_processes_with_successive_numbers_get_different_cpus():
    with ThreadPoolExecutor(2) as pool:  # each call changes its own thread
        together = threading.Barrier(2)
        first, second = pool.map(lambda number: (together.wait(), use_one_cpu(number))[1], [7, 8])
    assert first != second


def test_one_cpu_is_refused_where_the_system_cannot_do_it(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(CommandError, match="expected --one-cpu on Linux only"):
        call_command("ayework_worker", "--burst", "--one-cpu", stdout=StringIO())


@pytest.mark.parametrize("chosen", [0.002, 0.02])
def test_a_switch_interval_of_the_project_is_kept(chosen):
    sys.setswitchinterval(chosen)
    try:
        shorten_switch_interval()
        assert sys.getswitchinterval() == chosen
    finally:
        sys.setswitchinterval(DEFAULT_SWITCH_INTERVAL)


@each_database
def test_works_that_outlast_the_grace_go_back_unharmed(short_lease_env, tmp_path):
    """Also one in a thread that would keep the process from ending."""
    for number, kind in enumerate([at, at_async, at_in_thread]):
        enqueue(kind(place=str(tmp_path), number=number))
    with worker_process(short_lease_env | {"TEST_EXIT": "0.5"}) as process:
        eventually(lambda: all(started(tmp_path, number) for number in range(3)))
        process.send_signal(signal.SIGINT)
        ended_well(process)
    assert list(Work.objects.values_list("status", "attempt", "error")) == [("pending", 0, "")] * 3
    assert not Attempt.objects.exists()


@each_database
def test_the_works_of_a_killed_worker_go_to_another(quick_polls, short_lease_env, tmp_path):
    handles = [enqueue(kind(place=str(tmp_path), number=n)) for n, kind in enumerate([at, at, at_async])]
    with worker_process(short_lease_env) as victim:
        eventually(lambda: all(started(tmp_path, number) for number in range(3)))
        victim.kill()
        ended(victim)
    (tmp_path / "go").touch()
    assert set(Work.objects.values_list("status", "attempt")) == {("running", 1)}
    with running_worker():
        assert [handle.result(timeout=30) for handle in handles] == ["attempt 2"] * 3
    assert [started(tmp_path, number) for number in range(3)] == ["1\n2\n"] * 3
    assert set(Work.objects.values_list("delivery", "attempt")) == {(2, 2)}
    lost = Attempt.objects.values_list("number", "outcome", "error")
    assert list(lost) == [(1, "lost", "worker lost")] * 3


def test_a_work_that_kills_its_worker_in_its_last_attempt_ends_dead(short_lease_env, tmp_path):
    handle = enqueue(dies(place=str(tmp_path)), retry=Retry(attempts=1))
    after = enqueue(quick(), priority=-1)
    with worker_process(short_lease_env, "--concurrency", "1") as victim:
        assert ended(victim)[0] == 9
    eventually(lambda: reclaim() or handle.state().status == "dead")
    state = handle.state()
    assert (state.reason, state.error, state.attempt) == ("exhausted", "worker lost", 1)
    assert started(tmp_path) == "1\n"
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "lost")]
    Worker(burst=True).run()
    assert after.state().status == "success"


def test_a_worker_reloads_changed_code_once_running_works_have_ended(process_env, tmp_path):
    code = tmp_path / "project_settings.py"
    code.write_text("from tests.worker.settings_patient import *\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    env = process_env | {"DJANGO_SETTINGS_MODULE": code.stem, "PYTHONPATH": path}
    running = enqueue(at(place=str(tmp_path)))
    with worker_process(env, "--reload", "--concurrency", "1", "--health-port", "0") as process:
        url = health_address(process)
        eventually(lambda: started(tmp_path))
        later = enqueue(quick())

        def has_noticed() -> bool:
            os.utime(code)
            return "the worker is stopping" in get(f"{url}/ready")[1]["reasons"]

        eventually(has_noticed)
        (tmp_path / "go").touch()
        assert later.result(timeout=30) == 0
        assert running.result(timeout=0) == "attempt 1"
        stopped(process)
    first, second = WorkerProcess.objects.exclude(stopped_at=None).order_by("id")
    assert len({first.pid, second.pid, process.pid}) == 3
    assert Work.objects.get(id=later.id).completed_by == second.id


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("replace", [os.replace, lambda new, old: old.unlink()], ids=["replaced", "deleted"])
def test_a_worker_whose_database_file_is_gone_says_so_and_ends(process_env, tmp_path, replace):
    database, restored = tmp_path / "Shop.sqlite3", tmp_path / "restored.sqlite3"
    for copy in (database, restored):
        connection.cursor().execute(f"VACUUM INTO '{copy}'")
    port = ("--health-port", "0")
    with worker_process(process_env | {"DATABASE_URL": f"sqlite:///{database}"}, *port) as process:
        url = health_address(process)
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        replace(restored, database)
        status, said = ended(process)
    assert status == LOST
    assert f"The database file {database} was deleted, moved or replaced, so this worker cannot" in said


@pytest.mark.vendors("sqlite")
@one_or_two
def test_a_worker_keeps_to_its_database_file_after_a_handler_has_changed_the_directory(
    patient_env, tmp_path, processes
):
    file = Path(connection.settings_dict["NAME"])
    relative = {"DATABASE_URL": f"sqlite:///{file.name}", "PYTHONPATH": str(ROOT)}
    with worker_process(patient_env | relative, "--processes", processes, cwd=file.parent) as process:
        assert enqueue(moves(place=str(tmp_path))).result(timeout=30) == str(tmp_path)
        assert enqueue(quick(number=7)).result(timeout=30) == 7
        stopped(process)
    assert not (tmp_path / file.name).exists()
    assert {each.stopped_at is not None for each in WorkerProcess.objects.all()} == {True}
