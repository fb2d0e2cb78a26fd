"""A worker that starts anew when code changes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from django_ayework import enqueue
from django_ayework.models import Work, WorkerProcess
from tests.processes import ROOT, ended, eventually, get, health_address, worker_process
from tests.worker.works import at, quick


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A module of the project that is going to change."""
    module = tmp_path / "project_settings.py"
    module.write_text("from tests.worker.settings_patient import *\n")
    return module


@pytest.fixture
def env(process_env, code: Path) -> dict[str, str]:
    path = os.pathsep.join([str(code.parent), str(ROOT)])
    return process_env | {"DJANGO_SETTINGS_MODULE": code.stem, "PYTHONPATH": path}


def test_it_starts_anew_once_running_works_have_ended(env, code: Path, tmp_path: Path):
    running = enqueue(at(place=str(tmp_path)))
    with worker_process(env, "--reload", "--concurrency", "1", "--health-port", "0") as process:
        url = health_address(process)
        eventually(lambda: (tmp_path / "started-0").exists())
        later = enqueue(quick())

        def has_noticed() -> bool:
            os.utime(code)
            return "the worker is stopping" in get(f"{url}/ready")[1]["reasons"]

        eventually(has_noticed)
        (tmp_path / "go").touch()
        assert later.result(timeout=30) == 0
        assert running.result(timeout=0) == "attempt 1"
        process.send_signal(signal.SIGTERM)
        status, output = ended(process)
    assert status == 0, output
    first, second = WorkerProcess.objects.exclude(stopped_at=None).order_by("id")
    assert len({first.pid, second.pid, process.pid}) == 3
    assert Work.objects.get(id=later.id).completed_by == second.id
