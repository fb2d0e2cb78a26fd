"""Workers that are told, through the database, to be quiet, to resume, and to stop."""

from __future__ import annotations

import time

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
from tests.processes import eventually
from tests.worker.works import hold, quick


def obeyed(id: str, quiet: bool) -> bool:
    return WorkerProcess.objects.filter(id=id, quiet=quiet, command="").exists()


def test_a_quiet_worker_lets_works_end_leaves_the_others_resumes_and_can_be_stopped(quick_polls, stage):
    running = enqueue(hold(number=4))
    with Worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        late = enqueue_many([quick(number=number) for number in range(20)])[-1]
        command_worker(worker.id, "quiet")
        eventually(lambda: obeyed(worker.id, quiet=True))
        stage.go.set()
        assert running.result(timeout=30) == 4
        left = Work.objects.exclude(id=running.id)
        assert set(left.values_list("status", "attempt", "worker")) == {("pending", 0, None)}
        with Worker(concurrency=1):
            assert late.result(timeout=30) == 19

        for command in ("resume", "quiet", "resume"):  # the last one counts
            command_worker(worker.id, command)
        assert enqueue(quick(number=99)).result(timeout=30) == 99
        assert obeyed(worker.id, quiet=False)
        command_worker(worker.id, "quiet")
        eventually(lambda: obeyed(worker.id, quiet=True))
        command_worker(worker.id, "stop")
        eventually(lambda: worker.is_stopping)
    assert worker.left == 0
    assert WorkerProcess.objects.get(id=worker.id).stopped_at is not None


def test_a_worker_that_is_told_to_stop_lets_its_works_end(quick_polls, stage):
    running = enqueue(hold(number=4))
    with Worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        command_worker(worker.id, "stop")
        eventually(lambda: worker.is_stopping)
        stage.go.set()
    assert running.result(timeout=0) == 4
    row = WorkerProcess.objects.get()
    assert (row.stopped_at is not None, row.command) == (True, "")
    with pytest.raises(WorkerNotFound, match="no running worker has the id"):
        command_worker(row.id, "quiet")


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


def test_commands_that_do_not_exist_are_refused():
    with pytest.raises(InvalidOption, match="expected 'quiet', 'resume' or 'stop', got: 'pause'"):
        command_worker("any", "pause")  # type: ignore[arg-type]
    with pytest.raises(WorkerNotFound):
        command_worker("nobody", "stop")
