"""Events, signals and batches of events: their order, their fields, and receivers that raise."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.dispatch import Signal

from django_ayework import (
    Defer,
    Retry,
    WorkState,
    dependency,
    enqueue,
    enqueue_many,
    propagation,
    retry,
    signals,
    work,
)
from django_ayework.define.handles import WorkEvent
from django_ayework.flow import events
from django_ayework.flow.new_works import Lineage, build_new_works
from django_ayework.flow.outcomes import as_failure
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Work
from django_ayework.propagation import Propagator
from django_ayework.testing import drain, enqueued, now, running_worker, time_travel
from tests.app.works import add, fail
from tests.flow.kit import ONCE, connected, parent, stated
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db
OF_WORKS = {
    getattr(signals, f"work_{name}"): name
    for name in ("queued", "started", "deferred", "unblocked", "succeeded", "failed", "expired", "cancelled")
}
NAMES = OF_WORKS | {signals.group_done: "group_done"}


@pytest.fixture
def signalled() -> Iterator[list[tuple[str, Any, dict[str, Any]]]]:
    """Each signal's name, sender and further keywords."""
    seen: list[tuple[str, Any, dict[str, Any]]] = []

    def receiver(signal: Signal, sender: Any, **keywords: Any) -> None:
        seen.append((NAMES[signal], sender, keywords))

    with connected(receiver, *NAMES):
        yield seen


@pytest.fixture
def batches() -> Iterator[list[Any]]:
    """The batches that were announced."""
    seen: list[Any] = []

    def receiver(batch: Any, **keywords: Any) -> None:
        seen.append(batch)

    with connected(receiver, signals.batch_announced):
        yield seen


@pytest.mark.django_db(transaction=True)
def test_what_a_work_waits_for_that_cannot_be_read_after_the_commit_costs_no_event(monkeypatch, reported):
    """It is read for async receivers. The work is queued, so the caller must not see an error."""
    heard: list[str] = []

    async def receive(work: WorkState, **more: Any) -> None:
        heard.append(work.id)

    def broken(state: WorkState) -> None:
        raise OperationalError("the database went away")

    blocker = enqueue(add(a=1, b=2))
    monkeypatch.setattr(events, "looked_up", broken)
    with connected(receive, signals.work_queued):
        handles = enqueue_many([add(a=3, b=4), add(a=5, b=6)], blockers=[blocker])
    assert heard == [handle.id for handle in handles]
    assert reported == [("the database went away", "hook")] * 2


def named(events: list[WorkEvent], names: dict[str, str]) -> list[str]:
    """The events as ``kind:name``; children are named by their input."""
    ids = [event.id or event.group_id for event in events]
    inputs = dict(Work.objects.values_list("id", "input")) | names
    return [f"{event.kind}:{inputs[id]}" for event, id in zip(events, ids, strict=True)]


def kinds(events: list[Any]) -> list[str]:
    return [str(event.kind) for event in events]


def test_the_life_of_a_work_in_order(events, signalled):
    handle = enqueue(add(a=1, b=2))
    drain()
    queued, started, succeeded, done = events
    assert kinds(events) == ["queued", "started", "succeeded", "group-done"]
    assert {(event.id, event.type) for event in events[:3]} == {(handle.id, "shop.add")}
    assert {event.group_id for event in events} == {handle.id}
    stands = [(event.work.status, event.work.attempt) for event in (queued, started, succeeded)]
    assert stands == [("pending", 0), ("running", 1), ("success", 1)]
    assert queued.work.start_at == queued.work.queued_at
    assert succeeded.work.result == 3
    assert (done.id, done.type, done.work, done.value) == (None, None, None, 3)
    assert all(abs(event.at - now()) < timedelta(minutes=1) for event in events)
    assert [event.extra for event in events] == [{}] * 4
    assert signalled[:3] == [(str(event.kind), "shop.add", {"work": event.work}) for event in events[:3]]
    [(name, _, keywords)] = signalled[3:]
    assert (name, keywords) == ("group_done", {"group_id": handle.id, "value": 3})


