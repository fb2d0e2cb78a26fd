"""Queueing one work: what is stored, and how little it costs."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import (
    BatchItem,
    Retry,
    Status,
    aenqueue,
    batch_work,
    dependency,
    enqueue,
    enqueue_many,
    work,
)
from django_ayework.models import Work
from django_ayework.store import database
from django_ayework.store.database import clock
from django_ayework.testing import drain, now, time_travel
from tests.app.models import Order
from tests.app.works import add, notify

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("options", [{}, {"priority": 3, "queue": "mail"}], ids=["plain", "options"])
@pytest.mark.parametrize("block", [nullcontext, transaction.atomic], ids=["alone", "in a transaction"])
def test_queueing_costs_a_single_insert(block, options):
    with block(), CaptureQueriesContext(connection) as queries:
        handle = enqueue(add(a=1, b=2), **options)
    assert [query["sql"].split()[0] for query in queries] == ["INSERT"]
    assert Work.objects.get().id == handle.id


def test_a_new_work_is_pending_and_alone():
    state = enqueue(add(a=1, b=2)).state()
    assert (state.type, state.queue, state.status) == ("shop.add", "default", Status.PENDING)
    assert (state.attempt, state.attempts) == (0, 3)
    assert state.group_id == state.chain_id == state.id
    assert (state.result, state.error, state.last_error, state.reason) == (None, None, None, None)
    assert (state.started_at, state.ended_at, state.worker, state.completed_by) == (None, None, None, None)
    assert state.start_at == state.queued_at


def test_a_work_can_be_queued_by_its_type_or_by_name():
    state = notify.enqueue(order_id=7).state()
    assert (state.type, state.queue) == ("shop.notify", "mail")
    without_input = enqueue("shop.fail", delay=60)
    assert Work.objects.get(id=without_input.id).input == "{}"
    handle = enqueue("shop.add", {"a": 1, "b": 2}, priority=4)
    drain(limit=1)
    assert handle.result(timeout=0) == 3


def test_the_object_a_work_is_about_is_stored():
    order = Order.objects.create(reference="A1")
    row = Work.objects.get(id=enqueue(add(a=1, b=2), about=order).id)
    assert (row.about_type, row.about_id) == ("shop.order", str(order.pk))


def test_the_async_twins_queue_the_same():
    async def queue() -> list[Any]:
        return [
            await aenqueue(add(a=1, b=2), priority=5),
            await aenqueue("shop.add", {"a": 1, "b": 2}),
            await aenqueue("shop.fail"),
            await add.aenqueue(a=3, b=4),
        ]

    handles = async_to_sync(queue)()
    assert [handle.state().type for handle in handles] == ["shop.add", "shop.add", "shop.fail", "shop.add"]
    assert handles[0].state().priority == 5


# --- the row --------------------------------------------------------------------------------------------


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "placed": {"queue": "mail", "priority": 7},
    "patient": {"retry": Retry(attempts=9), "timeout": 5, "lease": 60},
    "secret": {"redact": ["a"]},
    "ordered": {"order": "unit", "weight": 3, "max_running": 2},
    "alone": {"atomic": True, "options": lambda a: {}},
    "expiring": {"expires": 60},
    "labelled": {"fairness": "tenant"},
    "direct": {"skip_queue": True},
    "computed": {"options": lambda a: {"priority": a}},
}


def together(items: list[BatchItem[int]]) -> list[int]:
    return [item.input for item in items]


@pytest.mark.parametrize("kind", [*KINDS, "batch"])
def test_the_row_of_a_work_is_the_same_however_it_is_queued(kind):
    if kind == "batch":
        batch = batch_work(name="t.enqueue.batch", size=2)(together)
    else:
        single = work(name="t.enqueue.single", **KINDS[kind])(lambda a: a)

    def build() -> Any:
        return batch(1) if kind == "batch" else single(a=1)

    for _ in range(2):
        enqueue(build())
        enqueue(build(), priority=None)
        enqueue_many([build()])
        enqueue_many([build() for _ in range(30)])
    rows = Work.objects.values()
    assert len({row.pop("id") for row in rows}) == 66
    assert len({row["sort_key"] for row in rows}) == (66 if kind == "labelled" else 1), "each has its turn"
    assert len({str(sorted(since_queueing(row).items())) for row in rows}) == 1


def since_queueing(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that have no turn, moments as the time since it was queued."""
    moment = row["queued_at"]
    return {
        name: value - moment if isinstance(value, datetime) else value
        for name, value in row.items()
        if name != "sort_key"
    }


