"""A handler that leaves a transaction open, or breaks its connection, harms no other work."""

from __future__ import annotations

import gc

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connection, transaction

from django_ayework import Context, Retry, batch_work, enqueue, work
from django_ayework.testing import drain, running_worker
from tests.app.models import Order
from tests.attempts.conftest import ended
from tests.attempts.forms import atomic, declare, in_acomplete, in_complete, in_prepare, plain, with_context
from tests.fixtures import consistent  # noqa: F401

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


LEAKS = [leaked_transaction, leaked_savepoint, autocommit_off, entered_by_hand, closed_inside, failed_inside]
if connection.vendor != "mysql":
    LEAKS.append(begun_by_sql)


def in_async(leak, **options):
    async def handler():
        await sync_to_async(leak)()

    return declare(handler, **options)


def in_batch(leak, **options):
    def handler(items):
        leak()
        return [None for _ in items]

    return batch_work(name="attempts.case", size=2, max_wait=0, **options)(handler)


def in_async_batch(leak, **options):
    async def handler(items):
        await sync_to_async(leak)()
        return [None for _ in items]

    return batch_work(name="attempts.case", size=2, max_wait=0, **options)(handler)


@work(name="attempts.writer", retry=ONCE)
def writer(number: int = 0) -> bool:
    """Write a row; tell whether a transaction is open."""
    Order.objects.create(reference=f"writer {number}")
    return connection.in_atomic_block or not connection.get_autocommit()


def writes_alone() -> bool:
    return enqueue(writer()).result(timeout=20) is False


@pytest.mark.parametrize("declared", [plain, with_context, in_async, in_batch, in_async_batch])
def test_the_next_works_of_the_thread_start_without_a_transaction(declared, caplog):
    with running_worker(concurrency=1):
        for leak in LEAKS:
            caplog.clear()
            leaky = declared(leak, retry=ONCE)
            handle = enqueue(leaky(None) if "batch" in declared.__name__ else leaky())
            handle.result(timeout=20)
            assert [enqueue(writer(number=number)).result(timeout=20) for number in range(3)] == [False] * 3
            assert handle.state().status == "success"
            written = list(Order.objects.order_by("pk").values_list("reference", flat=True))
            assert written == [f"writer {number}" for number in range(3)], leak
            [warning] = [each.getMessage() for each in caplog.records if "left" in each.getMessage()]
            assert "attempts.case" in warning
            assert handle.id in warning or "batch" in warning
            Order.objects.all().delete()


def test_a_handler_that_raises_too_fails_as_it_raised():
    def leaks_and_raises() -> None:
        leaked_transaction()
        raise RuntimeError("no luck")

    with running_worker(concurrency=1):
        handle = enqueue(plain(leaks_and_raises, retry=ONCE)())
        assert writes_alone()
    assert (handle.state().status, handle.state().error) == ("dead", "RuntimeError: no luck")


def before_complete(leak, **options):
    def handler(ctx: Context):
        leak()
        with ctx.complete():
            Order.objects.create(reference="leaked")

    return declare(handler, **options)


def in_aprepare(leak, **options):
    async def handler(ctx: Context):
        await ctx.aprepare(leak)

    return declare(handler, **options)


def before_acomplete(leak, **options):
    async def handler(ctx: Context):
        await sync_to_async(leak)()
        await ctx.acomplete(lambda: Order.objects.create(reference="leaked") and None)

    return declare(handler, **options)


INSIDE = (atomic, in_prepare, in_complete, in_aprepare, in_acomplete)


def has_failed(handle) -> bool:
    """Whether an attempt is refused for its leak, and has left nothing."""
    state = ended(handle)
    return (state.status, state.error.partition(":")[0]) == ("dead", "InvalidInstruction") and not (
        Order.objects.filter(reference="leaked").exists()
    )


def test_a_leak_inside_a_transaction_of_the_attempt_fails_the_attempt():
    with running_worker(concurrency=1):
        for declared in (*INSIDE, before_complete, before_acomplete):
            handle = enqueue(declared(leaked_transaction, retry=ONCE)())
            assert writes_alone()
            assert has_failed(handle), declared


@pytest.mark.parametrize("declared", INSIDE)
def test_such_a_leak_fails_the_attempt_while_a_test_drains(declared):
    handle = enqueue(declared(leaked_transaction, retry=ONCE)())
    drain(raises=False)
    assert has_failed(handle)


def test_an_attempt_refuses_a_transaction_while_autocommit_is_off():
    handle = enqueue(before_complete(autocommit_off, retry=ONCE)())
    with running_worker(concurrency=1):
        assert writes_alone()
    assert "autocommit is off" in handle.state().error
    assert not Order.objects.filter(reference="leaked").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_generator_that_is_collected_later_ends_no_other_transaction():
    def collects() -> None:
        Order.objects.create(reference="kept")
        kept.clear()
        gc.collect()

    with running_worker(concurrency=1):
        enqueue(plain(leaked_transaction, retry=ONCE)()).result(timeout=20)
        enqueue(atomic(collects, retry=ONCE, name="attempts.collects")()).result(timeout=20)
    assert list(Order.objects.values_list("reference", flat=True)) == ["kept"]
