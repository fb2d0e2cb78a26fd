"""Claiming: the order of due works, the limits of types, works that are not committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import enqueue, enqueue_many, retry
from django_ayework.models import Work
from django_ayework.store import claims, lanes
from django_ayework.store.database import clock
from django_ayework.store.lanes import Lane, lanes_behind, lanes_of, lanes_with_work
from django_ayework.store.rows import find_row
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add
from tests.races.holding import transaction_elsewhere
from tests.store.plans import entries_read, make_works, plans_of, scans_table

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]
MANY = 300


def pending(label: str, type: str, age: int = 0, **columns) -> None:
    """Make a pending work that has been due for so many seconds."""
    WorkFactory(id=label, type=type, run_at=clock.now() - timedelta(seconds=age), **columns)


def claimed(caps: dict[str, int], limit: int, queue: str = "default") -> list[str]:
    return [row.id for row in claims.claim(queue, caps, limit, "w", *lease())]


def lease():
    now = clock.now()
    return now, now + timedelta(minutes=1)


def test_works_of_several_types_go_by_priority_then_age_whatever_their_type():
    pending("old", "t.b", age=30)
    pending("older", "t.a", age=40)
    pending("new", "t.a", age=10)
    pending("urgent", "t.c", priority=5)
    pending("whenever", "t.c", age=90, priority=-5)
    pending("other type", "t.d", age=60)
    pending("other queue", "t.a", age=60, queue="mail")
    caps = dict.fromkeys(["t.a", "t.b", "t.c", "t.absent"], 9)
    assert claimed(caps, 3) == ["urgent", "older", "old"]
    assert claimed(caps, 3) == ["new", "whenever"]


def test_no_more_of_a_type_are_taken_than_its_cap():
    for number in range(5):
        pending(f"a{number}", "t.a", age=50 - number)
        pending(f"b{number}", "t.b", age=20 - number)
    assert claimed({"t.a": 2, "t.b": 9}, 5) == ["a0", "a1", "b0", "b1", "b2"]
    assert claimed({"t.a": 1}, 5) == ["a2"]
    assert claimed({"t.a": 0, "t.b": 0}, 5) == []
    assert claimed({}, 5) == []
    assert claimed({"t.a": 5}, 0) == []


@pytest.mark.vendors("postgresql", "mysql")
def test_a_claim_of_many_types_takes_as_many_statements_as_one_of_two():
    statements = []
    for types in (["t.a", "t.b"], [f"t.{number:02}" for number in range(20)]):
        for type in types:
            pending(type, type)
        with CaptureQueriesContext(connection) as queries:
            assert claimed(dict.fromkeys(types, 1), len(types)) == types
        statements.append(len(queries))
    assert statements[0] == statements[1]


def test_units_of_a_type_go_by_name_within_a_priority():
    for unit, priority in (("b", 0), ("c", 0), ("a", 0), ("z", 1)):
        pending(unit, "t.a", unit=unit, sort_key=unit, priority=priority)
    assert claimed({"t.a": 2}, 2) == ["z", "a"]
    assert claimed({"t.a": 9}, 9) == ["b", "c"]


def test_a_claimed_work_is_running_and_leased():
    pending("w1", "t.a", attempt=1, delivery=3)
    assert claimed({"t.a": 1, "t.b": 1}, 1) == ["w1"]
    row = Work.objects.get(id="w1")
    assert (row.status, row.attempt, row.delivery, row.worker) == ("running", 2, 4, "w")
    assert row.leased_until is not None


@pytest.mark.parametrize("caps", [{"t.again": 1}, {"t.again": 1, "t.a": 1}], ids=["a lane", "lanes"])
@pytest.mark.parametrize(("end", "reason"), [("cancelled", ""), ("dead", "error")])
def test_a_claim_of_a_work_that_starts_over_gives_its_row_as_it_is_stored(end, reason, caps):
    ended = {"status": end, "error": "x", "reason": reason, "ended_at": clock.now(), "completed_by": "w0"}
    WorkFactory(id="again", type="t.again", progress='{"a":1}', attempt=3, **ended)
    retry("again")
    (row,) = claims.claim("default", caps, 1, "w", *lease())
    assert row == find_row("again")
    assert (row.result, row.ended_at, row.completed_by, row.attempt) == (None, None, None, 1)


def test_lanes_are_the_types_of_each_queue():
    for queue, type in (("mail", "t.b"), ("default", "t.a"), ("mail", "t.a"), ("mail", "t.b")):
        WorkFactory(queue=queue, type=type)
    WorkFactory(queue="done", status="success")
    every = [Lane("default", "t.a"), Lane("mail", "t.a"), Lane("mail", "t.b")]
    assert list(lanes_with_work()) == every
    assert lanes_of(["mail", "done", "nobody", "mail"]) == every[1:]
    assert lanes_behind("", 1) == every[:1]
    assert lanes_behind("default", 1) == lanes_behind("default", 9) == every[1:]
    assert lanes_behind("mail", 9) == []


@pytest.mark.parametrize("number", [1, 3, 7])
def test_lanes_are_found_a_few_whole_queues_at_a_time(number, monkeypatch):
    monkeypatch.setattr(lanes, "QUEUES", number)
    every = sorted(Lane(f"q{place % 7}", f"t.{place % 3}") for place in range(21))
    WorkFactory.create_batch(3, queue="q3", type="t.1")
    for queue, type in every:
        WorkFactory(queue=queue, type=type)
    assert list(lanes_with_work()) == every
    assert lanes_behind("q1", 2) == [lane for lane in every if lane.queue in ("q2", "q3")]


def beside_an_open_transaction(test):
    test = pytest.mark.parametrize("version", ["fast"], indirect=True)(test)
    return pytest.mark.vendors("postgresql", "mysql")(pytest.mark.django_db(transaction=True)(test))


@contextmanager
def queued_and_not_committed() -> Iterator[list[str]]:
    """Queue many works in a transaction of another thread, which commits at the end of the block."""
    ids: list[str] = []
    requests = [add(a=1, b=2) for _ in range(MANY)]
    with transaction_elsewhere(lambda: ids.extend(handle.id for handle in enqueue_many(requests))):
        yield ids


def queued(**options: object) -> str:
    return enqueue(add(a=1, b=2), **options).id


def claimed_of(limit: int = 8, *types: str) -> list[str]:
    return claimed(dict.fromkeys(types or (add.name,), limit), limit)


@beside_an_open_transaction
@pytest.mark.parametrize("types", [(), (add.name, "shop.other")], ids=["a lane", "lanes"])
def test_works_behind_uncommitted_ones_are_claimed_and_those_after_the_commit(types):
    with queued_and_not_committed() as ids:
        for _ in range(3):
            behind = [queued(), queued()]
            assert claimed_of(8, *types) == behind
        assert claimed_of(8, *types) == []
        last = queued()
    assert claimed_of(8, *types) == sorted(ids)[:8]
    assert claimed_of(MANY, *types) == [*sorted(ids)[8:], last]


@beside_an_open_transaction
def test_more_urgent_works_go_first_and_none_of_them_is_passed_over():
    with queued_and_not_committed():
        behind = [queued() for _ in range(9)]
        assert claimed_of(2) == behind[:2]
        urgent = [queued(priority=5) for _ in range(3)]
        assert claimed_of(5) == [*urgent, *behind[2:4]]


def test_delivered_works_are_found_by_their_ids():
    if connection.vendor == "postgresql":  # as in the sessions of workers
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
    ids = [work.id for work in make_works(400)[:20]]
    given = (ids, ["default"], ["shop.add"], "w", clock.now(), clock.now())
    claimed = []
    if connection.vendor == "mysql":
        assert entries_read(lambda: claimed.extend(claims.claim_delivered(*given))) < 200
    else:
        plans = plans_of(lambda: claimed.extend(claims.claim_delivered(*given)))
        assert not any(scans_table(plan) or "ayework_lane" in plan for plan in plans), plans
    assert sorted(row.id for row in claimed) == sorted(ids)