def test_options_of_an_enqueue_are_heeded_after_one_without():
    enqueue(add(a=1, b=1))
    enqueue(add(a=1, b=1), priority=3, delay=timedelta(hours=1))
    enqueue(add(a=1, b=1))
    rows = Work.objects.order_by("id").values_list("priority", "status")
    assert [*rows] == [(0, "pending"), (3, "scheduled"), (0, "pending")]
    assert drain().ran == 2


@pytest.mark.parametrize("delay", [0, 60])
def test_each_is_queued_at_its_own_moment(delay):
    options = {"delay": delay} if delay else {}
    enqueue(add(a=1, b=1), **options)
    time_travel(3600)
    enqueue(add(a=1, b=1), **options)
    first, second = Work.objects.order_by("id")
    assert [row.run_at - row.queued_at for row in (first, second)] == [timedelta(seconds=delay)] * 2
    assert abs(second.queued_at - first.queued_at - timedelta(hours=1)) < timedelta(seconds=30)
    assert abs(second.queued_at - now()) < timedelta(minutes=1)


def test_settings_apply_from_their_change_on(configure):
    before = enqueue(add(a=1, b=1)).state()
    configure(RETRY={"attempts": 7})
    after = enqueue(add(a=1, b=1)).state()
    assert (before.attempts, after.attempts) == (3, 7)
    configure(CODEC=Listing())
    assert Work.objects.get(id=enqueue(add(a=1, b=1)).id).input == "a:1,b:1,"


class Listing:
    """A codec that differs from the usual one."""

    def encode(self, value: Any) -> str:
        return "".join(f"{name}:{number}," for name, number in value.items())

    def decode(self, text: str) -> Any:
        raise NotImplementedError


def test_a_type_that_is_defined_anew_is_queued_as_it_now_is():
    for queue in ("one", "two"):
        enqueue(work(name="t.enqueue.anew", queue=queue, retry=Retry(attempts=1))(lambda: None)())
    assert sorted(Work.objects.values_list("queue", flat=True)) == ["one", "two"]


def test_enqueue_many_takes_a_single_work_for_a_list_of_one():
    [handle] = enqueue_many(add(a=1, b=2))
    assert handle.state().type == "shop.add"


@pytest.mark.parametrize(
    "queue", [enqueue, lambda work, **options: enqueue_many([work], **options)], ids=["one", "many"]
)
@pytest.mark.parametrize(
    ("build", "options"),
    [
        (lambda: add(a=1, b=1), {"delay": 60}),
        (lambda: add(a=1, b=1), {"expires": 60}),
        (lambda: dependency(on=["a"], queue=[add(a=1, b=1)], timeout=60), {}),
    ],
    ids=["delay", "expires", "timeout"],
)
def test_a_time_that_counts_from_now_does_so_on_the_databases_clock(queue, build, options, monkeypatch):
    hours_ahead = datetime.now(UTC) + timedelta(hours=5)
    monkeypatch.setattr(database, "database_now", lambda: hours_ahead)
    clock.reset()
    queue(build(), **options)
    work = Work.objects.get()
    assert work.queued_at >= hours_ahead
    assert max(work.run_at, work.deadline or work.run_at) >= hours_ahead + timedelta(seconds=60)


def test_each_work_takes_one_id(configure):
    made: list[str] = []
    configure(ID=lambda: made.append(f"id-{len(made)}") or made[-1])
    handle = enqueue(work(name="t.enqueue.counted")(lambda: None)())
    assert made == [handle.id]


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_garbage_made_before_very_many_are_enqueued_stays_young():
    """What the collector takes for old is looked at so seldom that a process grows by all of it."""
    requests = [add(a=number, b=0) for number in range(1_000)]
    gc.collect()
    cycle = weakref.ref(Cycle())
    enqueue_many(requests)
    gc.collect(1)
    assert cycle() is None
