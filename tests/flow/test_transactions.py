"""A work is queued in the caller's transaction, or after its commit: it shares its fate."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.models.signals import post_save

from django_ayework import Dedup, cancel, dependency, enqueue, enqueue_many, pause, resume, retry, trigger
from django_ayework.api import complete, delete_chains, enqueue_on, limit
from django_ayework.errors import (
    ChainNotFound,
    InvalidOption,
    InvalidWorkId,
    NotEncodable,
    NotEnqueued,
    WorkNotFound,
)
from django_ayework.models import Group, Work, WorkControl
from django_ayework.testing import drain, running_worker, time_travel
from tests.app.models import Order
from tests.app.works import add, pay
from tests.flow.kit import Oops
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_rollback_takes_the_work_with_it_and_one_of_a_savepoint_only_its_own(queued, events):
    with pytest.raises(Oops), transaction.atomic():
        order = Order.objects.create(reference="A1")
        handle = enqueue(pay(order_id=order.pk))
        assert handle.state() is not None
        raise Oops
    assert Work.objects.count() == Order.objects.count() == 0
    assert (handle.state(), queued, events) == (None, [], [])
    with pytest.raises(WorkNotFound, match="or was rolled back"):
        handle.result(timeout=0)
    with transaction.atomic():
        kept = enqueue(add(a=1, b=1))
        with pytest.raises(Oops), transaction.atomic():
            lost = enqueue(add(a=2, b=2))
            enqueue_many([add(a=3, b=3), add(a=4, b=4)])
            raise Oops
        assert (lost.state(), queued) == (None, [])
    assert [row.id for row in Work.objects.all()] == queued == [kept.id]


# --- on_commit=True -------------------------------------------------------------------------------------


def test_on_commit_the_work_exists_from_the_commit_on():
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2), on_commit=True, id="later")
        assert (handle.id, handle.state(), Work.objects.count()) == ("later", None, 0)
        with pytest.raises(WorkNotFound, match="its transaction is not committed"):
            handle.result(timeout=0)
    assert handle.state().status == "pending"
    assert enqueue(add(a=1, b=2), on_commit=True).state() is not None, "there is no transaction"
    with pytest.raises(Oops), transaction.atomic():
        enqueue(add(a=1, b=2), on_commit=True)
        enqueue_many([add(a=1, b=2), add(a=3, b=4)], on_commit=True)
        raise Oops
    assert Work.objects.count() == 2


@pytest.fixture
def other_database(monkeypatch, tmp_path):
    """The alias of another database."""
    stored = connections.settings["default"] | {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": tmp_path / "other",
    }
    monkeypatch.setitem(connections.settings, "other", stored | {"OPTIONS": {}})
    connections["other"].connect()
    connections["other"].ensure_connection = lambda: None  # the test case refuses to open one
    yield "other"
    connections["other"].close()
    del connections["other"]


@pytest.mark.parametrize("inner", ["default", "other"])
@pytest.mark.parametrize("rolled_back", ["inner", "outer", "neither"])
def test_on_commit_awaits_the_transactions_of_all_databases(other_database, inner, rolled_back):
    outer = ({"default", other_database} - {inner}).pop()
    with suppress(Oops), transaction.atomic(using=outer):
        with suppress(Oops), transaction.atomic(using=inner):
            enqueue(add(a=1, b=2), on_commit=True)
            if rolled_back == "inner":
                raise Oops
        assert not Work.objects.exists()
        if rolled_back == "outer":
            raise Oops
    assert Work.objects.count() == (rolled_back == "neither")


@pytest.mark.parametrize("count", [1, 20])
def test_an_insert_that_fails_is_reported_and_keeps_no_other_callback_from_running(configure, caplog, count):
    reported: list[Any] = []
    configure(ON_ERROR=lambda error, phase: reported.append((error, phase)))
    requests = [add(a=number, b=0) for number in range(count)]
    after: list[str] = []
    with transaction.atomic():
        if count == 1:
            enqueue(requests[0], on_commit=True, blockers=["unknown"])
        else:
            enqueue_many(requests, on_commit=True, blockers=["unknown"])
        enqueue(add(a=1, b=2), on_commit=True, id="behind")
        transaction.on_commit(lambda: after.append("ran"))
    [(error, phase)] = reported
    assert isinstance(error, NotEnqueued) and isinstance(error.__cause__, ChainNotFound)
    assert (phase, error.id) == ("commit", requests[0].id)
    assert error.works == tuple((request.id, request.type) for request in requests)
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert requests[0].id in record.getMessage() and add.name in record.getMessage()
    assert (after, Work.objects.get().id) == (["ran"], "behind")


@on_sqlite
def test_an_insert_that_a_wrapper_of_statements_cancels_is_reported(reported):
    """CancelledError is no Exception."""

    def cancel(execute, sql, *given):
        if sql.startswith("INSERT"):
            raise CancelledError("by the wrapper")
        return execute(sql, *given)

    after: list[str] = []
    with connection.execute_wrapper(cancel), transaction.atomic():
        handle = enqueue(add(a=1, b=2), on_commit=True)
        transaction.on_commit(lambda: after.append("ran"))
    [(error, phase)] = reported
    assert (handle.id in error, phase, after) == (True, "commit", ["ran"])


@pytest.mark.django_db
def test_drain_runs_what_is_queued_on_commit():
    order = Order.objects.create(reference="A1")
    with transaction.atomic():
        handle = enqueue(pay(order_id=order.pk), on_commit=True, delay=60)
        many = enqueue_many([add(a=1, b=0), add(a=2, b=0)], together=True, on_commit=True)
    assert (handle.state(), Work.objects.count(), Group.objects.count()) == (None, 0, 0)
    assert {one.group_id for one in many} == {many[0].id}
    time_travel(61)
    assert drain().succeeded == 3, "the delay counts from the call"
    order.refresh_from_db()
    assert (order.paid, many[1].group(timeout=0)) == (True, 2)


@on_sqlite
@pytest.mark.parametrize(
    ("request_", "options", "error"),
    [
        (lambda: add(a=object(), b=2), {}, NotEncodable),
        (lambda: add(a=1, b=2), {"id": "two words"}, InvalidWorkId),
        (lambda: add(a=1, b=2), {"id": "order-17"}, InvalidWorkId),
        (lambda: add(a=1, b=2), {"blockers": ["unknown"]}, ChainNotFound),
    ],
    ids=["input", "id", "id that exists", "blocker, without a transaction"],
)
def test_what_is_wrong_with_a_work_for_the_commit_is_raised_at_once(request_, options, error):
    enqueue(add(a=1, b=2), id="order-17")
    with nullcontext() if error is ChainNotFound else transaction.atomic(), pytest.raises(error):
        enqueue(request_(), on_commit=True, **options)
    assert Work.objects.count() == 1


# --- enqueue_on -----------------------------------------------------------------------------------------


def test_a_saved_order_queues_its_work_in_the_signals_transaction_until_it_is_disconnected():
    given: list[Any] = []

    def pay_new(instance: Order, created: bool, **keywords: Any) -> Any:
        given.append((keywords["sender"], keywords["raw"]))
        return pay(order_id=instance.pk) if created else None

    for _ in range(2):  # it connects once
        disconnect = enqueue_on(post_save, sender=Order, make_work=pay_new, dispatch_uid="t.pay")
    with pytest.raises(Oops), transaction.atomic():
        Order.objects.create(reference="A1")
        assert Work.objects.count() == 1
        raise Oops
    assert Work.objects.count() == 0
    order = Order.objects.create(reference="A2")
    assert Work.objects.get().type == "shop.pay"
    order.save()  # for which the function returns None
    post_save.send(sender=Work, instance=Order(pk=1), created=True)
    disconnect()
    Order.objects.create(reference="A3")
    assert (Work.objects.count(), given) == (1, [(Order, False)] * 3)
    drain()
    order.refresh_from_db()
    assert order.paid


# --- transactions that callers commit themselves, after set_autocommit(False) ---------------------------


@contextmanager
def manual(end: Callable[[], None] = transaction.commit) -> Iterator[None]:
    """A transaction that is committed or rolled back by hand."""
    transaction.set_autocommit(False)
    try:
        if end is transaction.rollback:
            Order.objects.create(reference="first")  # SQLite begins a transaction by a row only
        yield
        end()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


#: An act is done by itself, and in an ``atomic`` within the manual transaction.
BLOCKS = (nullcontext, transaction.atomic)
#: What inserts works, and how many.
ENQUEUES: dict[str, tuple[Callable[[], object], int]] = {
    "plain": (lambda: enqueue(add(a=1, b=2)), 1),
    "delay": (lambda: enqueue(add(a=1, b=2), delay=60), 1),
    "dedup": (lambda: enqueue(add(a=1, b=2), dedup=Dedup("key")), 1),
    "on_commit": (lambda: enqueue(add(a=1, b=2), on_commit=True), 1),
    "skip_queue": (lambda: enqueue(add(a=1, b=2), skip_queue=True), 1),
    "many": (lambda: enqueue_many([add(a=1, b=2), add(a=2, b=2)]), 2),
    "together": (lambda: enqueue_many([add(a=1, b=2), add(a=2, b=2)], together=True), 2),
    "gate": (lambda: enqueue(dependency([enqueue(add(a=1, b=2))], [add(a=2, b=3)])), 2),
}


@pytest.mark.parametrize(("act", "count"), ENQUEUES.values(), ids=ENQUEUES)
def test_works_are_enqueued_by_a_manual_commit_only(act, count):
    for block in BLOCKS:
        with manual(transaction.rollback), block():
            act()
        assert Work.objects.count() == 0
        with manual(), block():
            act()
        assert Work.objects.count() == count
        Work.objects.all().delete()


#: What changes a work that was there in some state, and the status it then has.
ACTS: list[tuple[str, Callable[[str], object], str | None]] = [
    *(("pending", cancel, "cancelled"), ("pending", complete, "success"), ("dead", retry, "pending")),
    *(("scheduled", trigger, "pending"), ("success", delete_chains, None)),
]


@pytest.mark.parametrize(("before", "act", "after"), ACTS)
def test_acts_are_committed_and_rolled_back_by_hand(before, act, after):
    for block in BLOCKS:
        id = enqueue(add(a=1, b=2)).id
        Work.objects.filter(id=id).update(status=before)
        with manual(transaction.rollback), block():
            act(id)
        assert Work.objects.get(id=id).status == before
        with manual(), block():
            act(id)
        assert Work.objects.filter(id=id).values_list("status", flat=True).first() == after


def test_a_manual_commit_sends_no_notification_and_a_worker_finds_the_works_at_its_poll(queued, configure):
    """Django calls nothing at such a commit."""
    configure(POLL_INTERVAL=0.05)
    with manual():
        pause(queue="mail")
        resume(queue="mail")
        limit(add.name, max_running=1)
    assert WorkControl.objects.count() == 2
    with running_worker():
        for block in BLOCKS:
            with manual():
                with block():
                    handle = enqueue(add(a=1, b=2))
                    enqueue_many([add(a=1, b=2), add(a=2, b=2)])
                assert connection.run_on_commit == []
            assert handle.result(timeout=20) == 3
    assert queued == []
    assert Work.objects.count() == 6


def test_an_on_commit_that_is_no_flag_is_refused():
    with pytest.raises(InvalidOption, match="expected on_commit to be True or False, got: 'no'"):
        enqueue(add(a=1, b=2), on_commit="no")  # type: ignore[arg-type]
    enqueue(add(a=1, b=2), on_commit=None)  # type: ignore[arg-type]
    assert Work.objects.count() == 1
