"""The health of all children, as the supervisor reads it from their heartbeat pipes."""

from __future__ import annotations

import os
import re
import signal

import pytest

from django_ayework.models import WorkerProcess
from django_ayework.rules.health import Phase, Signs
from django_ayework.worker.process import send_signs
from django_ayework.worker.supervisor import Child, heartbeat_pipe
from tests.processes import ended, eventually, get, health_address, worker_process
from tests.supervisor.kit import children, supervisor


def test_a_process_that_makes_no_progress_is_noticed(env):
    with supervisor(env | {"TEST_STALL": "1"}, "--health-port", "0") as process:
        url = health_address(process)
        frozen, other = children()
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        assert sorted(worker["pid"] for worker in get(f"{url}/live")[1]["workers"]) == sorted([frozen, other])
        os.kill(frozen, signal.SIGSTOP)
        eventually(lambda: get(f"{url}/live")[0] == 503)
        reasons = get(f"{url}/live")[1]["reasons"]
        reported = r"process [12]: the thread '\w+' has made no progress for \d+ s"
        assert all(re.fullmatch(reported, reason) for reason in reasons)
        os.kill(frozen, signal.SIGKILL)
        eventually(lambda: get(f"{url}/ready")[0] == 200)


def test_processes_that_die_again_and_again_are_given_time_and_are_not_ready(env):
    with supervisor(env | {"TEST_DIES": "1"}, "--health-port", "0") as process:
        url = health_address(process)
        eventually(lambda: "it is to be started in" in " ".join(get(f"{url}/ready")[1]["reasons"]))
        assert get(f"{url}/live")[0] == 200
        eventually(lambda: WorkerProcess.objects.count() >= 6)
        process.send_signal(signal.SIGTERM)
        _, output = ended(process)
    assert output.count("exit status 7. It is replaced at once.") == 2
    assert output.count("exit status 7. It is replaced in 1 s.") == 2


def test_a_single_worker_tells_its_own_health(env):
    with worker_process(env, "--health-port", "0") as process:
        url = health_address(process)
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        assert [worker["pid"] for worker in get(f"{url}/live")[1]["workers"]] == [process.pid]
        with worker_process(env, "--health-port", url.rpartition(":")[2]) as late:
            status, output = ended(late)
        assert status == 1
        assert re.search(r"cannot listen on 127.0.0.1:\d+ for --health-port: .*in use", output)


@pytest.fixture
def ends():
    ours, theirs = heartbeat_pipe()
    with ours, theirs:
        yield Child(0, ours), theirs


def received(child: Child) -> Signs:
    child.receive()
    return child.received


def test_the_latest_signs_count(ends):
    child, theirs = ends
    before = received(child)
    assert before.phase is Phase.STARTING
    for phase in (Phase.STARTING, Phase.WORKING):
        send_signs(theirs, Signs(phase=phase, silent=1.5))
    latest = received(child)
    assert latest == Signs(phase=Phase.WORKING, silent=1.5)
    assert (received(child) is latest, child.is_silent) == (True, False)


def test_unreadable_signs_are_skipped(ends):
    child, theirs = ends
    before = child.received
    theirs.sendall(b'{"phase": "wor\n{"phase": "dancing", "dead": []}\n[]\nnull\n\n')
    assert received(child) is before
    send_signs(theirs, Signs(phase=Phase.WORKING))
    assert received(child) == Signs(phase=Phase.WORKING)


def test_the_last_signs_are_read_after_the_end(ends):
    child, theirs = ends
    send_signs(theirs, Signs(phase=Phase.RETIRED))
    theirs.close()
    assert received(child) == Signs(phase=Phase.RETIRED)
    assert child.is_silent


def test_signs_to_a_supervisor_that_has_gone_are_dropped(ends):
    child, theirs = ends
    child.end.close()
    send_signs(theirs, Signs(phase=Phase.WORKING))
    assert theirs.recv(1) == b""
