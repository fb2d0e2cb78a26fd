"""Groups: which works contribute to their values, in which order, and ``UNHANDLED_GROUP``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import OperationalError, transaction

from django_ayework import Context, WorkFailed, dependency, enqueue_many, get_handle, retry, work
from django_ayework.api import enqueue
from django_ayework.errors import WaitInTransaction
from django_ayework.flow import hooks
from django_ayework.models import Group, Work
from django_ayework.rules.codec import CustomType, RichJSON
from django_ayework.signals import group_done
from django_ayework.store import entries
from django_ayework.testing import drain, running_worker
from tests.app.works import add, fail
from tests.flow.kit import ONCE, connected, parent
from tests.marks import on_sqlite
from tests.processes import eventually
from tests.races.rivals import claim_all, succeed
from tests.worker.conftest import Flaky

pytestmark = pytest.mark.django_db


def total(amount: int) -> Any:
    return lambda existing: (existing or 0) + amount


@work(name="t.values.appender")
def appender(ctx: Context, amount: int, final: bool = False):
    return ctx.result(f"own {amount}", append=total(amount), final=final)


@work(name="t.values.said", retry=ONCE)
def said(ctx: Context, what: str):
    if what == "error":
        raise ValueError("not yet")
    return ctx.void() if what == "void" else ctx.result(None if what == "none" else what)


RICH = {"price": Decimal("4.50"), "tags": {"a"}, "pair": (1, None)}


def test_within_one_tree_the_order_of_the_list_counts_however_deep():
    @work(name="t.values.tree")
    def tree(ctx: Context, last: Any):
        folded = ctx.result(None, append=total(10))
        last = [ctx.result(value) for value in last]
        return ctx.queue([ctx.result(1), ctx.queue([ctx.result(2), [folded]]), ctx.void(), *last])

    folded, rich = enqueue(tree(last=[])), enqueue(tree(last=[RICH]))
    drain()
    assert (folded.group(timeout=0), rich.group(timeout=0)) == (12, RICH)


#: The members of a group, and its value when they have ended in this order.
MEMBERS: dict[str, tuple[Any, Any]] = {
    "appends fold": (lambda: [appender(amount=n) for n in (1, 2, 3)], 6),
    "a final append locks": (lambda: [appender(amount=3, final=True), appender(amount=4), add(a=9, b=9)], 3),
    "void contributes nothing": (lambda: [add(a=1, b=2), said(what="void")], 3),
    "none is a contribution": (lambda: [add(a=1, b=2), said(what="none")], None),
    "the dead contribute nothing": (lambda: [add(a=1, b=2), fail()], 3),
    "only the dead": (lambda: [fail(), fail()], None),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_the_value_of_a_group(name):
    requests, expected = MEMBERS[name][0](), MEMBERS[name][1]
    handles = enqueue_many(requests, together=True, retry=ONCE)
    drain(raises=False)
    assert {handle.group(timeout=0) for handle in handles} == {expected}
    group, types = Group.objects.get(), [request.type for request in requests]
    assert (group.open, group.total, group.dead) == (0, len(types), types.count("shop.fail"))
    assert group.final is (name == "a final append locks")
    if name == "none is a contribution":
        assert group.value == "null"
    if name == "appends fold":
        assert [handle.result(timeout=0) for handle in handles] == ["own 1", "own 2", "own 3"]


def test_the_last_to_finish_wins():
    handles = enqueue_many([add(a=1, b=0), add(a=2, b=0), add(a=3, b=0)], together=True)
    Work.objects.filter(id=handles[0].id).update(priority=-1)
    drain()
    assert handles[0].group(timeout=0) == 1


def test_a_work_alone_is_its_own_group_and_has_a_row_once_it_appends():
    handle, dead = enqueue(add(a=1, b=2)), enqueue(fail(message="no luck"), retry=ONCE)
    drain(raises=False)
    assert handle.group(timeout=0) == handle.result(timeout=0) == 3
    assert dead.group(timeout=0) is None
    with pytest.raises(WorkFailed, match="RuntimeError: no luck") as raised:
        dead.result(timeout=0)
    assert (raised.value.id, Group.objects.count()) == (dead.id, 0)
    handle = enqueue(appender(amount=5))
    drain()
    assert (handle.result(timeout=0), handle.group(timeout=0)) == ("own 5", 5)
    group = Group.objects.get()
    assert (group.open, group.total, group.dead, group.done_at is None) == (0, 1, 0, False)


def test_a_retried_member_opens_the_group_again_and_may_change_its_value():
    handles = enqueue_many([said(what="error"), add(a=1, b=2)], together=True)
    drain(raises=False)
    assert handles[0].group(timeout=0) == 3
    retry(handles[0].id, {"what": "at last"})
    group = Group.objects.get()
    assert (group.open, group.dead, group.done_at) == (1, 0, None)
    drain()
    assert handles[1].group(timeout=0) == "at last"
    group.refresh_from_db()
    assert (group.open, group.total, group.dead, group.done_at is None) == (0, 2, 0, False)


@on_sqlite
def test_the_groups_value_is_encoded_by_the_settings_even_where_a_type_has_a_codec():
    class Shouting:
        def encode(self, value: Any) -> str:
            return f"!{value}!" if isinstance(value, int) else "{}"

        def decode(self, text: str) -> Any:
            return int(text.strip("!")) if text.startswith("!") else {}

    @work(name="t.values.own_codec", codec=Shouting())
    def own_codec(ctx: Context):
        return ctx.result(41, append=lambda existing: 42)

    handle = enqueue(own_codec())
    drain()
    assert (Work.objects.get().result, Group.objects.get().value) == ("!41!", "42")
    assert (handle.result(timeout=0), handle.group(timeout=0)) == (41, 42)


def test_members_that_end_together_are_counted_each():
    """Of two groups and of none, in one transaction."""
    for together in (5, 3):
        enqueue_many([add(a=1, b=n) for n in range(together)], together=True)
    enqueue(add(a=3, b=0))
    rows = list(claim_all().values())
    held = {row.group_id: row for row in rows if row.group_id}  # the last of each
    succeed(*(row for row in rows if row not in held.values()))
    assert sorted(Group.objects.values_list("total", "open", "dead")) == [(3, 1, 0), (5, 1, 0)]
    succeed(*held.values())
    assert sorted(Group.objects.values_list("total", "open", "dead")) == [(3, 0, 0), (5, 0, 0)]


# --- UNHANDLED_GROUP ------------------------------------------------------------------------------------


@pytest.fixture
def unhandled(configure) -> list[Any]:
    """The groups that the hook is called with."""
    seen: list[Any] = []
    configure(UNHANDLED_GROUP=seen.append)
    return seen


#: What is queued; and the value, the types of the works and the first status of each group that is reported.
UNHANDLED: dict[str, tuple[Any, Any]] = {
    "parent": (lambda: enqueue(parent()), (4, ["t.flow.parent", "shop.add", "shop.add"], "success")),
    "alone": (lambda: enqueue(add(a=1, b=2)), (3, ["shop.add"], "success")),
    "dead": (
        lambda: enqueue_many([fail(), fail()], together=True, retry=ONCE),
        (None, ["shop.fail", "shop.fail"], "dead"),
    ),
    "dead alone": (lambda: enqueue(fail(), retry=ONCE), (None, ["shop.fail"], "dead")),
    "gate": (
        lambda: enqueue(dependency(["never"], [add(a=1, b=2)], timeout=0)),
        (None, ["@work/dependency"], "dead"),
    ),
}


@on_sqlite
@pytest.mark.parametrize(("act", "expected"), UNHANDLED.values(), ids=UNHANDLED)
def test_a_group_without_waiting_callers_is_reported_once(unhandled, act, expected):
    act()
    for _ in range(2):
        drain(raises=False)
    [group] = unhandled
    assert (group.value, [state.type for state in group.states], group.states[0].status) == expected
    assert group.group_id == group.states[0].id


def test_a_group_is_not_reported_while_it_is_open_nor_when_it_is_done_again(unhandled):
    handles = enqueue_many([add(a=1, b=2), fail()], together=True, retry=ONCE)
    drain(limit=1)
    assert unhandled == []
    for _ in range(2):
        drain(raises=False)
        retry(handles[1].id)
    assert len(unhandled) == 1


@on_sqlite
def test_a_hook_that_raises_is_reported(configure, reported):
    def broken(group: Any) -> None:
        raise LookupError("hook down")

    configure(UNHANDLED_GROUP=broken)
    enqueue(add(a=1, b=2))
    assert drain().succeeded == 1
    assert reported == [("hook down", "hook")]


def wait_for_the_end(id: str) -> None:
    """Look at the row itself, which is no waiting in the engine's sense."""
    eventually(lambda: Work.objects.get(id=id).ended_at)


