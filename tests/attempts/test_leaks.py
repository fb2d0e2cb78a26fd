"""A handler that leaves a transaction open, or breaks its connection, costs itself only."""

from __future__ import annotations

import gc

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connection, transaction

from django_ayework import Context, Retry, batch_work, enqueue, work
from django_ayework.testing import drain, running_worker
from tests.app.models import Order
from tests.fixtures import consistent  # noqa: F401
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)
ONCE = Retry(attempts=1)
kept = []


@pytest.fixture(autouse=True)
def nothing_kept():
    yield
    for one in kept:
        with pytest.raises(Exception, match="closed by django_ayework"):
            one.close()
    kept.clear()


def pages():
    with transaction.atomic():
        Order.objects.create(reference="leaked")
        yield


def leaked_transaction() -> None:
    kept.append(pages())
    next(kept[-1])


def leaked_savepoint() -> None:
    leaked_transaction()
    leaked_transaction()


def autocommit_off() -> None:
    transaction.set_autocommit(False)
    Order.objects.create(reference="leaked")


def entered_by_hand() -> None:
    transaction.atomic().__enter__()
    Order.objects.create(reference="leaked")
    transaction.set_rollback(True)


def begun_by_sql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Order.objects.create(reference="leaked")


def closed_inside() -> None:
    kept_open = transaction.atomic()
    kept_open.__enter__()
    Order.objects.create(reference="leaked")
    connection.close()


def failed_inside() -> None:
    leaked_transaction()
    with pytest.raises(IntegrityError), transaction.atomic(savepoint=False):
        Order.objects.create(pk=Order.objects.first().pk)


LEAKS = (
    leaked_transaction, leaked_savepoint, autocommit_off, entered_by_hand, closed_inside, failed_inside,
    pytest.param(begun_by_sql, marks=pytest.mark.vendors("postgresql", "sqlite")),
)  # fmt: skip
each_leak = pytest.mark.parametrize("leak", LEAKS)


def plain(leak):
    return work(name="t.leaky", retry=ONCE)(lambda: leak())


def with_context(leak):
    def handler(ctx: Context):
        leak()

    return work(name="t.leaky", retry=ONCE)(handler)


def in_async(leak):
    async def handler():
        await sync_to_async(leak)()

    return work(name="t.leaky", retry=ONCE)(handler)


def in_batch(leak):
    def handler(items):
        leak()
        return [None for _ in items]

    return batch_work(name="t.leaky", retry=ONCE, size=2, max_wait=0)(handler)


def in_async_batch(leak):
    async def handler(items):
        await sync_to_async(leak)()
        return [None for _ in items]

    return batch_work(name="t.leaky", retry=ONCE, size=2, max_wait=0)(handler)


def declared_writer():
    @work(name="t.writer", retry=ONCE)
    def writer(number: int) -> bool:
        Order.objects.create(reference=f"writer {number}")
        return connection.in_atomic_block or not connection.get_autocommit()

    return writer


def request_of(type_):
    return type_(None) if hasattr(type_, "size") or type_.__class__.__name__ == "BatchType" else type_()


@each_leak
@pytest.mark.parametrize("declared", [plain, with_context, in_async, in_batch, in_async_batch])
def test_the_next_works_of_the_thread_know_nothing_of_it(leak, declared, undeclared, caplog):
    leaky, writer = declared(leak), declared_writer()
    with running_worker(concurrency=1):
        handle = enqueue(request_of(leaky))
        handle.result(timeout=20)
        assert [enqueue(writer(number=number)).result(timeout=20) for number in range(3)] == [False] * 3
    assert handle.state().status == "success"
    assert list(Order.objects.order_by("pk").values_list("reference", flat=True)) == [
        f"writer {number}" for number in range(3)
    ]
    [warning] = [each.getMessage() for each in caplog.records if "left" in each.getMessage()]
    assert "t.leaky" in warning
    assert handle.id in warning or "batch" in warning


def test_a_handler_that_raises_too_fails_as_it_raised(undeclared):
    def leaks_and_raises() -> None:
        leaked_transaction()
        raise RuntimeError("no luck")

    leaky, writer = plain(leaks_and_raises), declared_writer()
    with running_worker(concurrency=1):
        handle = enqueue(leaky())
        assert enqueue(writer(number=1)).result(timeout=20) is False
    assert (handle.state().status, handle.state().error) == ("dead", "RuntimeError: no luck")


def atomic(leak):
    return work(name="t.leaky", retry=ONCE, atomic=True)(lambda: leak())


def in_prepare(leak):
    def handler(ctx: Context):
        with ctx.prepare():
            leak()

    return work(name="t.leaky", retry=ONCE)(handler)


def in_complete(leak):
    def handler(ctx: Context):
        with ctx.complete():
            leak()

    return work(name="t.leaky", retry=ONCE)(handler)


def before_complete(leak):
    def handler(ctx: Context):
        leak()
        with ctx.complete():
            Order.objects.create(reference="leaked")

    return work(name="t.leaky", retry=ONCE)(handler)


def in_aprepare(leak):
    async def handler(ctx: Context):
        await ctx.aprepare(leak)

    return work(name="t.leaky", retry=ONCE)(handler)


def in_acomplete(leak):
    async def handler(ctx: Context):
        await ctx.acomplete(leak)

    return work(name="t.leaky", retry=ONCE)(handler)


def before_acomplete(leak):
    async def handler(ctx: Context):
        await sync_to_async(leak)()
        await ctx.acomplete(lambda: Order.objects.create(reference="leaked") and None)

    return work(name="t.leaky", retry=ONCE)(handler)


@pytest.mark.parametrize(
    "declared",
    [atomic, in_prepare, in_complete, before_complete, in_aprepare, in_acomplete, before_acomplete],
)
@pytest.mark.parametrize("run", ["worker", "drain"])
def test_one_inside_a_transaction_of_the_attempts_own_fails_it_as_a_whole(declared, run, undeclared):
    handle, writer = enqueue(declared(leaked_transaction)()), declared_writer()
    if run == "drain" and "before" not in declared.__name__:
        drain(raises=False)
    else:
        with running_worker(concurrency=1):
            assert enqueue(writer(number=1)).result(timeout=20) is False
            eventually(lambda: handle.state().ended_at)
    state = handle.state()
    assert (state.status, state.error.partition(":")[0]) == ("dead", "InvalidInstruction")
    assert not Order.objects.filter(reference="leaked").exists()


def test_autocommit_that_is_off_refuses_a_transaction_of_its_own(undeclared):
    handle, writer = enqueue(before_complete(autocommit_off)()), declared_writer()
    with running_worker(concurrency=1):
        assert enqueue(writer(number=1)).result(timeout=20) is False
    assert "autocommit is off" in handle.state().error
    assert not Order.objects.filter(reference="leaked").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_generator_that_is_collected_later_ends_no_other_transaction(undeclared):
    @work(name="t.collects", retry=ONCE, atomic=True)
    def collects() -> None:
        Order.objects.create(reference="kept")
        kept.clear()
        gc.collect()

    with running_worker(concurrency=1):
        enqueue(plain(leaked_transaction)()).result(timeout=20)
        enqueue(collects()).result(timeout=20)
    assert list(Order.objects.values_list("reference", flat=True)) == ["kept"]
