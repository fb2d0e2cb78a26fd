"""Events through the hooks: their order, their fields, and that nothing can disturb the engine."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from django_ayework import Context, Defer, Retry, dependency, enqueue, enqueue_many, retry, work
from django_ayework.define.handles import WorkEvent
from django_ayework.models import Work
from django_ayework.testing import now
from tests.app.works import add, fail
from tests.flow.conftest import Configure

pytestmark = pytest.mark.django_db


@work(name="t.events.parent")
def parent(ctx: Context):
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)])


def told(events: list[WorkEvent], names: dict[str, str]) -> list[str]:
    """The events as ``kind:name``; children are named by their input."""
    lines = []
    for event in events:
        name = names.get(event.id or event.group_id)
        if name is None:
            name = Work.objects.get(id=event.id).input
        lines.append(f"{event.kind}:{name}")
    return lines


def test_the_life_of_a_work_in_order(drain: Any, events: list[WorkEvent]) -> None:
    enqueue(add(a=1, b=2))
    drain()
    assert [event.kind for event in events] == ["queued", "started", "succeeded", "group-done"]


def test_children_are_queued_before_their_parent_succeeds(drain: Any, events: list[WorkEvent]) -> None:
    handle = enqueue(parent())
    drain()
    first, second = '{"a":1,"b":1}', '{"a":2,"b":2}'
    assert told(events, {handle.id: "p"}) == [
        "queued:p",
        "started:p",
        f"queued:{first}",
        f"queued:{second}",
        "succeeded:p",
        f"started:{first}",
        f"succeeded:{first}",
        f"started:{second}",
        f"succeeded:{second}",
        "group-done:p",
    ]


def test_events_tell_the_state_of_that_moment(drain: Any, events: list[WorkEvent]) -> None:
    handle = enqueue(add(a=1, b=2))
    drain()
    queued, started, succeeded, done = events
    assert {event.id for event in events[:3]} == {handle.id}
    assert {event.type for event in events[:3]} == {"shop.add"}
    assert {event.group_id for event in events} == {handle.id}
    states = [event.work for event in (queued, started, succeeded)]
    assert [(state.status, state.attempt) for state in states if state] == [
        ("pending", 0),
        ("running", 1),
        ("success", 1),
    ]
    assert succeeded.work is not None and succeeded.work.result == 3
    assert (done.id, done.type, done.work, done.value) == (None, None, None, 3)
    assert all(abs(event.at - now()) < timedelta(minutes=1) for event in events)
    assert [event.extra for event in events] == [{}] * 4


def test_a_child_tells_its_parent_and_a_released_work_what_it_waited_for(
    drain: Any, events: list[WorkEvent]
) -> None:
    @work(name="t.events.chained")
    def chained(ctx: Context):
        return ctx.queue([add(a=1, b=1)]).next([add(a=2, b=2)])

    handle = enqueue(chained())
    drain()
    first, gate, second = Work.objects.exclude(id=handle.id).order_by("queued_at", "id")
    seen = {event.id: event.work for event in events if event.kind == "succeeded" and event.work}
    assert seen[first.id].parent == handle.id
    assert seen[second.id].parent == gate.id
    assert gate.parent_id == handle.id


def test_a_failure_tells_its_error_and_whether_it_is_the_last(
    drain: Any, time_travel: Any, events: list[WorkEvent]
) -> None:
    enqueue(fail(), retry=Retry(attempts=2))
    drain(raises=False)
    time_travel(60)
    drain(raises=False)
    assert [event.kind for event in events] == [
        "queued",
        "started",
        "failed",
        "started",
        "failed",
        "group-done",
    ]
    assert [event.extra for event in events if event.kind == "failed"] == [
        {"error": "RuntimeError: no luck", "will_retry": True},
        {"error": "RuntimeError: no luck", "will_retry": False},
    ]
    assert [event.work.attempt for event in events if event.kind == "started" and event.work] == [1, 2]


def test_a_deferral_tells_when_it_comes_back(drain: Any, events: list[WorkEvent]) -> None:
    moment = now() + timedelta(hours=1)

    @work(name="t.events.defers")
    def defers() -> None:
        raise Defer(run_at=moment)

    enqueue(defers())
    drain()
    assert [event.kind for event in events] == ["queued", "started", "deferred"]
    assert events[-1].extra == {"run_at": moment}
    assert events[-1].work is not None and events[-1].work.start_at == moment


def test_a_retry_is_a_queueing(drain: Any, events: list[WorkEvent]) -> None:
    handle = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    del events[:]
    retry(handle.id)
    drain(raises=False)
    assert [event.kind for event in events] == ["queued", "started", "failed", "group-done"]


@pytest.mark.django_db(transaction=True)
def test_a_gate_is_queued_before_it_opens(drain: Any, events: list[WorkEvent]) -> None:
    watched = enqueue(add(a=1, b=1))
    drain()
    del events[:]
    gate = enqueue(dependency([watched], [add(a=2, b=2)]))
    drain()
    assert told(events, {gate.id: "gate"})[:3] == ["queued:gate", 'queued:{"a":2,"b":2}', "succeeded:gate"]


def test_bad_input_is_a_last_failure(drain: Any, events: list[WorkEvent]) -> None:
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(input="garbage")
    drain(raises=False)
    assert [event.kind for event in events] == ["queued", "failed", "group-done"]
    assert events[1].extra["will_retry"] is False


def test_a_type_hears_its_own_works_only(drain: Any, events: list[WorkEvent]) -> None:
    own: list[WorkEvent] = []

    @work(name="t.events.own", on_event=own.append)
    def mine() -> int:
        return 5

    enqueue_many([mine(), add(a=1, b=2)])
    drain()
    assert [(event.type, event.kind) for event in own] == [
        ("t.events.own", kind) for kind in ("queued", "started", "succeeded")
    ]
    assert len(events) == 8


def test_a_type_is_told_before_the_system(drain: Any, configure: Configure) -> None:
    order: list[str] = []
    configure(ON_EVENT=lambda event: order.append(f"system {event.kind}"))

    @work(name="t.events.order", on_event=lambda event: order.append(f"type {event.kind}"))
    def ordered() -> None: ...

    enqueue(ordered())
    drain(limit=0)
    assert order == ["type queued", "system queued"]


def test_hooks_that_raise_are_reported_and_disturb_nobody(
    drain: Any, configure: Configure, reported: list[Any]
) -> None:
    def system(event: WorkEvent) -> None:
        raise LookupError(f"system {event.kind}")

    def of_type(event: WorkEvent) -> None:
        raise LookupError(f"type {event.kind}")

    configure(ON_EVENT=system)

    @work(name="t.events.raising", on_event=of_type)
    def raising() -> str:
        return "done"

    handle = enqueue(raising())
    assert drain().succeeded == 1
    assert handle.result(timeout=0) == "done"
    assert reported == [
        (f"{who} {kind}", "hook")
        for kind in ("queued", "started", "succeeded", "group-done")
        for who in ("type", "system")
        if (who, kind) != ("type", "group-done")
    ]


def test_an_error_hook_that_raises_is_ignored(drain: Any, configure: Configure) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("broken")

    configure(ON_EVENT=broken, ON_ERROR=broken)
    handle = enqueue(add(a=1, b=2))
    drain()
    assert handle.result(timeout=0) == 3


def test_a_hook_may_queue_works(drain: Any, configure: Configure) -> None:
    def follow(event: WorkEvent) -> None:
        if event.kind == "succeeded" and event.work and event.work.result == 3:
            enqueue(add(a=10, b=10), id="follower")

    configure(ON_EVENT=follow)
    enqueue(add(a=1, b=2))
    assert drain().succeeded == 2


@pytest.mark.django_db(transaction=True)
def test_what_a_rolled_back_transaction_did_is_not_told(events: list[WorkEvent], drain: Any) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue(add(a=1, b=2))
        _ = 1 / 0
    assert events == []


@pytest.mark.django_db(transaction=True)
def test_others_can_see_what_is_told(configure: Configure, running_worker: Any) -> None:
    seen: list[tuple[str, str]] = []

    def from_another_thread(event: WorkEvent) -> None:
        def look() -> None:
            status = Work.objects.get(id=event.id).status
            seen.append((str(event.kind), status))
            connections.close_all()

        if event.kind in ("started", "succeeded"):
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()

    configure(ON_EVENT=from_another_thread)
    with running_worker(concurrency=1):
        enqueue(add(a=1, b=2)).result(timeout=20)
    assert seen == [("started", "running"), ("succeeded", "success")]
