"""Worker processes that are killed or told to stop while batches gather and run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from django_ayework import cancel, enqueue_many
from django_ayework.models import Attempt, Work
from django_ayework.testing import running_worker
from tests.batches.works import at, patient_at
from tests.processes import ended, eventually, worker_process

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.batches.settings"}


def runs(place: Path) -> list[str]:
    path = place / "runs"
    return path.read_text().splitlines() if path.exists() else []


def test_a_worker_killed_in_the_middle_of_a_batch_loses_none_of_its_works(quick_polls, env, tmp_path):
    handles = enqueue_many([at({"place": str(tmp_path), "number": number}) for number in range(4)])
    with worker_process(env) as victim:
        eventually(lambda: runs(tmp_path) == ["0 1 2 3"])
        victim.kill()
        ended(victim)
    (tmp_path / "go").touch()
    assert set(Work.objects.values_list("status", "attempt")) == {("running", 1)}
    with running_worker():
        assert [handle.result(timeout=40) for handle in handles] == [f"{n} at attempt 2" for n in range(4)]
    assert set(Work.objects.values_list("delivery", "attempt")) == {(2, 2)}
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["lost"] * 4


def test_a_worker_that_stops_runs_gathered_works_at_once_without_those_cancelled_elsewhere(env, tmp_path):
    handles = enqueue_many([patient_at({"number": number}) for number in range(5)])
    with worker_process(env) as process:
        eventually(lambda: Work.objects.filter(status="running").count() == 5)
        cancel(handles[1].id)
        process.send_signal(signal.SIGTERM)
        status, output = ended(process)
    assert status == 0, output
    assert "came too late" not in output
    assert handles.pop(1).state().status == "cancelled"
    assert [handle.result(timeout=1) for handle in handles] == [0, 2, 3, 4]
