"""Workers that are told, through the database, to be quiet, to resume, and to stop."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from django_ayework import Worker, WorkerNotFound, command_worker, enqueue, enqueue_many
from django_ayework.errors import InvalidOption
from django_ayework.flow.context_services import EngineServices
from django_ayework.models import Work, WorkerProcess
from django_ayework.rules.notifications import Due
from django_ayework.worker.claimer import Commands
from django_ayework.worker.health import WorkerRegistration
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.wakeups import Message
from tests.processes import ended_well, eventually, worker_process
from tests.worker.works import at, quick


def one_worker() -> WorkerProcess:
    """Wait for the only worker."""
    return eventually(lambda: WorkerProcess.objects.filter(stopped_at=None).first())


def obeyed(id: str, quiet: bool) -> bool:
    return WorkerProcess.objects.filter(id=id, quiet=quiet, command="").exists()


def test_a_quiet_worker_lets_works_end_gives_others_back_and_resumes(patient_env, tmp_path: Path):
    running = enqueue(at(place=str(tmp_path)))
    with worker_process(patient_env, "--concurrency", "1") as process:
        eventually(lambda: (tmp_path / "started-0").exists())
        waiting = enqueue_many([quick(number=number) for number in range(20)])
        command_worker(one_worker().id, "quiet")
        eventually(lambda: obeyed(one_worker().id, quiet=True))
        (tmp_path / "go").touch()
        assert running.result(timeout=30) == "attempt 1"
        late = enqueue(quick(number=99))
        left = Work.objects.filter(id__in=[handle.id for handle in [*waiting, late]])
        assert set(left.values_list("status", "attempt", "worker")) == {("pending", 0, None)}

        command_worker(one_worker().id, "resume")
        assert late.result(timeout=30) == 99
        assert obeyed(one_worker().id, quiet=False)
        assert process.poll() is None


def test_a_worker_that_is_told_to_stop_lets_its_works_end(patient_env, tmp_path: Path):
    running = enqueue(at(place=str(tmp_path)))
    with worker_process(patient_env) as process:
        eventually(lambda: (tmp_path / "started-0").exists())
        command_worker(one_worker().id, "stop")
        late = eventually(lambda: enqueue(quick()))
        (tmp_path / "go").touch()
        ended_well(process)
    assert running.state().status == "success"
    row = WorkerProcess.objects.get()
    assert row.stopped_at is not None
    assert row.command == ""
    with pytest.raises(WorkerNotFound, match="no running worker has the id"):
        command_worker(row.id, "quiet")
    assert late.state().status in ("pending", "success")


def test_a_quiet_worker_can_be_stopped(quick_polls):
    with Worker(concurrency=1) as worker:
        command_worker(one_worker().id, "quiet")
        eventually(lambda: obeyed(worker.id, quiet=True))
        command_worker(worker.id, "stop")
        eventually(lambda: worker.is_stopping)
    assert WorkerProcess.objects.get().stopped_at is not None


def test_works_that_a_worker_holds_ready_go_to_another_one(quick_polls, stage, tmp_path: Path):
    with Worker(concurrency=1) as first:
        enqueue(at(place=str(tmp_path)))
        eventually(lambda: (tmp_path / "started-0").exists())
        command_worker(first.id, "quiet")
        eventually(lambda: obeyed(first.id, quiet=True))
        with Worker(concurrency=1):
            assert enqueue(quick(number=7)).result(timeout=30) == 7
        (tmp_path / "go").touch()


def test_works_that_have_not_started_go_back_before_the_command_counts_as_obeyed(claimer):
    enqueue_many([quick(number=number) for number in range(5)])
    registration = WorkerRegistration("w", "", (), 1)
    registration.register()
    in_flight = InFlight(lambda: None)
    in_flight.add(claimer.claim(5))
    assert set(Work.objects.values_list("status", "worker")) == {("running", "w")}
    maintenance = MaintenanceThread("w", in_flight, EngineServices())
    commands = Commands(registration, maintenance, lambda: None)
    command_worker("w", "quiet")

    commands.obey("quiet")

    assert registration.quiet
    assert set(Work.objects.values_list("status", "worker", "attempt")) == {("pending", None, 0)}
    assert obeyed("w", quiet=True)
    commands.obey("of a newer version")
    assert registration.quiet


def test_a_quiet_worker_claims_nothing_whatever_messages_say(claimer, quick_polls):
    registration = WorkerRegistration("w", "", (), 1, quiet=True)
    registration.register()
    maintenance = MaintenanceThread("w", InFlight(lambda: None), EngineServices())
    claimer.commands = Commands(registration, maintenance, lambda: None)
    enqueue_many([quick(number=number) for number in range(5)])
    due = Due(frozenset({("default", "worker.quick")}), None, 5)
    for _ in range(3):
        claimer.wake_ups._note(due, Message("7", due, time.monotonic(), True, False))
        assert claimer.claim(5) == []
        assert not claimer.wake_ups.taken, "others answer the message"
        claimer.poll()

    command_worker("w", "resume")
    claimer.poll()
    assert len(claimer.claim(5)) == 5


def test_the_last_command_counts(quick_polls):
    with Worker(concurrency=1) as worker:
        id = one_worker().id
        command_worker(id, "quiet")
        command_worker(id, "resume")
        eventually(lambda: obeyed(id, quiet=False))
        assert enqueue(quick(number=3)).result(timeout=30) == 3
    assert worker.left == 0


def test_commands_that_do_not_exist_are_refused():
    with pytest.raises(InvalidOption, match="expected 'quiet', 'resume' or 'stop', got: 'pause'"):
        command_worker("any", "pause")  # type: ignore[arg-type]
    with pytest.raises(WorkerNotFound):
        command_worker("nobody", "stop")
