"""Several worker processes on one host: started, replaced, and stopped together."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Work, WorkerProcess
from django_ayework.worker.process import TOGETHER
from tests.processes import ended, ended_well, eventually, get, health_address, stopped
from tests.supervisor.kit import at_work, children, is_alive, supervisor
from tests.supervisor.works import where
from tests.worker.works import at


def started(place: Path, number: int = 0) -> bool:
    return (place / f"started-{number}").exists()


def test_a_burst_ends_once_all_processes_find_nothing_to_do(env):
    handles = enqueue_many([where() for _ in range(60)])
    with supervisor(env, "--burst", "--name", "night") as process:
        output = ended_well(process)
    assert {handle.state().status for handle in handles} == {"success"}
    rows = WorkerProcess.objects.exclude(stopped_at=None)
    assert sorted(rows.values_list("name", flat=True)) == ["night-1", "night-2"]
    assert process.pid not in rows.values_list("pid", flat=True)
    assert "ERROR" not in output
    for row in rows:
        assert f"INFO [{row.name}] Worker {row.id} started" in output
    assert "INFO [night] Process 1 of the supervisor is" in output


@pytest.mark.parametrize("variable", ["", "TEST_THREAD"], ids=["forked", "spawned"])
def test_a_process_that_was_killed_is_replaced_and_its_works_run_again(env, tmp_path: Path, variable: str):
    """Also where another thread makes a fork unsafe."""
    handle = enqueue(at(place=str(tmp_path)))
    with supervisor(env | {"TEST_LEASE": "1", variable or "_": "1"}) as process:
        first = set(children())
        eventually(lambda: started(tmp_path))
        victim = Work.objects.get(id=handle.id).worker
        os.kill(WorkerProcess.objects.get(id=victim).pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        assert handle.result(timeout=30) == "attempt 2"
        assert len(set(children(3)) - first) == 1
        output = stopped(process)
    assert "SIGKILL. It is replaced at once." in output


@pytest.mark.parametrize(
    ("kill", "signals"),
    [(os.kill, [signal.SIGTERM]), (os.killpg, [signal.SIGINT, signal.SIGTERM])],
    ids=["one to the supervisor", "two to the whole group"],
)
def test_all_processes_let_running_works_end(env, tmp_path: Path, kill, signals):
    """A terminal tells every process, and the supervisor tells its children once more: that counts once.

    So do two signals of different kinds that come together.
    """
    enqueue_many([at(place=str(tmp_path), number=number) for number in range(4)])
    with supervisor(env, "--concurrency", "1", "--health-port", "0") as process:
        url = health_address(process)
        children()
        eventually(lambda: sum(started(tmp_path, number) for number in range(4)) == 2)
        for number in signals:
            kill(process.pid, number)
        eventually(lambda: {child["phase"] for child in get(f"{url}/live")[1]["workers"]} == {"stopping"})
        (tmp_path / "go").touch()
        ended_well(process)
    statuses = sorted(Work.objects.values_list("status", "attempt"))
    assert statuses == [("pending", 0)] * 2 + [("success", 1)] * 2
    assert not at_work()


def test_a_second_signal_ends_all_at_once(env, tmp_path: Path):
    enqueue(at(place=str(tmp_path)))
    with supervisor(env) as process:
        pids = children()
        eventually(lambda: started(tmp_path))
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)
        eventually(lambda: len(at_work()) == 1)  # the idle one is gone, the other lets its work end
        eventually(lambda: time.monotonic() - sent > 2 * TOGETHER)
        process.send_signal(signal.SIGINT)
        status, output = ended(process)
    assert status == 128 + signal.SIGINT, output
    assert not any(map(is_alive, pids))
    assert Work.objects.get().status == "running"


def test_processes_whose_supervisor_was_killed_stop_by_themselves(env, tmp_path: Path):
    handle = enqueue(at(place=str(tmp_path)))
    with supervisor(env) as process:
        pids = children()
        eventually(lambda: started(tmp_path))
        process.kill()
        eventually(lambda: len(at_work()) == 1)
        (tmp_path / "go").touch()
        assert handle.result(timeout=30) == "attempt 1"
        eventually(lambda: not any(map(is_alive, pids)))
    assert not at_work()


def test_a_process_that_does_not_stop_in_time_is_killed(env):
    with supervisor(env | {"TEST_GRACE": "0.2"}) as process:
        frozen, _ = children()
        os.kill(frozen, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        status, output = ended(process)
    assert status == 1
    assert f"Process {frozen} is killed: its works run again once their leases lapse." in output
