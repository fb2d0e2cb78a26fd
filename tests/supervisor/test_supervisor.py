"""Several worker processes on one host: started, replaced, stopped together, and their health."""

import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import closing
from functools import partial

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_ayework import command_worker, enqueue, enqueue_many
from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.rules.health import Phase, Signs
from django_ayework.worker import supervisor as supervisor_module
from django_ayework.worker.admission import resident_bytes
from django_ayework.worker.process import SUPERVISED, TOGETHER, inherited, send_signs
from django_ayework.worker.supervisor import Child, Supervisor, can_fork, close_connections, heartbeat_pipe
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
    worker_process,
)
from tests.supervisor.kit import at_work, children, is_alive, supervisor
from tests.supervisor.works import grow, kill_once, streams, where
from tests.worker.works import at, started

pytestmark = pytest.mark.vendors("sqlite")
#: Children take connections of their own to a server, and lose them when they are killed.
on_a_server_too = pytest.mark.vendors("sqlite", "postgresql")


def results(count: int) -> list[int]:
    """Queue so many works, and return the ids of the processes that ran them."""
    return [handle.result(timeout=30) for handle in enqueue_many([where() for _ in range(count)])]


@on_a_server_too
def test_a_burst_replaces_processes_after_so_many_attempts_and_ends_once_nothing_is_left_to_do(env):
    handles = enqueue_many([where() for _ in range(30)])
    with supervisor(env, "--burst", "--name", "night", "--max-works", "8") as process:
        output = ended_well(process)
    attempts = Counter(handle.result(timeout=0) for handle in handles)
    assert (attempts.total(), max(attempts.values())) == (30, 8)
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}
    rows = WorkerProcess.objects.all()
    assert {row.name for row in rows} == {"night-1", "night-2"}
    assert process.pid not in {row.pid for row in rows}
    assert not at_work()
    for row in rows:
        assert f"INFO [{row.name}] Worker {row.id} started" in output
    assert "INFO [night] Process 1 of the supervisor is" in output
    assert "It is replaced" not in output, "none of them died"
    assert "ERROR" not in output


def test_a_burst_in_which_a_process_was_killed_does_not_end_well(env, tmp_path):
    enqueue_many([kill_once(marker=str(tmp_path / "killed")), *[where() for _ in range(5)]])
    with supervisor(env, "--burst") as process:
        status, output = ended(process)
    assert (status, output.count("SIGKILL. It is replaced")) == (1, 1)


@pytest.mark.parametrize(
    "variable", [pytest.param("_", marks=on_a_server_too), "TEST_THREAD"], ids=["forked", "spawned"]
)
def test_a_process_that_was_killed_is_replaced_and_processes_stop_by_themselves_without_a_supervisor(
    env, tmp_path, variable
):
    """Also where another thread makes a fork unsafe."""
    handle = enqueue(at(place=str(tmp_path)))
    with supervisor(env | {"TEST_LEASE": "1", variable: "1"}) as process:
        first = set(children())
        eventually(lambda: started(tmp_path))
        killed = WorkerProcess.objects.get(id=handle.state().worker).pid
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: started(tmp_path) == "1\n2\n")
        pids = set(children(3))  # the row of the killed one says nothing of its end
        assert len(pids - first) == 1
        process.kill()
        eventually(lambda: len(at_work()) == 2)  # the idle one is gone, the other lets its work end
        (tmp_path / "go").touch()
        assert handle.result(timeout=30) == "attempt 2"
        _, output = ended(process)
    eventually(lambda: not any(map(is_alive, pids)))
    assert at_work() == [killed]
    assert "SIGKILL. It is replaced at once." in output


def test_a_supervisor_whose_log_hangs_replaces_a_process_and_stops_in_order(env):
    with supervisor(env | {"TEST_HANGING_LOG": "1"}) as process:
        killed, other = children()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: set(at_work()) - {killed, other})
        output = stopped(process)
    assert "SIGKILL. It is replaced at once." in output


