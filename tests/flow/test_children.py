"""A handler that queues very many works of several kinds, with gates and a continuation among them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Context, Retry, dependency, enqueue, work
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow import unit_of_work
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.testing import drain
from tests.app.works import add, notify

pytestmark = pytest.mark.django_db(transaction=True)

CHILDREN = 40


@work(name="t.children.own", options=lambda n: {"priority": n % 3, "fairness": f"tenant {n % 2}"})
def own(n: int) -> None: ...


@work(name="t.children.urgent", skip_queue=True)
def urgent(n: int) -> None: ...


@work(name="t.children.later", expires=7200, priority=3)
def later(n: int) -> None: ...


def of_all_kinds() -> list[Any]:
    """Works that need nothing but their rows, between others."""
    kinds = [lambda n: add(a=n, b=0), lambda n: notify(order_id=n), later, urgent, own]
    return [kinds[n % len(kinds)](n) for n in range(CHILDREN)]


@work(name="t.children.parent", retry=Retry(attempts=1))
def parent(ctx: Context) -> Any:
    children = of_all_kinds()
    nested = dependency(children[:2], [add(a=1, b=1)])
    return ctx.queue(
        [
            *children,
            ctx.queue([add(a=2, b=2)], priority=7),
            ctx.queue([add(a=5, b=5)], blockers=children[:2]),
            nested,
            ctx.continue_with(add(a=3, b=3)),
        ]
    ).next([add(a=4, b=4)])


@pytest.fixture
def rechecks(monkeypatch: Any) -> list[bool]:
    """Whether each new waiter is to be rechecked, for others may be ending what it watches."""
    seen: list[bool] = []

    def insert_waiters(waiters: Any, watched: Any) -> None:
        seen.extend(waiter.recheck for waiter in waiters)
        insert(waiters, watched)

    insert = unit_of_work.insert_waiters
    monkeypatch.setattr(unit_of_work, "insert_waiters", insert_waiters)
    return seen


def queued_by(handler: Any) -> Any:
    """Let a handler queue works in its one attempt; return its row."""
    type_ = work(name="t.children.queues", retry=Retry(attempts=1))(handler)
    handle = enqueue(type_())
    drain(limit=1, raises=False)
    return Work.objects.get(id=handle.id)


def children_of(row: Any) -> list[Any]:
    return list(Work.objects.filter(parent_id=row.id).order_by("id"))


def adds() -> list[Any]:
    return [add(a=n, b=0) for n in range(CHILDREN)]


def test_works_of_all_kinds_join_the_group_of_their_parent():
    row = queued_by(parent.handler)
    children = children_of(row)
    assert row.status == "success", row.error
    assert {child.group_id for child in children} == {row.group_id} == {row.id}
    group = Group.objects.get(id=row.id)
    assert (group.total, group.open) == (len(children) + 1, len(children))
    assert Counter(child.type for child in children) == {
        "shop.add": 8 + 3,
        **dict.fromkeys(("shop.notify", "t.children.later", "t.children.urgent", "t.children.own"), 8),
        GATE_TYPE: 2,
    }
    late = [child for child in children if child.type == later.name]
    assert {(child.priority, child.deadline - child.queued_at) for child in late} == {(3, timedelta(hours=2))}
    assert Counter(
        (child.priority, child.fairness) for child in children if child.type == own.name
    ) == Counter((n % 3, f"tenant {n % 2}") for n in range(4, CHILDREN, 5))
    nested, following = Waiter.objects.filter(condition=json.dumps("all-success")).order_by("-total")[:2]
    assert not nested.recheck and not following.recheck


def test_one_that_is_queued_twice_is_queued_once():
    children = adds()
    row = queued_by(lambda ctx: ctx.queue([*children, *children]))
    assert len(children_of(row)) == CHILDREN
    assert Group.objects.get(id=row.id).open == CHILDREN


def test_one_that_exists_already_stays_as_it_is_and_is_watched(rechecks, queued):
    known = add(a=40, b=2)
    enqueue(known, priority=-1)
    row = queued_by(lambda ctx: ctx.queue([*adds(), known]).next([notify(order_id=1)]))
    assert len(children_of(row)) == CHILDREN + 1, "the gate among them"
    assert Group.objects.get(id=row.id).open == CHILDREN + 1
    assert Work.objects.get(id=known.id).group_id is None
    assert rechecks == [True], "another process may be ending that one"
    assert Edge.objects.count() == CHILDREN + 1
    assert sorted(queued) == sorted([known.id, row.id, *(child.id for child in children_of(row))])
    drain()
    assert Work.objects.get(type="shop.notify").status == "success"


def test_a_gate_over_nothing_but_them_needs_no_recheck(rechecks):
    queued_by(lambda ctx: ctx.queue(adds()).next([notify(order_id=1)]))
    assert rechecks == [False]
    assert list(Edge.objects.order_by("position").values_list("position", flat=True)) == list(range(CHILDREN))
    drain()
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}
