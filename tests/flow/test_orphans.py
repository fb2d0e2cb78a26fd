"""``UNHANDLED_GROUP``: told of groups that settled while nobody waited for them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from django_ayework import (
    Context,
    Retry,
    WaitInTransaction,
    dependency,
    enqueue,
    enqueue_many,
    get_handle,
    retry,
    work,
)
from django_ayework.flow.effects import SettledGroup
from django_ayework.models import Work
from tests.app.works import add, fail
from tests.flow.conftest import Configure

pytestmark = pytest.mark.django_db


@work(name="t.orphans.parent")
def parent(ctx: Context):
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)])


@pytest.fixture
def unhandled(configure: Configure) -> list[SettledGroup]:
    """The groups that the hook was told of."""
    told: list[SettledGroup] = []
    configure(UNHANDLED_GROUP=told.append)
    return told


def test_a_group_nobody_waits_for_is_told_once_with_its_works(
    drain: Any, unhandled: list[SettledGroup]
) -> None:
    handle = enqueue(parent())
    drain()
    drain()
    [group] = unhandled
    assert (group.group_id, group.value) == (handle.id, 4)
    assert [(state.type, state.result) for state in group.states] == [
        ("t.orphans.parent", None),
        ("shop.add", 2),
        ("shop.add", 4),
    ]


def test_a_work_alone_is_a_group_too(drain: Any, unhandled: list[SettledGroup]) -> None:
    handle = enqueue(add(a=1, b=2))
    drain()
    [group] = unhandled
    assert (group.group_id, group.value) == (handle.id, 3)
    assert [state.id for state in group.states] == [handle.id]


def test_a_group_without_a_value_is_told_as_well(drain: Any, unhandled: list[SettledGroup]) -> None:
    enqueue_many([fail(), fail()], together=True, retry=Retry(attempts=1))
    enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    assert [(group.value, len(group.states)) for group in unhandled] == [(None, 2), (None, 1)]
    assert {state.status for group in unhandled for state in group.states} == {"dead"}


def test_a_group_that_is_still_open_is_not_told(drain: Any, unhandled: list[SettledGroup]) -> None:
    enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)
    drain(limit=1)
    assert unhandled == []


def test_a_group_that_settles_again_is_not_told_again(drain: Any, unhandled: list[SettledGroup]) -> None:
    handle = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    retry(handle.id)
    drain(raises=False)
    assert len(unhandled) == 1


def test_a_group_closed_by_a_gate_that_ran_out_of_time_is_told(
    drain: Any, time_travel: Any, unhandled: list[SettledGroup]
) -> None:
    gate = enqueue(dependency(["never"], [add(a=1, b=2)], timeout=30))
    time_travel(31)
    drain()
    assert [group.group_id for group in unhandled] == [gate.id]


def test_a_hook_that_raises_is_reported(drain: Any, configure: Configure, reported: list[Any]) -> None:
    def broken(group: SettledGroup) -> None:
        raise LookupError("hook down")

    configure(UNHANDLED_GROUP=broken)
    enqueue(add(a=1, b=2))
    assert drain().succeeded == 1
    assert reported == [("hook down", "hook")]


@pytest.mark.django_db(transaction=True)
def test_a_running_worker_tells_after_a_grace(unhandled: list[SettledGroup], running_worker: Any) -> None:
    with running_worker(concurrency=2):
        handle = enqueue(parent())
        until = time.monotonic() + 20
        while not unhandled and time.monotonic() < until:
            time.sleep(0.02)
    assert [group.group_id for group in unhandled] == [handle.id]


@pytest.mark.django_db(transaction=True)
def test_a_group_that_expires_under_a_running_worker_is_told(
    unhandled: list[SettledGroup], running_worker: Any
) -> None:
    gate = enqueue(dependency(["never"], [add(a=1, b=2)], timeout=0))
    with running_worker(concurrency=1):
        until = time.monotonic() + 20
        while not unhandled and time.monotonic() < until:
            time.sleep(0.02)
    assert [group.group_id for group in unhandled] == [gate.id]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("waits_for", ["result", "group", "child"])
def test_who_waits_handles_the_group(
    waits_for: str, unhandled: list[SettledGroup], running_worker: Any
) -> None:
    @work(name="t.orphans.slow")
    def slow(ctx: Context):
        ctx.signal.wait(0.3)
        return ctx.result("slow")

    handles = enqueue_many([add(a=1, b=2), slow()], together=True)
    with running_worker(concurrency=2):
        if waits_for == "child":  # a handle that does not know its group
            get_handle(handles[1].id).group(timeout=20)
        else:
            getattr(handles[0], waits_for)(timeout=20)
        wait_for_the_end(handles[1].id)
        time.sleep(0.5)
    assert unhandled == []


@pytest.mark.django_db(transaction=True)
def test_who_asks_within_the_grace_handles_the_group(
    unhandled: list[SettledGroup], running_worker: Any
) -> None:
    handle = enqueue(add(a=1, b=2))
    with running_worker(concurrency=1):
        wait_for_the_end(handle.id)
        assert handle.group(timeout=0) == 3  # it has ended already
        time.sleep(0.5)
    assert unhandled == []


@pytest.mark.django_db(transaction=True)
def test_asking_too_early_within_the_transaction_does_not_spoil_asking_later(
    unhandled: list[SettledGroup], running_worker: Any
) -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2))
        with pytest.raises(WaitInTransaction):
            handle.group()
    with running_worker(concurrency=1):
        assert handle.group(timeout=20) == 3
        time.sleep(0.5)
    assert unhandled == []


def wait_for_the_end(id: str) -> None:
    """Look at the row itself, which is no waiting in the engine's sense."""
    until = timezone.now().timestamp() + 20
    while Work.objects.get(id=id).ended_at is None and timezone.now().timestamp() < until:
        time.sleep(0.005)
