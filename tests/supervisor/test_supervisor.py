"""Several worker processes on one host: started, replaced, and stopped together."""

import os
import signal
import time
from collections import Counter

import pytest

from django_ayework import command_worker, enqueue, enqueue_many
from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.worker.admission import resident_bytes
from django_ayework.worker.process import TOGETHER
from tests.processes import (
    PATIENCE,
    ended,
    ended_well,
    eventually,
    full_disk,
    get,
    health_address,
    stopped,
    unread_pipe,
)
from tests.supervisor.kit import at_work, children, is_alive, supervisor
from tests.supervisor.works import grow, where
from tests.worker.works import at, started


def results(count: int) -> list[int]:
    """Queue so many works, and return the ids of the processes that ran them."""
    return [handle.result(timeout=30) for handle in enqueue_many([where() for _ in range(count)])]


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


@pytest.mark.parametrize("variable", ["_", "TEST_THREAD"], ids=["forked", "spawned"])
def test_a_process_that_was_killed_is_replaced_and_its_works_run_again(env, tmp_path, variable):
    """Also where another thread makes a fork unsafe."""
    handle = enqueue(at(place=str(tmp_path)))
    with supervisor(env | {"TEST_LEASE": "1", variable: "1"}) as process:
        first = set(children())
        eventually(lambda: started(tmp_path))
        os.kill(WorkerProcess.objects.get(id=handle.state().worker).pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        assert handle.result(timeout=30) == "attempt 2"
        assert len(set(children(3)) - first) == 1
        output = stopped(process)
    assert "SIGKILL. It is replaced at once." in output


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("output", [unread_pipe, full_disk])
def test_processes_start_and_are_replaced_although_nothing_can_be_printed(env, output, unbuffered):
    """The program that read the output has ended, or the disk of the log is full."""
    with output() as out, supervisor(env | {"PYTHONUNBUFFERED": unbuffered}, stdout=out) as process:
        killed, other = children()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: set(at_work()) - {killed, other})
        process.terminate()
        assert process.wait(PATIENCE) in (0, 120)  # 120: Python could not print the rest at its end
    assert WorkerProcess.objects.count() == 3


@pytest.mark.parametrize(
    ("kill", "signals"),
    [(os.kill, [signal.SIGTERM]), (os.killpg, [signal.SIGINT, signal.SIGTERM])],
    ids=["one to the supervisor", "two to the whole group"],
)
def test_all_processes_let_running_works_end(env, tmp_path, kill, signals):
    """A terminal tells every process, and the supervisor tells its children once more: that counts once.

    So do two signals of different kinds that come together.
    """
    enqueue_many([at(place=str(tmp_path), number=number) for number in range(4)])
    with supervisor(env, "--concurrency", "1", "--health-port", "0") as process:
        url = health_address(process)
        children()
        eventually(lambda: sum(bool(started(tmp_path, number)) for number in range(4)) == 2)
        for number in signals:
            kill(process.pid, number)
        eventually(lambda: {child["phase"] for child in get(f"{url}/live")[1]["workers"]} == {"stopping"})
        (tmp_path / "go").touch()
        ended_well(process)
    statuses = sorted(Work.objects.values_list("status", "attempt"))
    assert statuses == [("pending", 0)] * 2 + [("success", 1)] * 2
    assert not at_work()


def test_a_second_signal_ends_all_at_once(env, tmp_path):
    enqueue(at(place=str(tmp_path)))
    with supervisor(env) as process:
        pids = children()
        eventually(lambda: started(tmp_path))
        sent = time.monotonic()
        process.terminate()
        eventually(lambda: len(at_work()) == 1)  # the idle one is gone, the other lets its work end
        eventually(lambda: time.monotonic() - sent > 2 * TOGETHER)
        process.send_signal(signal.SIGINT)
        status, output = ended(process)
    assert status == 128 + signal.SIGINT, output
    assert not any(map(is_alive, pids))
    assert Work.objects.get().status == "running"


def test_processes_whose_supervisor_was_killed_stop_by_themselves(env, tmp_path):
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
        process.terminate()
        status, output = ended(process)
    assert status == 1
    assert f"Process {frozen} is killed: its works run again once their leases lapse." in output


def test_a_child_is_replaced_when_a_signal_stops_it_and_not_when_it_is_told_to_stop(env):
    with supervisor(env, "--health-port", "0") as process:
        url = health_address(process)
        leaving, other = children()
        os.kill(leaving, signal.SIGTERM)
        eventually(lambda: len(at_work()) == 2 and leaving not in at_work())
        assert other in at_work()
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        first, second = WorkerProcess.objects.filter(stopped_at=None).order_by("id")
        command_worker(first.id, "stop")
        eventually(lambda: at_work() == [second.pid])
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        assert [worker["pid"] for worker in get(f"{url}/live")[1]["workers"]] == [second.pid]
        command_worker(second.id, "stop")
        output = ended_well(process)
    assert output.count("was stopped by an operator; it is not replaced.") == 2
    assert WorkerProcess.objects.count() == 3


def test_each_process_makes_so_many_attempts_and_is_replaced(env):
    handles = enqueue_many([where() for _ in range(50)])
    with supervisor(env, "--burst", "--max-works", "8") as process:
        output = ended_well(process)
    attempts = Counter(handle.result(timeout=0) for handle in handles)
    assert (attempts.total(), max(attempts.values())) == (50, 8)
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}
    assert not at_work()
    assert "It is replaced" not in output, "none of them died"


def test_a_successor_is_there_while_a_long_work_comes_to_its_end(env, tmp_path):
    long = enqueue(at(place=str(tmp_path)))
    with supervisor(env, "--max-works", "1") as process:
        eventually(lambda: started(tmp_path))
        results(6)
        assert long.state().status == "running"
        (tmp_path / "go").touch()
        assert long.result(timeout=30) == "attempt 1"
        stopped(process)
    assert not Attempt.objects.exists()


def test_a_process_that_uses_too_much_memory_is_replaced(env):
    limit = resident_bytes() // 2**20 + 100
    with supervisor(env, "--max-memory", str(limit)) as process:
        hungry = enqueue(grow(megabytes=limit)).result(timeout=30)
        eventually(lambda: hungry not in at_work())
        assert hungry not in results(6)
        output = stopped(process)
    assert f"MB are in use, more than {limit}." in output
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}


def test_a_limit_below_what_a_process_needs_makes_no_storm_of_processes(env):
    with supervisor(env, "--max-memory", "1") as process:
        eventually(lambda: WorkerProcess.objects.count() >= 4)
        output = stopped(process)
    assert "(is --max-memory too small?). It is replaced at once." in output
    assert WorkerProcess.objects.count() <= 6
