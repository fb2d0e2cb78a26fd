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
from django_ayework.signals import work_queued
from tests.app.works import add, notify
from tests.flow.conftest import Configure

pytestmark = pytest.mark.django_db(transaction=True)

CHILDREN = 120


@work(name="t.children.own", options=lambda n: {"priority": n % 3, "fairness": f"tenant {n % 2}"})
def own(n: int) -> None: ...


@work(name="t.children.urgent", skip_queue=True)
def urgent(n: int) -> None: ...


@work(name="t.children.later", expires=7200, priority=3)
def later(n: int) -> None: ...


def of_all_kinds() -> list[Any]:
    """Works that need nothing but their rows, between others."""
    kinds = [
        lambda n: add(a=n, b=0),
        lambda n: notify(order_id=n),
        lambda n: later(n=n),
        lambda n: urgent(n=n),
        lambda n: own(n=n),
    ]
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
def looks(monkeypatch: Any) -> list[bool]:
    """Whether each new waiter is to be looked at again, for others may be ending what it watches."""
    seen: list[bool] = []

    def insert_waiters(waiters: Any, watched: Any) -> None:
        seen.extend(waiter.recheck for waiter in waiters)
        insert(waiters, watched)

    insert = unit_of_work.insert_waiters
    monkeypatch.setattr(unit_of_work, "insert_waiters", insert_waiters)
    return seen


def queued_by(request: Any, drain: Any) -> Any:
    """Let a handler queue what it does; return its row."""
    handle = enqueue(request)
    drain(limit=1, raises=False)
    return Work.objects.get(id=handle.id)


def children_of(row: Any) -> list[Any]:
    return list(Work.objects.filter(parent_id=row.id).order_by("id"))


def test_works_of_all_kinds_join_the_group_of_their_parent(drain: Any) -> None:
    row = queued_by(parent(), drain)
    children = children_of(row)
    assert row.status == "success", row.error
    assert {child.group_id for child in children} == {row.group_id} == {row.id}
    group = Group.objects.get(id=row.id)
    assert (group.total, group.open) == (len(children) + 1, len(children))
    assert Counter(child.type for child in children) == {
        "shop.add": 24 + 3,
        "shop.notify": 24,
        "t.children.later": 24,
        "t.children.urgent": 24,
        "t.children.own": 24,
        GATE_TYPE: 2,
    }
    later, own = (
        [child for child in children if child.type == f"t.children.{name}"] for name in ("later", "own")
    )
    assert {(child.priority, child.deadline - child.queued_at) for child in later} == {
        (3, timedelta(hours=2))
    }
    assert Counter((child.priority, child.fairness) for child in own) == Counter(
        (n % 3, f"tenant {n % 2}") for n in range(4, CHILDREN, 5)
    )
    nested, following = Waiter.objects.filter(condition=json.dumps("all-success")).order_by("-total")[:2]
    assert not nested.recheck and not following.recheck


@work(name="t.children.twins")
def twins(ctx: Context) -> Any:
    children = [add(a=n, b=0) for n in range(CHILDREN)]
    return ctx.queue([*children, *children])


def test_one_that_is_queued_twice_is_queued_once(drain: Any) -> None:
    row = queued_by(twins(), drain)
    assert len(children_of(row)) == CHILDREN
    assert Group.objects.get(id=row.id).open == CHILDREN


def test_one_that_is_there_already_stays_as_it_is_and_is_watched(drain: Any, looks: list[bool]) -> None:
    known = add(a=40, b=2)

    @work(name="t.children.again")
    def again(ctx: Context) -> Any:
        return ctx.queue([*(add(a=n, b=0) for n in range(CHILDREN)), known]).next([notify(order_id=1)])

    enqueue(known, priority=-1)
    row = queued_by(again(), drain)
    assert len(children_of(row)) == CHILDREN + 1, "the gate among them"
    assert Group.objects.get(id=row.id).open == CHILDREN + 1
    assert Work.objects.get(id=known.id).group_id is None
    assert looks == [True], "somebody else may be ending that one"
    assert Edge.objects.count() == CHILDREN + 1
    drain()
    assert Work.objects.get(type="shop.notify").status == "success"


def test_a_gate_over_nothing_but_them_needs_no_second_look(drain: Any, looks: list[bool]) -> None:
    @work(name="t.children.fan_out")
    def fan_out(ctx: Context) -> Any:
        return ctx.queue([add(a=n, b=0) for n in range(CHILDREN)]).next([notify(order_id=1)])

    queued_by(fan_out(), drain)
    assert looks == [False]
    assert list(Edge.objects.order_by("position").values_list("position", flat=True)) == list(range(CHILDREN))
    drain()
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}


def test_one_that_cannot_be_stored_fails_the_attempt_and_none_is_queued(
    drain: Any, configure: Configure
) -> None:
    asked: list[str] = []
    configure(ON_FAILURE=lambda error, info: asked.append(type(error).__name__))

    @work(name="t.children.bad", retry=Retry(attempts=1))
    def bad(ctx: Context) -> Any:
        return ctx.queue([add(a=object(), b=0), *(add(a=n, b=0) for n in range(CHILDREN))])  # type: ignore[arg-type]

    row = queued_by(bad(), drain)
    assert row.status == "dead"
    assert "the input of 'shop.add' cannot be stored" in row.error
    assert asked == ["NotEncodable"]
    assert Work.objects.count() == 1


def test_who_listens_hears_of_each_new_one(drain: Any) -> None:
    heard: Counter[str] = Counter()

    def receiver(work: Any, **keywords: Any) -> None:
        heard[work.id] += 1

    known = add(a=40, b=2)

    @work(name="t.children.heard")
    def fan_out(ctx: Context) -> Any:
        return ctx.queue([known, *(add(a=n, b=0) for n in range(CHILDREN))])

    enqueue(known, priority=-1)
    work_queued.connect(receiver)
    try:
        row = queued_by(fan_out(), drain)
    finally:
        work_queued.disconnect(receiver)
    assert heard == Counter(dict.fromkeys([row.id, *(child.id for child in children_of(row))], 1))
