"""Transactions that callers commit themselves, after ``set_autocommit(False)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from django_ayework import (
    Dedup,
    cancel,
    complete,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    limit,
    pause,
    resume,
    retry,
    trigger,
)
from django_ayework.models import Work, WorkControl
from django_ayework.signals import work_queued
from tests.app.models import Order
from tests.app.works import add

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def manual() -> Iterator[None]:
    """The test's transactions are its own."""
    yield
    if not connection.get_autocommit():
        transaction.rollback()
        transaction.set_autocommit(True)


def work_of(**columns: Any) -> str:
    """Return the id of a work that is there, committed."""
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(**columns)
    return handle.id


#: What inserts works, and how many.
ENQUEUES: dict[str, tuple[Callable[[], object], int]] = {
    "plain": (lambda: enqueue(add(a=1, b=2)), 1),
    "delay": (lambda: enqueue(add(a=1, b=2), delay=60), 1),
    "dedup": (lambda: enqueue(add(a=1, b=2), dedup=Dedup("key")), 1),
    "on_commit": (lambda: enqueue(add(a=1, b=2), on_commit=True), 1),
    "skip_queue": (lambda: enqueue(add(a=1, b=2), skip_queue=True), 1),
    "many": (lambda: enqueue_many([add(a=1, b=2), add(a=2, b=2)]), 2),
    "together": (lambda: enqueue_many([add(a=1, b=2), add(a=2, b=2)], together=True), 2),
    "gate": (lambda: enqueue(dependency([enqueue(add(a=1, b=2))], [add(a=2, b=3)])), 2),
}
#: What changes a work that was there in some state, and the status it then has.
ACTS: dict[str, tuple[dict[str, Any], Callable[[str], object], str | None]] = {
    "cancel": ({}, cancel, "cancelled"),
    "complete": ({}, complete, "success"),
    "retry": ({"status": "dead"}, retry, "pending"),
    "trigger": ({"status": "scheduled"}, trigger, "pending"),
    "delete": ({"status": "success"}, delete_chains, None),
}


@pytest.fixture(params=["alone", "in a block"])
def block(request: pytest.FixtureRequest) -> Any:
    """Return how the act is done: by itself, or in an ``atomic`` within the manual transaction."""

    def run(act: Callable[[], object]) -> None:
        if request.param == "alone":
            act()
        else:
            with transaction.atomic():
                act()

    return run


@pytest.mark.parametrize("name", ENQUEUES)
def test_works_are_enqueued_by_the_commit(manual: None, block: Any, name: str) -> None:
    act, count = ENQUEUES[name]
    transaction.set_autocommit(False)
    block(act)
    transaction.commit()
    transaction.set_autocommit(True)
    assert Work.objects.count() == count


@pytest.mark.parametrize("name", ENQUEUES)
def test_a_rollback_takes_works_with_it(manual: None, block: Any, name: str) -> None:
    act, _ = ENQUEUES[name]
    transaction.set_autocommit(False)
    Order.objects.create(reference="first")  # SQLite begins a transaction by a row only
    block(act)
    transaction.rollback()
    transaction.set_autocommit(True)
    assert Work.objects.count() == 0


@pytest.mark.parametrize("name", ACTS)
def test_acts_are_committed_and_rolled_back_with_it(manual: None, block: Any, name: str) -> None:
    before, act, after = ACTS[name]
    id = work_of(**before)
    transaction.set_autocommit(False)
    Order.objects.create(reference="first")
    block(lambda: act(id))
    transaction.rollback()
    transaction.set_autocommit(True)
    assert Work.objects.get(id=id).status == before.get("status", "pending")
    transaction.set_autocommit(False)
    block(lambda: act(id))
    transaction.commit()
    transaction.set_autocommit(True)
    assert Work.objects.filter(id=id).values_list("status", flat=True).first() == after


def test_controls_are_committed_with_it(manual: None) -> None:
    transaction.set_autocommit(False)
    pause(queue="mail")
    resume(queue="mail")
    limit(add.name, max_running=1)
    transaction.commit()
    transaction.set_autocommit(True)
    assert WorkControl.objects.count() == 2


def test_nobody_is_told_and_nothing_is_kept_for_later(manual: None, block: Any) -> None:
    """Django tells of no commit there, so workers find works at their next poll."""
    heard: list[object] = []

    def receiver(**facts: object) -> None:
        heard.append(facts)

    work_queued.connect(receiver)
    try:
        transaction.set_autocommit(False)
        block(lambda: [enqueue(add(a=1, b=2)), enqueue_many([add(a=1, b=2), add(a=2, b=2)])])
        transaction.commit()
        assert connection.run_on_commit == []
        transaction.set_autocommit(True)
    finally:
        work_queued.disconnect(receiver)
    assert heard == []
    assert Work.objects.count() == 3


def test_a_worker_finds_the_work(manual: None, running_worker: Any, settings: Any) -> None:
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}
    with running_worker():
        transaction.set_autocommit(False)
        handle = enqueue(add(a=1, b=2))
        transaction.commit()
        transaction.set_autocommit(True)
        assert handle.result(timeout=20) == 3