def test_children_are_queued_before_their_parent_succeeds_and_a_gate_before_it_opens(events):
    handle = enqueue(parent())
    drain()
    first, second = '{"a":1,"b":1}', '{"a":2,"b":2}'
    assert named(events, {handle.id: "p"}) == [
        *("queued:p", "started:p", f"queued:{first}", f"queued:{second}", "succeeded:p"),
        *(f"{kind}:{child}" for child in (first, second) for kind in ("started", "succeeded")),
        "group-done:p",
    ]
    events.clear()
    gate = enqueue(dependency([handle], [add(a=2, b=2)]))
    drain()
    assert named(events, {gate.id: "gate"})[:3] == ["queued:gate", 'queued:{"a":2,"b":2}', "succeeded:gate"]


def test_a_failure_has_its_error_and_whether_it_is_the_last_and_a_retry_is_a_queueing(events, signalled):
    handle = enqueue(fail(), retry=Retry(attempts=2))
    for _ in range(2):
        drain(raises=False)
        time_travel(60)
    assert kinds(events) == ["queued", "started", "failed", "started", "failed", "group-done"]
    expected = [{"error": "RuntimeError: no luck", "will_retry": again} for again in (True, False)]
    assert [event.extra for event in events if event.kind == "failed"] == expected
    assert [event.work.attempt for event in events if event.kind == "started"] == [1, 2]
    failures = [(sender, keywords) for name, sender, keywords in signalled if name == "failed"]
    assert [sender for sender, _ in failures] == ["shop.fail"] * 2
    assert [keywords.pop("work").status for _, keywords in failures] == ["scheduled", "dead"]
    assert [keywords for _, keywords in failures] == expected
    events.clear()
    retry(handle.id)
    drain(raises=False)
    assert kinds(events) == ["queued", "started", "failed"]


def test_a_deferral_has_the_moment_of_its_return_and_bad_input_is_a_last_failure_and_an_expiry_none(
    events, signalled
):
    moment = now() + timedelta(hours=1)

    def defers() -> None:
        raise Defer(run_at=moment)

    enqueue(work(name="t.events.defers")(defers)())
    drain()
    assert kinds(events) == ["queued", "started", "deferred"]
    assert (events[-1].extra, events[-1].work.start_at) == ({"run_at": moment}, moment)
    name, _, keywords = signalled[2]
    assert (name, keywords.keys(), keywords["run_at"]) == ("deferred", {"work", "run_at"}, moment)
    Work.objects.filter(id=enqueue(add(a=1, b=2)).id).update(input="garbage")
    drain(raises=False)
    assert kinds(events[3:]) == ["queued", "failed", "group-done"]
    assert events[4].extra["will_retry"] is False
    signalled.clear()
    enqueue(add(a=1, b=2), expires=10)
    time_travel(11)
    drain()
    assert [name for name, _, _ in signalled] == ["queued", "expired", "group_done"]
    assert (signalled[1][2].keys(), signalled[1][2]["work"].reason) == ({"work"}, "expired")


# --- what a work waits for, or has waited for -----------------------------------------------------------


def waiting() -> tuple[str, str]:
    """Queue a work, one that is blocked by it, and a gate over it; return the ids of the first two."""
    first = enqueue(add(a=1, b=1))
    blocked = enqueue(add(a=2, b=2), blockers=[first])
    enqueue(dependency([first], [add(a=3, b=3)]))
    return first.id, blocked.id


