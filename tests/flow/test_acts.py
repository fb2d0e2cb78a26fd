"""Acts by hand: completing, triggering, another priority or queue; cancelling works and groups."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Retry, dependency, enqueue, enqueue_many, errors, get_handle, retry, work
from django_ayework.api import (
    acancel,
    achange_priority,
    achange_queue,
    aretry,
    cancel,
    change_priority,
    change_queue,
    delete_chains,
    trigger,
)
from django_ayework.flow import termination
from django_ayework.flow.termination import complete, completing
from django_ayework.models import Group, Work
from django_ayework.testing import assert_not_enqueued, drain, enqueued, now
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail
from tests.flow.kit import ONCE, Oops
from tests.invariants import assert_consistent
from tests.marks import on_sqlite
from tests.races.rivals import claim_all

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@pytest.mark.parametrize("options", [{}, {"delay": 3600}])
def test_a_waiting_work_succeeds_once_without_its_handler(options):
    handle = enqueue(add(a=1, b=2), **options)
    complete(handle.id, "approved")
    state = handle.state()
    assert (state.status, state.result, state.completed_by, state.attempt) == ("success", "approved", None, 0)
    assert drain().ran == 0
    with pytest.raises(errors.AlreadyCompleted, match="has ended already: it is success"):
        complete(handle.id, 2)
    assert handle.result() == handle.group() == "approved"


@pytest.mark.vendors("sqlite")
@pytest.mark.django_db(transaction=True)
def test_an_act_on_more_works_than_a_statement_takes_parameters():
    kind = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER
    handles = enqueue_many([add(a=n, b=0) for n in range(1100)], delay=60)
    ids = [handle.id for handle in handles]
    most = connection.connection.setlimit(kind, 999)
    try:
        assert len(trigger(*ids)) == len(change_priority(*ids, priority=3)) == 1100
    finally:
        connection.connection.setlimit(kind, most)
    assert Work.objects.filter(status="pending", priority=3).count() == 1100
    Work.objects.all().delete()  # or the fixture would run them


def test_a_gate_that_is_completed_opens_and_what_waits_for_a_completed_work_is_decided():
    work, other = (enqueue(add(a=1, b=n), delay=3600) for n in range(2))
    gate, by_hand = (enqueue(dependency(on=[one], queue=[add(a=5, b=5)])) for one in (work, other))
    complete(work.id)
    complete(by_hand.id)
    assert (gate.state().status, by_hand.state().status) == ("success", "success")
    assert len(enqueued(add, a=5)) == 2


def test_what_cannot_be_completed():
    dead, handle = enqueue(fail(), retry=ONCE), enqueue(add(a=1, b=2), delay=60)
    drain(raises=False)
    with pytest.raises(errors.AlreadyCompleted, match="it is dead"):
        complete(dead.id)
    with pytest.raises(errors.NotEncodable, match=r"the result of 'shop.add'"):
        complete(handle.id, object())
    with pytest.raises(errors.WorkNotFound, match="'nobody'"), completing("nobody"):
        raise AssertionError("the block must not run")
    assert handle.state().status == "scheduled"


def test_the_block_can_say_whatever_a_handler_can():
    handle = enqueue(add(a=1, b=2), delay=3600)
    with completing(handle.id) as ctx:
        assert (ctx.id, ctx.type, ctx.attempt) == (handle.id, "shop.add", 0)
        ctx.queue([add(a=1, b=1), ctx.result("approved")]).next([add(a=2, b=2)])
    drain()
    assert handle.group() == 4
    assert [w.status for w in Work.objects.filter(group_id=handle.group_id)] == ["success"] * 4


def test_an_error_in_the_block_undoes_everything_and_a_block_that_says_nothing_changes_nothing():
    handle = enqueue(add(a=1, b=2))
    with pytest.raises(Oops), completing(handle.id) as ctx:
        enqueue(add(a=8, b=8))
        ctx.result(1)
        raise Oops
    refused = pytest.raises(errors.InvalidInstruction, match=r"expected one instruction .* got 2")
    with refused, completing(handle.id) as ctx:
        ctx.result(1)
        ctx.result(2)
    with completing(handle.id):
        pass
    assert (handle.state().status, handle.state().result, Work.objects.count()) == ("pending", None, 1)
    with completing(handle.id) as ctx:
        ctx.void()
    assert (handle.state().status, handle.state().result) == ("success", None)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda id: cancel(group=id), errors.AlreadyCompleted, "it is cancelled, so it cannot be completed"),
        (complete, errors.AlreadyCompleted, "it is success, so it cannot be completed"),
        (lambda id: delete_chains(id), errors.WorkNotFound, "completed"),
        (trigger, errors.InvalidInstruction, "to stay as it is inside of the block"),
        (lambda id: enqueue(add(a=5, b=5), unit="mine"), errors.InvalidInstruction, "to stay as it is"),
    ],
)
def test_a_block_that_changes_the_work_itself_changes_nothing(act, error, message):
    handle = enqueue(add(a=1, b=2), delay=3600, unit="mine")
    gate = enqueue(dependency([handle], [add(a=3, b=3)]))
    with pytest.raises(error, match=message), completing(handle.id) as ctx:
        act(handle.id)
        ctx.queue([add(a=8, b=8)])
    assert (handle.state().status, gate.state().status) == ("scheduled", "blocked")
    assert Work.objects.count() == 2
    with completing(handle.id) as ctx:
        ctx.progress(1, 2)
        ctx.void()
    assert (handle.state().status, gate.state().status) == ("success", "success")


def test_scheduled_works_are_triggered_all_or_none_and_their_states_come_in_the_order_given_each_once():
    first, second = (enqueue(add(a=1, b=n), delay=3600) for n in range(2))
    pending = enqueue(add(a=1, b=2))
    message = f"{pending.id} to be scheduled, but it is pending"
    with pytest.raises(errors.NotTriggerable, match=message) as refusal:
        trigger(first.id, pending.id)
    assert refusal.value.id == pending.id
    with pytest.raises(errors.WorkNotFound, match="'nobody'"):
        trigger(first.id, "nobody")
    assert drain().ran == 1
    states = trigger(second.id, first.id, second.id)
    assert [(state.id, state.status) for state in states] == [(second.id, "pending"), (first.id, "pending")]
    assert all(state.start_at <= now() for state in states)
    assert trigger() == []
    assert drain().succeeded == 2


# --- another priority or queue --------------------------------------------------------------------------


def row(handle: Any) -> Work:
    return Work.objects.get(id=handle.id)


def order() -> list[str]:
    """The ids of the pending works in the order of claiming."""
    pending = Work.objects.filter(status="pending")
    return [work.id for work in pending.order_by("-priority", "sort_key", "run_at", "id")]


def test_works_that_wait_get_another_priority_and_the_states_come_in_order():
    pending, later = enqueue(add(a=1, b=1)), enqueue(add(a=1, b=1), delay=60)
    blocked = enqueue(dependency(on=[later], queue=[add(a=2, b=2)]))
    ids = [blocked.id, pending.id, later.id, pending.id]
    states = change_priority(*ids, priority=7)
    assert [state.id for state in states] == ids[:3]
    assert [state.status for state in states] == ["blocked", "pending", "scheduled"]
    assert {row(handle).priority for handle in (pending, later, blocked)} == {7}
    [state] = async_to_sync(achange_priority)(pending.id, priority=4)
    assert (state.id, row(pending).priority) == (pending.id, 4)
    async_to_sync(achange_queue)(pending.id, queue="mail")
    assert row(pending).queue == "mail"


def test_works_that_wait_move_to_another_queue_and_keep_it():
    work = enqueue(fail(), retry=Retry(attempts=2, base=10))
    change_queue(work.id, queue="mail")
    for status in ("scheduled", "dead"):
        drain(raises=False)
        assert (row(work).queue, row(work).status) == ("mail", status)
        if status == "scheduled":
            trigger(work.id)


def test_what_runs_or_has_ended_is_refused_and_so_are_unknown_works_and_values_and_nothing_changes():
    waiting = enqueue(add(a=1, b=1))
    for status in ("running", "success", "dead", "cancelled"):
        other = WorkFactory(status=status)
        with pytest.raises(errors.NotWaiting, match=f"but it is {status}") as refusal:
            change_priority(waiting.id, other.id, priority=3)
        assert refusal.value.id == other.id
        with pytest.raises(errors.NotWaiting):
            change_queue(waiting.id, other.id, queue="mail")
        other.delete()  # which a factory has made, without a worker or a reason
    with pytest.raises(errors.WorkNotFound):
        change_priority(waiting.id, "missing", priority=3)
    with pytest.raises(errors.InvalidOption, match="got: 'high'"):
        change_priority(waiting.id, priority="high")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="queue"):
        change_queue(waiting.id, queue="")
    assert (row(waiting).priority, row(waiting).queue) == (0, "default")


def test_a_work_with_a_label_goes_behind_those_of_its_label():
    low = enqueue(add(a=1, b=4), fairness="a")  # its turn in its lane is the earliest
    first, second = (enqueue(add(a=1, b=n), fairness="a", priority=5) for n in range(2))
    other = enqueue(add(a=1, b=3), fairness="b", priority=5)
    change_priority(low.id, priority=5)
    assert order() == [first.id, other.id, second.id, low.id]
    keys = [row(handle).sort_key for handle in (second, low)]
    assert keys[0] < keys[1]
    change_priority(low.id, priority=5)  # it stays where it is
    assert row(low).sort_key == keys[1]


def test_a_scheduled_work_with_a_label_gets_its_turn_when_it_becomes_pending():
    first = enqueue(add(a=1, b=1), fairness="a", queue="mail")
    later = enqueue(add(a=1, b=2), fairness="a", delay=5)
    change_queue(later.id, queue="mail")
    trigger(later.id)
    assert order() == [first.id, later.id]


# --- cancelling -----------------------------------------------------------------------------------------


@work(name="t.group.root")
def root(ctx: Context) -> Any:
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)]).next([add(a=3, b=3)], condition="all-done")


@work(name="t.group.nested")
def nested(ctx: Context) -> Any:
    works = [add(a=1, b=n) for n in range(5)]
    inner = dependency(on=works, queue=[add(a=5, b=5)], condition="all-done")
    return ctx.queue([*works, inner, dependency(on=[inner], queue=[add(a=6, b=6)], condition="all-done")])


@work(name="t.group.behind")
def behind(ctx: Context, id: str) -> Any:
    """Two works, and a gate over a work of another group."""
    return ctx.queue([add(a=1, b=1), add(a=2, b=2), dependency(on=[id], queue=[add(a=3, b=3)])])


def statuses(group: str) -> list[str]:
    return list(Work.objects.filter(group_id=group).order_by("id").values_list("status", flat=True))


def together(number: int) -> list[Any]:
    return enqueue_many([add(a=1, b=n) for n in range(number)], together=True)


def test_waiting_works_end_at_once_and_never_run_and_one_that_has_ended_is_left_alone(events):
    ended = enqueue(add(a=1, b=2))
    drain()
    for options in ({}, {"delay": 60}):
        handle = enqueue(add(a=1, b=2), **options)
        assert cancel(handle.id) == handle
        assert (handle.state().status, drain().ran) == ("cancelled", 0)
        with pytest.raises(errors.WorkCancelled):
            handle.result()
        assert [event.kind for event in events if event.id == handle.id][-1] == "cancelled"
    with pytest.raises(errors.AlreadyCompleted, match=f"{ended.id} .* has ended already: it is success"):
        cancel(ended.id)
    assert ended.result() == 3
    with pytest.raises(errors.WorkNotFound, match="'nobody'"):
        cancel("nobody")


def test_a_cancelled_gate_queues_nothing_and_what_follows_it_closes():
    handle = enqueue(root())
    drain(limit=1)
    cancel(Work.objects.get(type="@work/dependency").id)
    drain()
    assert_not_enqueued(add, a=3)
    group = Group.objects.get(id=handle.group_id)
    assert (group.open, group.dead) == (0, 0)


@pytest.mark.parametrize("end", [cancel, delete_chains])
def test_a_work_that_a_gate_will_never_queue_counts_as_cancelled(end):
    never = add(a=3, b=4)
    gate = enqueue(dependency(["absent"], [never]))
    watcher = enqueue(dependency([never], [], "all-done"))
    end(gate.id)
    assert watcher.state().status == "success"


# --- groups ---------------------------------------------------------------------------------------------


def fanned_out() -> Any:
    """A group: its root has ended, two members and the gate over them have not."""
    handle = enqueue(root())
    drain(limit=1)
    assert sorted(statuses(handle.id)) == ["blocked", "pending", "pending", "success"]
    return handle


#: Ways to cancel a whole group, given a handle of its first work.
CANCELS = {
    "group": lambda handle: cancel(group=handle.id),
    "group of a handle": lambda handle: cancel(group=handle),
    "handle": lambda handle: handle.cancel(),
    "another handle": lambda handle: get_handle(handle.id).cancel(),
    "acancel": lambda handle: async_to_sync(acancel)(group=handle.id),
    "handle.acancel": lambda handle: async_to_sync(handle.acancel)(),
}


@pytest.mark.parametrize(
    "cancel_it",
    [
        pytest.param(cancel, id=way, marks=[] if way == "group" else on_sqlite)
        for way, cancel in CANCELS.items()
    ],
)
def test_all_works_of_a_group_that_have_not_ended_are_cancelled_and_no_others(cancel_it):
    handle, other = fanned_out(), enqueue(add(a=1, b=1), delay=60)
    live = set(Work.objects.filter(group_id=handle.id).exclude(status="success").values_list("id", flat=True))
    assert set(cancel_it(handle)) == live
    assert sorted(statuses(handle.id)) == ["cancelled", "cancelled", "cancelled", "success"]
    assert drain().ran == 0
    assert handle.group() is None
    assert other.state().status == "scheduled"
    assert cancel(group=other.id) == [other.id], "a work that is alone is a group"
    assert other.cancel() == []


def test_the_handle_of_a_member_cancels_the_member_and_a_group_its_running_works_too():
    first, second, third = handles = together(3)
    assert second.cancel() == [second.id]
    assert [handle.state().status for handle in handles] == ["pending", "cancelled", "pending"]
    claim_all()
    assert set(first.cancel()) == {third.id, first.id}
    assert {handle.state().status for handle in handles} == {"cancelled"}
    assert second.cancel() == []


@pytest.mark.parametrize("page", [1, 100])
def test_each_page_is_a_transaction_and_no_gate_opens_between_them(monkeypatch, page):
    monkeypatch.setattr(termination, "PAGE", page)
    handle = enqueue(nested())
    drain(limit=1)
    with CaptureQueriesContext(connection) as queries:
        cancelled = cancel(group=handle)
    assert (len(cancelled), Work.objects.count()) == (7, 8), "a gate has opened"
    ends = [query["sql"] for query in queries if query["sql"].startswith("RELEASE SAVEPOINT")]
    assert len(ends) >= -(-7 // page)


@on_sqlite
def test_what_is_no_group_is_refused_and_the_message_says_which_is():
    first, second = together(2)
    with pytest.raises(errors.WorkNotFound) as raised:
        cancel(group=second.id)
    assert str(raised.value) == (
        f"expected the id of a group, got {second.id!r}, which is a work of the group {first.id!r}; nothing "
        f"was cancelled. Give group={first.id!r} for all works of that group."
    )
    for call, done in ((cancel, "cancelled"), (retry, "retried")):
        with pytest.raises(
            errors.WorkNotFound, match=f"no group has the id 'nowhere', so nothing was {done}"
        ):
            call(group="nowhere")
        for arguments, got in (({}, "neither"), ({"id": "a", "group": "b"}, "both")):
            with pytest.raises(TypeError, match=rf"expected either {call.__name__}\(id\) or .* got {got}"):
                call(**arguments)
    with pytest.raises(errors.WorkNotFound, match="'nowhere'"):
        get_handle("nowhere").cancel()
    with pytest.raises(TypeError, match="without input and again="):
        retry(group="a", again=True)


def test_a_work_that_is_cancelled_before_it_is_tried_again_keeps_its_last_error():
    handle = enqueue(fail(), retry=Retry(attempts=2, base=60))
    drain(raises=False)
    handle.cancel()
    assert (handle.state().status, handle.state().last_error) == ("cancelled", "RuntimeError: no luck")


def test_a_group_whose_first_work_is_gone_is_a_group_still():
    first, _ = together(2)
    drain()
    delete_chains(first)
    assert (cancel(group=first.id), retry(group=first.id)) == ([], [])


@pytest.mark.parametrize("retry_it", [retry, async_to_sync(aretry)], ids=["retry", "aretry"])
def test_a_cancelled_group_is_retried_whole_and_runs_to_its_end(retry_it):
    handle = fanned_out()
    cancelled = handle.cancel()
    assert sorted(retry_it(group=handle.id)) == sorted(cancelled)
    assert sorted(statuses(handle.id)) == ["blocked", "pending", "pending", "success"]
    assert_consistent()
    drain()
    assert (statuses(handle.id), handle.group()) == (["success"] * 5, 6)


def test_what_is_live_is_left_alone_when_its_group_is_retried():
    dead, waiting = enqueue_many([fail(), add(a=1, b=1)], together=True, retry=ONCE)
    drain(limit=1, raises=False)
    assert [retry(group=dead), retry(group=dead)] == [[dead.id], []]
    assert (dead.state().status, waiting.state().status) == ("pending", "pending")


def test_what_cannot_be_retried_keeps_nothing_else_from_it_and_is_named():
    outside = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    first = enqueue(behind(id=outside.id))
    drain(limit=1)
    gate = Work.objects.get(group_id=first.id, status="dead")
    cancelled = first.cancel()
    with pytest.raises(errors.NotRetryable) as raised:
        retry(group=first)
    assert str(raised.value) == (
        f"expected to retry all dead and cancelled works of the group {first.id}; 2 were, and 1 could not "
        f"be, the first because: the gate {gate.id} still cannot open; retry first the works that it waits "
        f"for: {outside.id}."
    )
    assert list(raised.value.members) == [gate.id]
    assert {get_handle(id).state().status for id in cancelled} == {"pending"}
