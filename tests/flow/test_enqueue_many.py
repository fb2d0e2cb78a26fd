"""Queueing many works, by a caller or a handler: all or none, each its own group or all together."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, NotEncodable, aenqueue_many, dependency, enqueue, enqueue_many, work
from django_ayework.flow import unit_of_work
from django_ayework.models import Edge, Group, Work
from django_ayework.store.insert import PIECE
from django_ayework.testing import drain
from tests.app.models import Order
from tests.app.works import add, notify
from tests.flow.kit import ONCE

pytestmark = pytest.mark.django_db
with_commits = pytest.mark.django_db(transaction=True)

MANY = PIECE + 103
CHILDREN = 40


class Secret:
    """What no message may speak of."""


@work(name="t.fast.secret", redact=["card"])
def charge(card: Any) -> None: ...


@work(name="t.fast.own", options=lambda n: {"priority": n % 3, "fairness": "odd"} if n % 2 else {})
def own(n: int) -> None: ...


@work(name="t.children.urgent", skip_queue=True)
def urgent(n: int) -> None: ...


@work(name="t.children.later", expires=7200, priority=3)
def later(n: int) -> None: ...


def adds(count: int) -> list[Any]:
    return [add(a=n, b=0) for n in range(count)]


def verbs(queries: CaptureQueriesContext) -> list[str]:
    """What the statements do that are not about transactions; one that is run for many rows counts once."""
    words = (re.sub(r"^\d+ times: ", "", query["sql"]).split()[0] for query in queries)
    return [word for word in words if word not in ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")]


@with_commits
def test_many_works_cost_few_statements_and_receivers_are_called_for_each(database_vendor, queued):
    with CaptureQueriesContext(connection) as queries:
        handles = enqueue_many(adds(MANY))
    assert verbs(queries) == (["COPY"] if database_vendor == "postgresql" else ["INSERT", "INSERT"])
    assert Work.objects.count() == MANY
    assert queued == [handle.id for handle in handles]
    with CaptureQueriesContext(connection) as queries:
        assert enqueue_many([]) == enqueue_many([], together=True) == []
    assert len(queries) == 0


def test_handles_come_in_the_order_given_and_each_work_is_a_group():
    requests = adds(10)
    handles = enqueue_many(reversed(requests))
    ids = [request.id for request in reversed(requests)]
    assert [handle.id for handle in handles] == [handle.group_id for handle in handles] == ids
    assert [row.id for row in Work.objects.order_by("run_at", "id")] == sorted(ids)
    assert not any(handle.deduplicated for handle in handles)
    assert Group.objects.count() == 0
    drain()
    assert [handle.group(timeout=0) for handle in handles] == [*reversed(range(10))]


def test_works_of_several_types_go_together_with_options_for_each():
    kinds = [lambda n: notify(order_id=n), lambda n: add(a=n, b=0), lambda n: own(n=n)]
    handles = enqueue_many([kinds[n % 3](n) for n in range(MANY)], queue="slow", delay=60)
    stored = {row.id: row for row in Work.objects.all()}
    first = [stored[handle.id] for handle in handles[:6]]
    assert [row.type for row in first] == ["shop.notify", "shop.add", "t.fast.own"] * 2
    assert [row.priority for row in first] == [0, 0, 0, 0, 0, 2]
    assert first[3].input == '{"order_id":3}'
    assert {(row.queue, row.status) for row in stored.values()} == {("slow", "scheduled")}
    assert len({row.run_at for row in stored.values()}) == 1


@pytest.mark.parametrize("count", [1, MANY])
def test_nothing_is_queued_when_one_cannot_be_and_the_bad_one_is_named(count):
    works, more = adds(count), adds(1) * (count > 1)
    refused = pytest.raises(
        NotEncodable, match=r"the input of 'shop.add' cannot be stored: .* at input\['b'\]"
    )
    with transaction.atomic():
        with refused:
            enqueue_many([*works, add(a=0, b=object()), *more])
        with pytest.raises(TypeError, match="expected"):
            enqueue_many([*works, "shop.add"])
        with pytest.raises(TypeError, match=r"enqueue_many\(\) takes no id="):
            enqueue_many(works, id="one")
        with pytest.raises(NotEncodable) as raised:
            enqueue_many([*works, charge(card={"number": Secret()}), charge(card="4111")])
        assert str(raised.value).endswith("cannot be stored: •••• at input['card']['number']")
        Order.objects.create(reference="after")
        enqueue(add(a=1, b=2))
    assert Work.objects.count() == Order.objects.count() == 1


@pytest.mark.parametrize("count", [5, MANY])
def test_works_that_exist_stay_as_they_are_and_the_rest_is_queued_each_once(count):
    works = adds(count)
    enqueue_many(works[:3], together=True)
    with transaction.atomic():
        *handles, again = enqueue_many([*reversed(works), works[4]], priority=5)
        Order.objects.create(reference="after")
    handles.reverse()
    assert (again, again.deduplicated) == (handles[4], True)
    assert [handle.deduplicated for handle in handles] == [True] * 3 + [False] * (count - 3)
    assert [handle.group_id for handle in handles[:4]] == [works[0].id] * 3 + [works[3].id]
    priorities = dict(Work.objects.values_list("id", "priority"))
    assert [priorities[request.id] for request in works] == [0] * 3 + [5] * (count - 3)
    assert Order.objects.count() == 1


@pytest.mark.parametrize("together", [False, True])
def test_many_works_and_a_gate_go_together(together):
    works = adds(8)
    handles = enqueue_many([*works, dependency(works, [add(a=5, b=5)])], together=together)
    drain()
    assert Work.objects.filter(status="success").count() == 10
    assert handles[-1].group(timeout=0) == 10


def test_together_makes_one_group_of_several_that_is_done_when_all_have_ended():
    enqueue_many(adds(1), together=True)
    assert (Group.objects.count(), Work.objects.get().group_id) == (0, None)
    drain()
    handles = async_to_sync(aenqueue_many)([add(a=n, b=0) for n in (1, 2, 3)], together=True, priority=3)
    assert set(Work.objects.exclude(group_id=None).values_list("priority", "group_id")) == {
        (3, handles[0].id)
    }
    assert {handle.group_id for handle in handles} == {handles[0].id}
    drain(limit=2)
    group = Group.objects.get()
    assert (group.id, group.open, group.total, group.done_at) == (handles[0].id, 1, 3, None)
    drain()
    group.refresh_from_db()
    assert (group.open, group.dead) == (0, 0)
    assert group.done_at is not None
    assert {handle.group(timeout=0) for handle in handles} == {3}
    assert [handle.result(timeout=0) for handle in handles] == [1, 2, 3]


def test_a_group_forms_without_the_works_that_were_queued_before():
    @work(name="t.many.branch")
    def branch(ctx: Context, n: int):
        return ctx.queue([add(a=n, b=0)])

    known = branch(n=9)
    alone = enqueue(known)
    handles = enqueue_many([known, add(a=1, b=0), add(a=2, b=0)], together=True)
    assert [handle.deduplicated for handle in handles] == [True, False, False]
    assert handles[1].group_id == handles[2].group_id != known.id
    drain()
    assert (alone.group(timeout=0), handles[1].group(timeout=0)) == (9, 2)


# --- a handler that queues very many --------------------------------------------------------------------


@pytest.fixture
def rechecks(monkeypatch: Any) -> list[bool]:
    """Whether each new waiter is marked for a recheck."""
    seen: list[bool] = []

    def insert_waiters(waiters: Any, watched: Any) -> None:
        seen.extend(waiter.recheck for waiter in waiters)
        insert(waiters, watched)

    insert = unit_of_work.insert_waiters
    monkeypatch.setattr(unit_of_work, "insert_waiters", insert_waiters)
    return seen


def queued_by(handler: Any) -> Any:
    """Let a handler queue works in its one attempt; return its row."""
    handle = enqueue(work(name="t.children.queues", retry=ONCE)(handler)())
    drain(limit=1, raises=False)
    return Work.objects.get(id=handle.id)


def children_of(row: Any) -> list[Any]:
    return list(Work.objects.filter(parent_id=row.id).order_by("id"))


@with_commits
def test_works_of_all_kinds_join_the_group_of_their_parent(rechecks):
    kinds = [lambda n: add(a=n, b=0), lambda n: notify(order_id=n), lambda n: later(n=n)]
    kinds += [lambda n: urgent(n=n), lambda n: own(n=n)]

    def queues(ctx: Context) -> Any:
        children = [kinds[n % len(kinds)](n) for n in range(CHILDREN)]
        others = [ctx.queue([add(a=2, b=2)], priority=7), ctx.queue([add(a=5, b=5)], blockers=children[:2])]
        gate = dependency(children[:2], [add(a=1, b=1)])
        return ctx.queue([*children, *others, gate, ctx.continue_with(add(a=3, b=3))]).next([add(a=4, b=4)])

    row = queued_by(queues)
    children = children_of(row)
    assert row.status == "success", row.error
    assert {child.group_id for child in children} == {row.group_id} == {row.id}
    group = Group.objects.get(id=row.id)
    assert (group.total, group.open) == (len(children) + 1, len(children))
    assert Counter(child.type for child in children) == {
        "shop.add": 8 + 3,
        **dict.fromkeys(("shop.notify", "t.children.later", "t.children.urgent", "t.fast.own"), 8),
        "@work/dependency": 2,
    }
    late = [child for child in children if child.type == later.name]
    assert {(child.priority, child.deadline - child.queued_at) for child in late} == {(3, timedelta(hours=2))}
    numbers = [json.loads(child.input)["n"] for child in children if child.type == own.name]
    assert sorted(numbers) == [*range(4, CHILDREN, 5)]
    assert [(child.priority, child.fairness) for child in children if child.type == own.name] == [
        (n % 3, "odd") if n % 2 else (0, "") for n in numbers
    ]
    assert rechecks == [False] * 3


@with_commits
def test_one_that_exists_already_stays_as_it_is_and_is_watched(rechecks, queued):
    known, children = add(a=40, b=2), adds(CHILDREN)
    enqueue(known, priority=-1)
    row = queued_by(lambda ctx: ctx.queue([*children, *children, known]).next([notify(order_id=1)]))
    assert len(children_of(row)) == CHILDREN + 1, "the gate among them, and each once"
    assert Group.objects.get(id=row.id).open == CHILDREN + 1
    assert Work.objects.get(id=known.id).group_id is None
    assert rechecks == [True], "another process may be ending that one"
    assert Edge.objects.count() == CHILDREN + 1
    assert sorted(queued) == sorted([known.id, row.id, *(child.id for child in children_of(row))])
    drain()
    assert Work.objects.get(type="shop.notify").status == "success"


@with_commits
def test_children_and_their_gate_are_inserted_at_once_and_it_needs_no_recheck(database_vendor, rechecks):
    spread = work(name="t.fast.spread")(lambda ctx: ctx.queue(adds(30)).next(notify(order_id=1)))
    enqueue(spread())
    with CaptureQueriesContext(connection) as queries:
        drain(limit=1)
    table = connection.ops.quote_name(Work._meta.db_table)
    new_works = [sql for query in queries if (sql := query["sql"]).find(table) > 0 and "UPDATE" not in sql]
    inserts = [sql for sql in new_works if "INSERT INTO" in sql or "COPY" in sql]
    assert len(inserts) == 1, "one for the children and the gate"
    assert ("COPY" in inserts[0]) is (database_vendor == "postgresql")
    assert Work.objects.count() == 32
    assert rechecks == [False]
    assert [*Edge.objects.order_by("position").values_list("position", flat=True)] == [*range(30)]
    drain()
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}
