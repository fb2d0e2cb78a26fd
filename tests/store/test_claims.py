"""Claiming: the order of due works, the limits of types, works that are not committed. Pages of works."""

from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_ayework import enqueue, enqueue_many, retry
from django_ayework.models import Work
from django_ayework.rules.states import RETRYABLE
from django_ayework.store import claims, lanes, leases, transitions
from django_ayework.store.database import atomic, by_index, clock, run
from django_ayework.store.lanes import Lane, lanes_behind, lanes_of, lanes_with_work
from django_ayework.store.rows import find_row
from django_ayework.store.selection import selection_of
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add
from tests.races.holding import transaction_elsewhere
from tests.store.plans import assert_scans_nothing, entries_read, make_works, plans_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]
MANY = 300


def pending(label: str, type: str, age: int = 0, **columns) -> None:
    """Make a pending work that has been due for so many seconds."""
    WorkFactory(id=label, type=type, run_at=clock.now() - timedelta(seconds=age), **columns)


def claim(caps: dict[str, int], limit: int):
    return claims.claim("default", caps, limit, claims.new_lease("w"))


def claimed(caps: dict[str, int], limit: int) -> list[str]:
    return [row.id for row in claim(caps, limit)]


def test_works_of_several_types_go_by_priority_then_age_and_units_by_name():
    pending("old", "t.b", age=30)
    pending("older", "t.a", age=40)
    pending("newer", "t.a", age=10)
    pending("urgent", "t.c", age=1, priority=5)
    pending("urgent too", "t.c", priority=5)
    pending("whenever", "t.c", age=90, priority=-5)
    pending("other type", "t.d", age=60)
    pending("other queue", "t.a", age=60, queue="mail")
    caps = dict.fromkeys(["t.a", "t.b", "t.c", "t.absent"], 9)
    assert claimed(caps | {"t.a": 1}, 3) == ["urgent", "urgent too", "older"]
    assert claimed(caps, 9) == ["old", "newer", "whenever"]
    for unit, priority in (("b", 0), ("c", 0), ("a", 0), ("z", 1)):
        pending(unit, "t.units", unit=unit, sort_key=unit, priority=priority)
    assert claimed({"t.units": 2}, 2) == ["z", "a"]
    assert claimed({"t.units": 9}, 9) == ["b", "c"]


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


def test_a_claimed_work_is_running_and_leased():
    pending("w1", "t.a", attempt=1, delivery=3)
    assert claimed({"t.a": 1, "t.b": 1}, 1) == ["w1"]
    row = Work.objects.get(id="w1")
    assert (row.status, row.attempt, row.delivery, row.worker) == ("running", 2, 4, "w")
    assert row.leased_until is not None


def test_only_who_holds_a_work_at_a_delivery_renews_begins_and_releases_it():
    held, soon = {"status": "running", "worker": "w", "delivery": 3}, clock.now() + timedelta(hours=1)
    others = {"other worker": {"worker": "v"}, "other delivery": {"delivery": 4}, "ended": {"status": "dead"}}
    for label, columns in {"held": {}, "not asked for": {}, **others}.items():
        WorkFactory(id=label, attempt=1, **held | columns)
    before = list(Work.objects.exclude(id="held").order_by("id").values())
    deliveries = dict.fromkeys(["held", *others], 3)
    assert leases.renew(deliveries, "w", 7200.0) == {"held"}
    assert transitions.begin(deliveries, "w") == {"held"}
    assert leases.begun_among(deliveries) == {"held"}
    assert Work.objects.filter(leased_until__gt=soon).count() == 1
    assert transitions.release(deliveries, "w") == {"held"}
    assert Work.objects.values_list("status", "attempt", "worker").get(id="held") == ("pending", 0, None)
    assert list(Work.objects.exclude(id="held").order_by("id").values()) == before


@pytest.mark.parametrize("caps", [{"t.again": 1}, {"t.again": 1, "t.a": 1}], ids=["a lane", "lanes"])
@pytest.mark.parametrize(("end", "reason"), [("cancelled", ""), ("dead", "error")])
def test_a_claim_of_a_work_that_starts_over_gives_its_row_as_it_is_stored(end, reason, caps):
    ended = {"status": end, "error": "x", "reason": reason, "ended_at": clock.now(), "completed_by": "w0"}
    WorkFactory(id="again", type="t.again", progress='{"a":1}', attempt=3, **ended)
    retry("again")
    (row,) = claim(caps, 1)
    assert row == find_row("again")
    assert (row.result, row.ended_at, row.completed_by, row.attempt) == (None, None, None, 1)


