"""Queueing many works: all or none, each its own group or all together."""

from __future__ import annotations

import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, NotEncodable, aenqueue_many, dependency, enqueue, enqueue_many, work
from django_ayework.models import Group, Work
from django_ayework.store.insert import PIECE
from django_ayework.testing import drain
from tests.app.models import Order
from tests.app.works import add, notify

pytestmark = pytest.mark.django_db

MANY = PIECE + 103


@work(name="t.many.branch")
def branch(ctx: Context, n: int):
    return ctx.queue([add(a=n, b=0)])


class Secret:
    """What no message may speak of."""


@work(name="t.fast.secret", redact=["card"])
def charge(card: Any) -> None: ...


@work(name="t.fast.spread")
def spread(ctx: Context, count: int) -> Any:
    return ctx.queue([add(a=n, b=0) for n in range(count)]).next(add(a=0, b=0))


@work(name="t.fast.own", options=lambda n: {"priority": n % 3} if n % 2 else {})
def own(n: int) -> None: ...


def verbs(queries: CaptureQueriesContext) -> list[str]:
    """What the statements do that are not about transactions; one that is run for many rows counts once."""
    words = (re.sub(r"^\d+ times: ", "", query["sql"]).split()[0] for query in queries)
    return [word for word in words if word not in ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")]


@pytest.mark.django_db(transaction=True)
def test_many_works_cost_few_statements(database_vendor):
    with CaptureQueriesContext(connection) as queries:
        enqueue_many([add(a=n, b=0) for n in range(MANY)])
    assert verbs(queries) == (["COPY"] if database_vendor == "postgresql" else ["INSERT", "INSERT"])
    assert Work.objects.count() == MANY
    with CaptureQueriesContext(connection) as queries:
        assert enqueue_many([]) == enqueue_many([], together=True) == []
    assert len(queries) == 0


@pytest.mark.django_db(transaction=True)
def test_children_and_their_gate_are_inserted_as_quickly(database_vendor):
    enqueue(spread(count=100))
    with CaptureQueriesContext(connection) as queries:
        drain(limit=1)
    table = connection.ops.quote_name(Work._meta.db_table)
    new_works = [sql for query in queries if (sql := query["sql"]).find(table) > 0 and "UPDATE" not in sql]
    inserts = [sql for sql in new_works if "INSERT INTO" in sql or "COPY" in sql]
    assert len(inserts) == 1, "one for the children and the gate"
    assert ("COPY" in inserts[0]) is (database_vendor == "postgresql")
    assert Work.objects.count() == 102


def test_handles_come_in_the_order_given_and_each_work_is_a_group():
    requests = [add(a=n, b=0) for n in range(30)]
    handles = enqueue_many(reversed(requests))
    ids = [request.id for request in reversed(requests)]
    assert [handle.id for handle in handles] == [handle.group_id for handle in handles] == ids
    assert [row.id for row in Work.objects.order_by("run_at", "id")] == sorted(ids)
    assert not any(handle.deduplicated for handle in handles)
    assert Group.objects.count() == 0
    drain()
    assert [handle.group(timeout=0) for handle in handles] == [*reversed(range(30))]


def test_works_of_several_types_go_together_with_options_for_each():
    kinds = [lambda n: notify(order_id=n), lambda n: add(a=n, b=0), lambda n: own(n=n)]
    handles = enqueue_many([kinds[n % 3](n) for n in range(MANY)], queue="slow", delay=60)
    stored = {row.id: row for row in Work.objects.all()}
    first = [stored[handle.id] for handle in handles[:6]]
    assert [(row.type, row.priority) for row in first] == [
        ("shop.notify", 0),
        ("shop.add", 0),
        ("t.fast.own", 0),
        ("shop.notify", 0),
        ("shop.add", 0),
        ("t.fast.own", 2),
    ]
    assert first[3].input == '{"order_id":3}'
    assert {(row.queue, row.status) for row in stored.values()} == {("slow", "scheduled")}
    assert len({row.run_at for row in stored.values()}) == 1


@pytest.mark.parametrize("count", [1, MANY])
def test_nothing_is_queued_when_one_cannot_be_and_the_bad_one_is_named(count):
    works, more = [add(a=n, b=0) for n in range(count)], [add(a=0, b=0)] * (count > 1)
    with transaction.atomic():
        with pytest.raises(
            NotEncodable, match=r"the input of 'shop.add' cannot be stored: .* at input\['b'\]"
        ):
            enqueue_many([*works, add(a=0, b=object()), *more])
        with pytest.raises(TypeError, match="expected"):
            enqueue_many([*works, "shop.add"])
        with pytest.raises(TypeError, match=r"enqueue_many\(\) takes no id="):
            enqueue_many(works, id="one")
        Order.objects.create(reference="after")
        enqueue(add(a=1, b=2))
    assert Work.objects.count() == Order.objects.count() == 1


def test_a_bad_input_among_many_shows_no_secret():
    works = [charge(card="4111") for _ in range(MANY)]
    with pytest.raises(NotEncodable) as raised:
        enqueue_many([*works, charge(card={"number": Secret()}), charge(card="4111")])
    assert str(raised.value).endswith("cannot be stored: •••• at input['card']['number']")


def test_a_request_twice_in_the_list_is_one_work():
    request = add(a=1, b=2)
    handles = enqueue_many([request, add(a=3, b=4), request])
    assert [handle.deduplicated for handle in handles] == [False, False, True]
    assert handles[0] == handles[2]
    assert Work.objects.count() == 2


@pytest.mark.parametrize("count", [5, MANY])
def test_works_that_exist_stay_as_they_are_and_the_rest_is_queued(count):
    works = [add(a=n, b=0) for n in range(count)]
    enqueue_many(works[:3], together=True)
    with transaction.atomic():
        handles = enqueue_many([*reversed(works)], priority=5)
        Order.objects.create(reference="after")
    handles.reverse()
    assert [handle.deduplicated for handle in handles] == [True] * 3 + [False] * (count - 3)
    assert [handle.group_id for handle in handles[:4]] == [works[0].id] * 3 + [works[3].id]
    priorities = dict(Work.objects.values_list("id", "priority"))
    assert [priorities[request.id] for request in works] == [0] * 3 + [5] * (count - 3)
    assert Order.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_receivers_are_called_for_each_of_many(queued):
    handles = enqueue_many([add(a=n, b=0) for n in range(MANY)])
    assert queued == [handle.id for handle in handles]


@pytest.mark.parametrize("together", [False, True])
def test_many_works_and_a_gate_go_together(together):
    works = [add(a=n, b=0) for n in range(30)]
    handles = enqueue_many([*works, dependency(works, [add(a=5, b=5)])], together=together)
    drain()
    assert Work.objects.filter(status="success").count() == 32
    assert handles[-1].group(timeout=0) == 10


# --- together -------------------------------------------------------------------------------------------


def test_together_makes_one_group_that_is_done_when_all_have_ended():
    handles = enqueue_many([add(a=1, b=0), add(a=2, b=0), add(a=3, b=0)], together=True)
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


def test_a_single_work_together_is_a_plain_work():
    enqueue_many([add(a=1, b=0)], together=True)
    assert Group.objects.count() == 0
    assert Work.objects.get().group_id is None


def test_a_group_forms_without_the_works_that_were_queued_before():
    known = branch(n=9)
    alone = enqueue(known)
    fresh = [add(a=1, b=0), add(a=2, b=0)]
    handles = enqueue_many([known, *fresh], together=True)
    assert [handle.deduplicated for handle in handles] == [True, False, False]
    assert handles[1].group_id == handles[2].group_id != known.id
    drain()
    assert alone.group(timeout=0) == 9
    assert handles[1].group(timeout=0) == 2


def test_the_async_twin_queues_the_same():
    handles = async_to_sync(aenqueue_many)([add(a=1, b=0), add(a=2, b=0)], together=True, priority=3)
    assert {handle.group_id for handle in handles} == {handles[0].id}
    assert set(Work.objects.values_list("priority", flat=True)) == {3}