def test_events_show_blockers_and_dependents_which_are_read_once_when_asked_for(
    events, django_assert_num_queries
):
    first, blocked = waiting()
    drain()
    released = Work.objects.exclude(parent_id=None).get()
    assert Work.objects.get(id=released.parent_id).type == "@work/dependency"
    states, after = ([each.work for each in events if each.id == id] for id in (blocked, released.id))
    with django_assert_num_queries(0):
        assert (str(states[0].status), states[0].dependents) == ("blocked", ())
    with django_assert_num_queries(1):
        assert states[0].blockers == states[0].blockers == (first,)
    state, asked = states[-1], stated(blocked)
    for copied in (state, copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert copied.blockers == (first,)
        assert copied == asked
        assert asked == copied
    assert asdict(state) == asdict(asked)
    with pytest.raises(AttributeError, match="statuss"):
        _ = state.statuss
    assert [str(state.status) for state in states] == ["blocked", "pending", "running", "success"]
    assert [(state.blockers, state.dependents) for state in states] == [((first,), ())] * 4
    assert [str(state.status) for state in after] == ["pending", "running", "success"]
    assert [(state.blockers, state.dependents) for state in after] == [((), (first,))] * 3
    assert {state.parent for state in after} == {released.parent_id}


def test_async_receivers_and_the_testing_kit_see_them_in_the_transaction_of_a_test():
    seen: list[tuple[str, ...]] = []

    async def receive(sender: Any, work: WorkState, **keywords: Any) -> None:
        if work.blockers:
            seen.append(work.blockers)

    with connected(receive, signals.work_queued, signals.work_succeeded):
        first, blocked = waiting()
        found = {state.id: state.blockers for state in enqueued(add) if state.blockers}
        drain()
    assert seen == [(first,)] * 2
    assert found == {blocked: (first,)}


# --- receivers ------------------------------------------------------------------------------------------


def test_the_hook_of_a_type_gets_its_own_works_before_the_system_and_errors_of_hooks_are_reported(
    configure, reported
):
    def raising(level: str) -> Any:
        def hook(event: WorkEvent) -> None:
            raise LookupError(f"{level} {event.kind} {event.type}")

        return hook

    configure(ON_EVENT=raising("system"))
    own = work(name="own", on_event=raising("type"))(lambda: "done")
    handle, _ = enqueue_many([own(), add(a=1, b=2)])
    assert drain().succeeded == 2
    assert handle.result(timeout=0) == "done"
    assert reported[:2] == [("type queued own", "hook"), ("system queued own", "hook")]
    of_type = [text for text, _ in reported if text.startswith("type")]
    assert of_type == [f"type {kind} own" for kind in ("queued", "started", "succeeded")]
    assert len(reported) == 3 + 8


@pytest.mark.parametrize(
    ("receiving", "calls"),
    [((signals.work_queued, signals.work_succeeded), 2), ((signals.batch_announced,), 3)],
    ids=["single", "batches"],
)
def test_a_receiver_that_raises_is_reported_and_the_others_are_called(
    signalled, batches, reported, receiving, calls
):
    def broken(**keywords: Any) -> None:
        raise LookupError("receiver down")

    with connected(broken, *receiving):
        handle = enqueue(add(a=1, b=2))
        report = drain()
    assert (report.succeeded, report.dead, report.retried) == (1, 0, 0)
    assert handle.result(timeout=0) == 3
    assert reported == [("receiver down", "hook")] * calls
    assert [name for name, _, _ in signalled] == ["queued", "started", "succeeded", "group_done"]
    assert kinds(batches) == ["queued", "started", "succeeded"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", ["receiver", "hook", "propagator", "ON_ERROR", "log"])
def test_a_signal_that_ends_the_process_in_code_of_the_project_is_obeyed(configure, monkeypatch, place, kind):
    """Handlers of signals raise in the main thread, wherever it is: Ctrl-C ends a command that enqueues."""

    def interrupted(*given: Any, **keywords: Any) -> None:
        raise kind("by a signal")

    def broken(event: WorkEvent) -> None:
        raise LookupError("hook down")

    on_error = {"ON_ERROR": interrupted} if place == "ON_ERROR" else {}
    configure(ON_EVENT=interrupted if place == "hook" else broken, **on_error)
    if place == "log":
        monkeypatch.setattr(logging.getLogger("django_ayework"), "handle", interrupted)
    propagator = Propagator()
    if place == "propagator":
        monkeypatch.setattr(propagator, "inject", interrupted)
        propagation.register(propagator)
    receiving = [signals.work_queued] if place == "receiver" else []
    try:
        with connected(interrupted, *receiving), pytest.raises(kind, match="by a signal"):
            enqueue(add(a=1, b=2))
    finally:
        propagation.unregister(propagator)
    assert Work.objects.count() == (place != "propagator")


def test_a_hook_may_queue_works(configure):
    def follow(event: WorkEvent) -> None:
        if event.kind == "succeeded" and event.work and event.work.result == 3:
            enqueue(add(a=10, b=10), id="follower")

    configure(ON_EVENT=follow)
    enqueue(add(a=1, b=2))
    assert drain().succeeded == 2


@pytest.mark.django_db(transaction=True)
def test_other_connections_see_what_an_event_says_and_a_worker_signals_that_it_starts_and_stops(configure):
    seen: list[tuple[Any, Any]] = []

    def look(event: WorkEvent) -> None:
        seen.append((str(event.kind), Work.objects.get(id=event.id).status))
        connections.close_all()

    def from_another_thread(event: WorkEvent) -> None:
        if event.kind in ("started", "succeeded"):
            thread = threading.Thread(target=look, args=(event,))
            thread.start()
            thread.join()

    def receiver(signal: Signal, worker: Any, **keywords: Any) -> None:
        seen.append((signal, worker))

    configure(ON_EVENT=from_another_thread)
    with connected(receiver, signals.worker_started, signals.worker_stopped):
        with running_worker(concurrency=1) as worker:
            enqueue(add(a=1, b=2)).result(timeout=20)
        of_the_work = [("started", "running"), ("succeeded", "success")]
        assert seen == [(signals.worker_started, worker), *of_the_work, (signals.worker_stopped, worker)]


# --- batches of events ----------------------------------------------------------------------------------


def test_a_batch_has_the_events_of_a_transaction_and_how_long_handlers_ran(batches):
    handles = enqueue_many([add(a=1, b=1), fail(), add(a=2, b=2)])
    drain(raises=False, limit=0)
    [batch] = batches
    assert (batch.kind, [event.id for event in batch]) == ("queued", [handle.id for handle in handles])
    assert [item.row.type for item in batch.items] == ["shop.add", "shop.fail", "shop.add"]
    drain(raises=False, limit=1)
    *queued, _, succeeded = (item for batch in batches for item in batch.items)
    assert [item.seconds for item in queued] == [None] * 3
    assert 0 < succeeded.seconds < 60


@pytest.mark.django_db(transaction=True)
def test_one_batch_has_all_successes_of_a_transaction(batches):
    handles = enqueue_many([add(a=1, b=1), fail(), add(a=2, b=2)])
    rows = claim_all()
    plain, failing, fanning = [rows[handle.id] for handle in handles]
    children = tuple(build_new_works([add(a=3, b=3)], Lineage.of(fanning)))
    batches.clear()
    settle(
        [
            Settlement(plain, Success("2")),
            as_failure(Settlement(failing, Success()), ValueError("no")),
            Settlement(fanning, Success("4", new_works=children)),
        ]
    )
    assert kinds(batches) == ["failed", "queued", "succeeded"]
    assert [event.work.result for event in batches[-1]] == [2, 4]


def test_batches_have_the_events_that_single_receivers_get(batches):
    """No signal of groups has receivers."""
    singles: list[tuple[str, str, WorkState]] = []

    def receiver(signal: Any, work: WorkState, **keywords: Any) -> None:
        singles.append((work.id, NAMES[signal], work))

    with connected(receiver, *OF_WORKS):
        first = enqueue(add(a=1, b=1))
        enqueue(add(a=2, b=2), blockers=[first])
        enqueue(fail(), retry=ONCE)
        drain(raises=False)
    together = [(each.work.id, str(each.kind), each.work) for batch in batches for each in batch if each.work]
    assert sorted(together, key=lambda event: event[:2]) == sorted(singles, key=lambda event: event[:2])
    assert {kind for _, kind, _ in together} == {"queued", "started", "unblocked", "succeeded", "failed"}
