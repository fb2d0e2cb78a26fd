"""Wake-ups that are lost, or cannot even be sent, cost time and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_ayework import Status, WaitTimeout, cancel, dependency, enqueue, enqueue_many
from django_ayework.flow.notify import sender
from django_ayework.models import Work
from tests.processes import PATIENCE, eventually, worker_process
from tests.wakeups.kit import Dropping, Raising
from tests.wakeups.works import fan_out, hold, quick, until_aborted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[Dropping, Raising])
def env(request: Any, process_env: dict[str, str], settings: Any) -> Any:
    """The environment of processes that are never woken by others; this process wakes nobody either."""
    kind = request.param
    settings.AYEWORK = {"PUBSUB": kind, "POLL_INTERVAL": 0.1}
    sender.stop()
    sender.reset()
    yield process_env | {
        "DJANGO_SETTINGS_MODULE": "tests.wakeups.settings",
        "TEST_PUBSUB": f"{kind.__module__}.{kind.__name__}",
        "TEST_POLL": "0.1",
    }
    sender.stop()
    sender.reset()


def test_works_run_and_whoever_waits_sees_it(env):
    with worker_process(env):
        handles = enqueue_many([quick(number=number) for number in range(50)])
        assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(50))
        assert enqueue(quick(number=5), delay=0.3).result(timeout=PATIENCE) == 5


def test_gates_open_and_groups_settle(env):
    with worker_process(env):
        enqueue(fan_out(number=20)).group(timeout=PATIENCE)
        first = enqueue(quick())
        gate = enqueue(dependency(on=[first], queue=[quick(number=8)]))
        gate.group(timeout=PATIENCE)
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}


def test_a_handler_hears_that_its_work_was_cancelled(env, tmp_path: Path):
    with worker_process(env):
        handle = enqueue(until_aborted(place=str(tmp_path)))
        eventually((tmp_path / "started").exists)
        cancel(handle.id)
        eventually(lambda: (tmp_path / "reason").exists() and (tmp_path / "reason").read_text())
    assert (tmp_path / "reason").read_text() == "cancelled"
    assert handle.state().status is Status.CANCELLED


def test_a_wait_ends_when_its_time_is_over(env, tmp_path: Path):
    with worker_process(env):
        handle = enqueue(hold(place=str(tmp_path)))
        eventually((tmp_path / "started").exists)
        with pytest.raises(WaitTimeout):
            handle.result(timeout=0.3)
        (tmp_path / "go").touch()
        assert handle.result(timeout=PATIENCE) == "went"