def test_lanes_are_the_types_of_each_queue():
    for queue, type in (("mail", "t.b"), ("default", "t.a"), ("mail", "t.a"), ("mail", "t.b")):
        WorkFactory(queue=queue, type=type)
    WorkFactory(queue="done", status="success")
    every = [Lane("default", "t.a"), Lane("mail", "t.a"), Lane("mail", "t.b")]
    assert list(lanes_with_work()) == every
    assert lanes_of(["mail", "done", "nobody", "mail"]) == every[1:]
    found = [lanes_behind(*behind) for behind in (("", 1), ("default", 1), ("default", 9), ("mail", 9))]
    assert found == [every[:1], every[1:], every[1:], []]


@pytest.mark.parametrize("number", [1, 3, 7])
def test_lanes_are_found_a_few_whole_queues_at_a_time(number, monkeypatch):
    monkeypatch.setattr(lanes, "QUEUES", number)
    every = sorted(Lane(f"q{place % 7}", f"t.{place % 3}") for place in range(21))
    for queue, type in [*every, every[10], every[10]]:
        WorkFactory(queue=queue, type=type)
    assert list(lanes_with_work()) == every
    assert lanes_behind("q1", 2) == [lane for lane in every if lane.queue in ("q2", "q3")]


def claimed_of(limit: int = 8, *types: str) -> list[str]:
    return claimed(dict.fromkeys(types or (add.name,), limit), limit)


def queued(**options: object) -> str:
    return enqueue(add(a=1, b=2), **options).id


@pytest.mark.parametrize("version", ["fast"], indirect=True)
@pytest.mark.vendors("postgresql", "mysql")
@pytest.mark.django_db(transaction=True)
class TestBesideAnOpenTransaction:
    @contextmanager
    def queued_and_not_committed(self):
        """Queue many works in a transaction of another thread, which commits at the end of the block."""
        ids, requests = [], [add(a=1, b=2) for _ in range(MANY)]
        with transaction_elsewhere(lambda: ids.extend(handle.id for handle in enqueue_many(requests))):
            yield ids

    @pytest.mark.parametrize("types", [(), (add.name, "shop.other")], ids=["a lane", "lanes"])
    def test_works_behind_uncommitted_ones_are_claimed_and_those_after_the_commit(self, types):
        with self.queued_and_not_committed() as ids:
            for _ in range(3):
                behind = [queued(), queued()]
                assert claimed_of(8, *types) == behind
            assert claimed_of(8, *types) == []
            last = queued()
        assert claimed_of(8, *types) == sorted(ids)[:8]
        assert claimed_of(MANY, *types) == [*sorted(ids)[8:], last]

    def test_more_urgent_works_go_first_and_none_of_them_is_passed_over(self):
        with self.queued_and_not_committed():
            behind = [queued() for _ in range(9)]
            assert claimed_of(2) == behind[:2]
            urgent = [queued(priority=5) for _ in range(3)]
            assert claimed_of(5) == [*urgent, *behind[2:4]]


def test_delivered_works_are_found_by_their_ids():
    if connection.vendor == "postgresql":  # as in the sessions of workers
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
    ids = [work.id for work in make_works(400)[:20]]
    given = (ids, ["default"], ["shop.add"], claims.new_lease("w"))
    claimed = []
    if connection.vendor == "mysql":
        assert entries_read(lambda: claimed.extend(claims.claim_delivered(*given))) < 200
    else:
        plans = plans_of(lambda: claimed.extend(claims.claim_delivered(*given)))
        assert_scans_nothing(plans)
        assert not any("ayework_lane" in plan for plan in plans), plans
    assert sorted(row.id for row in claimed) == sorted(ids)


def test_pages_go_through_all_works_once_even_of_one_moment():
    now = clock.now()
    for number in range(30):
        WorkFactory(id=f"w{number:02}", status="dead", ended_at=now - timedelta(seconds=number // 10))
    chosen = selection_of({"status": "dead"}, RETRYABLE, now)
    page = chosen.page(None, 7)
    seen = page.ids
    while page.next is not None:
        page = chosen.page(page.next, 7)
        seen = [*seen, *page.ids]
    assert (len(seen), len(set(seen)), seen[0]) == (30, 30, "w20")


@pytest.mark.vendors("postgresql")
def test_a_transaction_that_is_open_keeps_its_own_settings():
    with atomic():
        run("SET LOCAL enable_seqscan = off")
        before = run("SHOW enable_sort"), run("SHOW enable_seqscan")
        with by_index():
            assert run("SHOW enable_sort") == "off"
        assert (run("SHOW enable_sort"), run("SHOW enable_seqscan")) == before == ("on", "off")


@pytest.mark.vendors("mysql")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("caps", [{"t.a": 9}, {"t.a": 9, "t.b": 9}], ids=["one type", "several types"])
def test_a_claim_that_the_server_ends_because_of_a_deadlock_is_tried_again(caps):
    for type in caps:
        pending(type, type, age=1)
    ended = []

    def deadlock(execute, sql, params, many, context):
        if sql.startswith("UPDATE") and not ended:
            ended.append(sql)
            raise OperationalError(1213, "Deadlock found when trying to get lock")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(deadlock):
        assert claimed(caps, 9) == list(caps)
    assert ended
