"""A caller's transaction that holds a row delays what is about that row, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, connections, transaction

from django_ayework import cancel, completing, dependency, enqueue, enqueue_many, trigger
from django_ayework.models import Attempt, Work
from django_ayework.testing import running_worker
from tests.processes import PATIENCE, eventually
from tests.worker.works import hold, quick

pytestmark = [pytest.mark.usefixtures("quick_polls"), pytest.mark.vendors("postgresql", "mysql")]


@contextmanager
def held(act: Callable[[], object]) -> Iterator[None]:
    """Do something in a transaction of another thread, which stays open until the block ends."""
    has_acted, over = threading.Event(), threading.Event()

    def hold_it() -> None:
        with transaction.atomic():
            act()
            has_acted.set()
            over.wait(PATIENCE)
        connections.close_all()

    thread = threading.Thread(target=hold_it)
    thread.start()
    assert has_acted.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)


def all_end(number: int = 20) -> None:
    """Queue works that have nothing to do with anything, and wait for them."""
    for handle in enqueue_many([quick(number=100 + each) for each in range(number)]):
        handle.result(timeout=PATIENCE)


def test_a_caller_that_holds_the_row_of_a_running_work_delays_its_outcome_alone(stage):
    handle = enqueue(hold())
    with running_worker(concurrency=3):
        eventually(lambda: stage.started)
        with held(lambda: cancel(handle.id)):
            stage.go.set()
            eventually(lambda: not stage.inside)
            all_end()
            all_end()
        eventually(lambda: handle.state().status == "cancelled")
    assert not Attempt.objects.exists()


def test_an_outcome_whose_row_was_held_is_written_once_the_caller_has_rolled_back(stage):
    handle = enqueue(hold(number=7))

    def cancel_and_fail() -> None:
        cancel(handle.id)
        transaction.set_rollback(True)

    with running_worker(concurrency=3):
        eventually(lambda: stage.started)
        with held(cancel_and_fail):
            stage.go.set()
            all_end()
            assert Work.objects.get(id=handle.id).status == "running"
        assert handle.result(timeout=PATIENCE) == 7
    assert Work.objects.get(id=handle.id).attempt == 1


def test_a_caller_that_holds_a_group_delays_the_outcomes_of_its_members_alone(stage):
    ours, other = enqueue_many([quick(number=1), quick(number=2)], delay=3600, together=True)
    with running_worker(concurrency=3), held(lambda: cancel(ours.id)):
        trigger(other.id)
        eventually(lambda: 2 in stage.started)
        all_end()
        all_end()
        assert Work.objects.get(id=other.id).status == "running"
    with running_worker():
        assert other.result(timeout=PATIENCE) == 2


def test_a_caller_that_holds_a_gate_delays_the_outcomes_that_it_watches_alone(stage):
    watched = enqueue(hold())
    gate = enqueue(dependency(on=[watched.id, enqueue(quick(), delay=3600).id], queue=[quick(number=5)]))

    def look() -> None:
        with completing(gate.id):
            pass

    with running_worker(concurrency=3):
        eventually(lambda: stage.started)
        with held(look):
            stage.go.set()
            eventually(lambda: not stage.inside)
            all_end()
        assert watched.result(timeout=PATIENCE) == 0


def test_a_row_that_was_locked_for_longer_than_a_lease_is_renewed_and_not_taken(stage, settings):
    settings.AYEWORK = {"LEASE": 0.6, "POLL_INTERVAL": 0.05}
    handle = enqueue(hold(number=3))
    with running_worker(concurrency=1), running_worker(concurrency=1):
        eventually(lambda: stage.started)
        with held(lambda: Work.objects.select_for_update().get(id=handle.id)):
            until = Work.objects.get(id=handle.id).leased_until
            eventually(lambda: has_lapsed_by(until, seconds=0.5))
        eventually(lambda: Work.objects.get(id=handle.id).leased_until > until)
        stage.go.set()
        assert handle.result(timeout=PATIENCE) == 3
    assert stage.started == [3]
    assert Work.objects.get(id=handle.id).delivery == 1


def has_lapsed_by(moment, seconds: float) -> bool:
    from datetime import timedelta

    from django_ayework.testing import now

    return now() > moment + timedelta(seconds=seconds)


def test_a_transaction_that_the_engine_leaves_open_ends_by_itself(settings):
    """Its host was frozen, or has vanished: the locks are given back to the others."""
    from django_ayework.store.sessions import engine_session

    settings.AYEWORK = {"STATEMENT_TIMEOUT": 1}
    handle = enqueue(quick())
    is_locked, over = threading.Event(), threading.Event()

    def freeze() -> None:
        with engine_session():
            try:
                with transaction.atomic():
                    Work.objects.select_for_update().get(id=handle.id)
                    is_locked.set()
                    over.wait(PATIENCE)
            except Exception:
                pass

    thread = threading.Thread(target=freeze)
    thread.start()
    assert is_locked.wait(PATIENCE)
    cancel(handle.id)
    assert connection.in_atomic_block is False
    assert not over.is_set()
    over.set()
    thread.join(PATIENCE)
    assert handle.state().status == "cancelled"