def test_processes_start_and_are_replaced_although_nothing_can_be_printed(env):
    """The program that read the output has ended, and the disk of the log is full."""
    with unread_pipe() as out, full_disk() as log, supervisor(env, stdout=out, stderr=log) as process:
        killed, other = children()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: set(at_work()) - {killed, other})
        process.terminate()
        assert process.wait(PATIENCE) in (0, 120)  # 120: Python could not print the rest at its end
    assert WorkerProcess.objects.count() == 3


@pytest.mark.parametrize(
    ("closed", "variable"),
    [((0,), "_"), ((1,), "_"), ((2,), "_"), ((0, 1, 2), "_"), ((0, 1, 2), "TEST_THREAD")],
    ids=["0", "1", "2", "all", "all-spawned"],
)
def test_processes_run_without_standard_streams(env, closed, variable):
    """No socket and no file of the process takes the place of a stream that was closed.

    A library that was loaded before the command began may have: some builds of libffi keep their file open.
    """
    handle = enqueue(streams())
    close = partial(os.closerange, closed[0], closed[-1] + 1)
    with supervisor(env | {variable: "1"}, "--burst", preexec_fn=close) as process:
        ended_well(process)
    places = [handle.result(timeout=0)[number] for number in closed]
    assert {os.devnull if "/libffi.so" in place else place for place in places} == {os.devnull}


def test_two_signals_to_the_whole_group_let_running_works_end(env, tmp_path):
    """A terminal tells every process, and the supervisor tells its children once more: that counts once.

    So do two signals of different kinds that come together.
    """
    enqueue_many([at(place=str(tmp_path), number=number) for number in range(4)])
    with supervisor(env, "--concurrency", "1", "--health-port", "0") as process:
        url = health_address(process)
        children()
        eventually(lambda: sum(bool(started(tmp_path, number)) for number in range(4)) == 2)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.killpg(process.pid, number)
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


def test_a_successor_is_there_while_a_long_work_comes_to_its_end(env, tmp_path):
    long = enqueue(at(place=str(tmp_path)))
    with supervisor(env, "--max-works", "1") as process:
        eventually(lambda: started(tmp_path))
        results(2)
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
        assert hungry not in results(3)
        output = stopped(process)
    assert f"MB are in use, more than {limit}." in output
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}


def test_a_limit_below_what_a_process_needs_makes_no_storm_of_processes(env):
    with supervisor(env, "--max-memory", "1") as process:
        eventually(lambda: WorkerProcess.objects.count() >= 4)
        output = stopped(process)
    assert "(is --max-memory too small?). It is replaced at once." in output
    assert WorkerProcess.objects.count() <= 6


def pids(url: str) -> list[int]:
    """The ids of the processes whose health is told."""
    return sorted(worker["pid"] for worker in get(f"{url}/live")[1]["workers"])


def test_a_process_that_makes_no_progress_is_noticed_and_killed_if_it_does_not_stop_in_time(env):
    with supervisor(env | {"TEST_STALL": "1", "TEST_GRACE": "0.2"}, "--health-port", "0") as process:
        url = health_address(process)
        frozen, other = children()
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        assert pids(url) == sorted([frozen, other])
        os.kill(frozen, signal.SIGSTOP)
        eventually(lambda: get(f"{url}/live")[0] == 503)
        reported = r"process [12]: the thread '\w+' has made no progress for \d+ s"
        assert all(re.fullmatch(reported, reason) for reason in get(f"{url}/live")[1]["reasons"])
        process.terminate()
        status, output = ended(process)
    assert status == 1
    logged = re.findall(rf"Process {frozen} has given no sign of life for \d+ s: a handler", output)
    assert len(logged) == 1
    assert f"Process {frozen} is killed: its works run again once their leases lapse." in output


