"""Children of a supervisor that are told to stop: by a signal, and through the database."""

from __future__ import annotations

import os
import signal

from django_ayework import command_worker
from django_ayework.models import WorkerProcess
from tests.processes import ended_well, eventually, get, health_address
from tests.supervisor.kit import at_work, children, supervisor


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
