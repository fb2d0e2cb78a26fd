"""Processes that have done enough make room for others, and nothing is lost by it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.worker.admission import resident_bytes
from tests.processes import ended_well, eventually, stopped
from tests.supervisor.kit import at_work, supervisor
from tests.supervisor.works import grow, where
from tests.worker.works import at


def test_each_process_makes_so_many_attempts_and_is_replaced(env):
    handles = enqueue_many([where() for _ in range(50)])
    with supervisor(env, "--burst", "--max-works", "8") as process:
        output = ended_well(process)
    attempts = Counter(handle.result(timeout=0) for handle in handles)
    assert sum(attempts.values()) == 50
    assert max(attempts.values()) == 8
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}
    assert not at_work()
    assert "It is replaced" not in output, "none of them died"


def test_a_successor_is_there_while_a_long_work_comes_to_its_end(env, tmp_path: Path):
    long = enqueue(at(place=str(tmp_path)))
    with supervisor(env, "--max-works", "1") as process:
        eventually(lambda: (tmp_path / "started-0").exists())
        for handle in enqueue_many([where() for _ in range(6)]):
            handle.result(timeout=30)
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
        pids = {handle.result(timeout=30) for handle in enqueue_many([where() for _ in range(6)])}
        output = stopped(process)
    assert hungry not in pids
    assert f"MB are in use, more than {limit}." in output
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}


def test_a_limit_below_what_a_process_needs_makes_no_storm_of_processes(env):
    with supervisor(env, "--max-memory", "1") as process:
        eventually(lambda: WorkerProcess.objects.count() >= 4)
        output = stopped(process)
    assert "(is --max-memory too small?). It is replaced at once." in output
    assert WorkerProcess.objects.count() <= 6
