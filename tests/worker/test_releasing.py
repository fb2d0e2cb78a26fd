"""A worker releases what it holds, also while another transaction has locked one of the rows."""

import threading

import pytest
from django.db import OperationalError
from django.test import override_settings

from django_ayework import pause
from django_ayework.api import enqueue_many
from django_ayework.models import Work
from django_ayework.store import transitions
from django_ayework.worker import maintenance, shutdown
from tests.processes import eventually
from tests.races.holding import transaction_elsewhere
from tests.worker.conftest import greedy
from tests.worker.works import hold, hold_async

pytestmark = pytest.mark.usefixtures("quick_polls")
on_servers = pytest.mark.vendors("postgresql", "mysql")


def locked(id):
    return transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=id))


def claimed_by(worker):
    """Let a worker claim one work that runs and three that wait; return the handles of these."""
    waiting = enqueue_many([hold(number=number) for number in range(4)])[1:]
    held = Work.objects.filter(status="running", worker=worker.id)
    eventually(lambda: held.count() == 4)
    return waiting


def attempts_of(handles):
    found = Work.objects.filter(id__in=[handle.id for handle in handles])
    return sorted(found.values_list("status", "attempt"))


@on_servers
def test_a_locked_row_keeps_no_other_work_from_its_release_and_is_released_once_it_is_free(stage):
    with greedy() as worker:
        first, *others = claimed_by(worker)
        with locked(first.id):
            pause(type="worker.hold")
            eventually(lambda: attempts_of(others) == [("pending", 0)] * 2)
            assert attempts_of([first]) == [("running", 1)]
            assert len(worker.active()) == 1
        eventually(lambda: attempts_of([first]) == [("pending", 0)])
        stage.go.set()


@on_servers
@pytest.mark.parametrize("left", [0, 1])
def test_a_worker_that_stops_waits_a_moment_for_a_locked_row(stage, monkeypatch, left):
    monkeypatch.setattr(shutdown, "LOCKED_FOR", 0.05 if left else 30.0)
    worker = greedy()
    worker.start()
    first, *others = claimed_by(worker)
    with locked(first.id):
        worker.request_stop()
        eventually(lambda: attempts_of(others) == [("pending", 0)] * 2)
        stage.go.set()
        if left:
            worker.stop()
    worker.stop()
    assert worker.left == left
    assert attempts_of([first]) == [("running", 1) if left else ("pending", 0)]


@pytest.mark.parametrize("taken_as", [{"worker": "other"}, {"delivery": 2}], ids=["another", "claimed anew"])
def test_works_are_released_although_the_database_was_away_at_first(stage, monkeypatch, taken_as):
    """One that was taken meanwhile is left to its holder, and does not count as held here."""
    release, failures = transitions.release, [OperationalError("the database is away")] * 2

    def release_later(*args, **options):
        if failures:
            raise failures.pop()
        return release(*args, **options)

    with greedy() as worker:
        taken, *waiting = claimed_by(worker)
        monkeypatch.setattr(transitions, "release", release_later)
        monkeypatch.setattr(maintenance, "STALE_AFTER", 600.0)  # they go back because of the pause
        Work.objects.filter(id=taken.id).update(**taken_as)
        pause(type="worker.hold")
        eventually(lambda: attempts_of(waiting) == [("pending", 0)] * 2)
        stage.go.set()
    assert (failures, worker.left, attempts_of([taken])) == ([], 0, [("running", 1)])


def test_a_slot_that_outlasts_the_worker_starts_no_event_loop_for_what_was_given_back(stage):
    threads = set(threading.enumerate())
    handles = enqueue_many([hold(), hold_async()])
    worker = greedy()
    with override_settings(AYEWORK={"SHUTDOWN_GRACE": 0.1}):
        worker.start()
        eventually(lambda: stage.started and Work.objects.filter(status="running").count() == 2)
        worker.stop()
    stage.go.set()
    eventually(lambda: not any("slot" in each.name for each in set(threading.enumerate()) - threads))
    assert {each.name for each in set(threading.enumerate()) - threads} == set()
    assert attempts_of(handles) == [("pending", 0)] * 2
