"""What a supervisor sees to before it has a child, and the health it reads from heartbeat pipes."""

import os
import re
import signal
import threading
from contextlib import closing

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_ayework.models import WorkerProcess
from django_ayework.rules.health import Phase, Signs
from django_ayework.worker import supervisor as supervisor_module
from django_ayework.worker.process import SUPERVISED, inherited, send_signs
from django_ayework.worker.supervisor import Child, Supervisor, can_fork, close_connections, heartbeat_pipe
from tests.processes import ended, eventually, get, health_address, worker_process
from tests.supervisor.kit import children, supervisor

pytestmark = pytest.mark.vendors("sqlite")


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