#: How a caller waits for a group, given the handles of its first and last work.
WAITS: dict[str, Any] = {
    "result": lambda first, last: first.result(timeout=20),
    "group": lambda first, last: first.group(timeout=20),
    "child, whose handle does not know its group": lambda first, last: get_handle(last.id).group(timeout=20),
    "group after the end": lambda first, last: (wait_for_the_end(last.id), first.group(timeout=20)),
    "group after a refusal": lambda first, last: first.group(timeout=20),
}


@pytest.mark.django_db(transaction=True)
def test_a_running_worker_reports_after_a_grace_the_groups_that_no_caller_waits_for(unhandled):
    @work(name="t.groups.slow")
    def slow(ctx: Context):
        ctx.signal.wait(0.3)
        return ctx.result("slow")

    names = {}
    for name in ("gate", "parent"):
        names[UNHANDLED[name][0]().id] = name
    with running_worker(concurrency=2):
        for name, wait in WAITS.items():
            with transaction.atomic():
                first, last = enqueue_many([add(a=1, b=2), slow()], together=True)
                if name == "group after a refusal":
                    with pytest.raises(WaitInTransaction):
                        first.group()
            names[first.id] = name
            wait(first, last)
            wait_for_the_end(last.id)
        eventually(lambda: len(unhandled) >= 2)
    assert sorted(names[group.group_id] for group in unhandled) == ["gate", "parent"]


