"""Children of a supervisor that are told, through the database, to stop."""

from __future__ import annotations

from django_ayework import command_worker
from django_ayework.models import WorkerProcess
from tests.processes import ended_well, eventually, get, health_address
from tests.supervisor.kit import at_work, children, supervisor


def test_a_child_that_is_told_to_stop_is_not_replaced(env):
    with supervisor(env, "--health-port", "0") as process:
        url = health_address(process)
        children()
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        first, second = WorkerProcess.objects.order_by("id")
        command_worker(first.id, "stop")
        eventually(lambda: at_work() == [second.pid])
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        assert [worker["pid"] for worker in get(f"{url}/live")[1]["workers"]] == [second.pid]
        command_worker(second.id, "stop")
        output = ended_well(process)
    assert output.count("was stopped by an operator; it is not replaced.") == 2
    assert WorkerProcess.objects.count() == 2