def test_processes_that_die_again_and_again_are_given_time_and_are_not_ready(env):
    with supervisor(env | {"TEST_DIES": "1"}, "--health-port", "0") as process:
        url = health_address(process)
        eventually(lambda: "it is to be started in" in " ".join(get(f"{url}/ready")[1]["reasons"]))
        assert get(f"{url}/live")[0] == 200
        eventually(lambda: WorkerProcess.objects.count() >= 6)
        process.terminate()
        _, output = ended(process)
    assert output.count("exit status 7. It is replaced at once.") == 2
    assert output.count("exit status 7. It is replaced in 1 s.") == 2


def test_a_single_worker_tells_its_own_health(env):
    with worker_process(env, "--health-port", "0") as process:
        url = health_address(process)
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        assert pids(url) == [process.pid]
        taken = int(url.rpartition(":")[2])
        with pytest.raises(
            CommandError, match=rf"cannot listen on 127.0.0.1:{taken} for --health-port: .*in use"
        ):
            call_command("ayework_worker", "--burst", health_port=taken)


@pytest.fixture
def ends():
    ours, theirs = heartbeat_pipe()
    with ours, theirs:
        yield Child(0, ours), theirs


def received(child: Child) -> Signs:
    child.receive()
    return child.received


def test_the_latest_signs_that_can_be_read_count_also_after_the_end(ends):
    child, theirs = ends
    assert received(child).phase is Phase.STARTING
    for phase in (Phase.STARTING, Phase.WORKING):
        send_signs(theirs, Signs(phase=phase, silent=1.5))
    latest = received(child)
    assert latest == Signs(phase=Phase.WORKING, silent=1.5)
    assert (received(child) is latest, child.is_silent) == (True, False)
    theirs.sendall(b'{"phase": "wor\n{"phase": "dancing", "dead": []}\n[]\nnull\n\n')
    assert received(child) is latest
    send_signs(theirs, Signs(phase=Phase.RETIRED))
    theirs.close()
    assert received(child) == Signs(phase=Phase.RETIRED)
    assert child.is_silent


def test_signs_to_a_supervisor_that_has_gone_are_dropped(ends):
    child, theirs = ends
    child.end.close()
    send_signs(theirs, Signs(phase=Phase.WORKING))
    assert theirs.recv(1) == b""


@pytest.mark.vendors("sqlite", "postgresql")
def test_no_connection_is_shared_with_a_child():
    connection.ensure_connection()
    close_connections()
    assert connection.connection is None


def test_it_does_not_fork_when_another_thread_would_be_cut_off_nor_on_macos(monkeypatch):
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        over.set()
        thread.join()
    monkeypatch.setattr(supervisor_module.threading, "active_count", lambda: 1)
    assert can_fork()
    monkeypatch.setattr(supervisor_module.sys, "platform", "darwin")
    assert not can_fork()


def test_what_a_child_inherits_is_not_passed_on_to_its_own_children(monkeypatch):
    ours, theirs = heartbeat_pipe()
    with ours:
        monkeypatch.setenv(SUPERVISED, f"{theirs.detach()},3,9100")
        end, *given = inherited()
        with end:
            assert (given, end.get_inheritable()) == ([3, 9100], False)
    assert SUPERVISED not in os.environ
    assert inherited() is None


def test_a_system_without_room_for_another_process_is_given_time(monkeypatch, caplog):
    def fail(*args):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(supervisor_module, "start_child", fail)
    supervisor = Supervisor(1, main=lambda end, number: 0)
    with closing(supervisor._pipe):
        for _ in range(3):
            supervisor._fill_slots()
    could_not = "Process 1 could not be started (Resource temporarily unavailable); next try"
    messages = [record.getMessage().partition(" (see ")[0] for record in caplog.records]
    assert messages == [f"{could_not} at once.", f"{could_not} in 1 s."]
    health, signs = supervisor.report()
    assert (health.live, health.ready, signs) == (True, False, [])
    assert health.reasons == ("process 1: it is to be started in 1 s",)