@on_sqlite
@pytest.mark.parametrize("broken", [(entries, "is_set"), (hooks, "settled_group")], ids=["before", "after"])
@pytest.mark.django_db(transaction=True)
def test_a_group_is_reported_although_the_database_was_away_for_a_moment(unhandled, monkeypatch, broken):
    monkeypatch.setattr(*broken, Flaky(getattr(*broken), 1, OperationalError("the database went away")))
    handle = enqueue(add(a=1, b=2))
    with running_worker():
        eventually(lambda: unhandled)
    assert [group.group_id for group in unhandled] == [handle.id]


@work(name="t.values.complex")
def turned() -> complex:
    return 1 + 2j


@pytest.mark.django_db(transaction=True)
def test_a_group_whose_value_cannot_be_read_back_is_done_and_receivers_get_its_text(settings):
    def unreadable(parts: Any) -> complex:
        raise ValueError("numbers are not read like that any more")

    kind = CustomType(tag="complex", type=complex, to_plain=lambda c: [c.real, c.imag], from_plain=unreadable)
    settings.AYEWORK = {"CODEC": RichJSON(extra=[kind])}
    given: list[Any] = []

    def receive(value: Any, **more: Any) -> None:
        given.append(value)

    with connected(receive, group_done):
        handles = enqueue_many([turned(), turned()], together=True)
        with running_worker():
            eventually(lambda: given)
    assert [handle.state().attempt for handle in handles] == [1, 1]
    assert given == [Group.objects.get().value] == ['{"$ayework":"complex","value":[1.0,2.0]}']
