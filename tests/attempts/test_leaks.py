"""A handler that leaves a transaction open, breaks its connection, or forks, harms no other work."""

import gc
import os
import signal
import sys

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connection, connections, transaction

from django_ayework import Context, Retry, batch_work, enqueue, work
from django_ayework.signals import error_reported
from django_ayework.testing import drain, running_worker
from tests.app.models import Order
from tests.attempts import forms
from tests.attempts.conftest import connected, ended
from tests.attempts.forms import form, plain
from tests.fixtures import consistent, kept_blocks, leave_a_block_open, nothing_kept  # noqa: F401
from tests.marks import on_sqlite
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)
ONCE = Retry(attempts=1)


def leaked_transaction() -> None:
    leave_a_block_open("leaked")


def and_write(leak, *arguments) -> None:
    leak(*arguments)
    Order.objects.create(reference="leaked")


def entered_by_hand() -> None:
    and_write(transaction.atomic().__enter__)
    transaction.set_rollback(True)


def closed_inside() -> None:
    kept_open = transaction.atomic()
    and_write(kept_open.__enter__)
    connection.close()


def failed_inside() -> None:
    leaked_transaction()
    with pytest.raises(IntegrityError), transaction.atomic(savepoint=False):
        Order.objects.create(pk=Order.objects.first().pk)


LEAKS = {
    "a transaction": leaked_transaction,
    "a savepoint": lambda: leaked_transaction() or leaked_transaction(),
    "autocommit is off": lambda: and_write(transaction.set_autocommit, False),
    "entered by hand": entered_by_hand,
    "closed inside": closed_inside,
    "failed inside": failed_inside,
    "begun by SQL": lambda: and_write(connection.cursor().execute, "BEGIN"),
}
if connection.vendor == "mysql":
    del LEAKS["begun by SQL"]


def in_batch(leak, is_async=False, **options):
    async def ahandler(items):
        return await sync_to_async(handler)(items)

    def handler(items):
        return leak() or [None for _ in items]

    declared = batch_work(name="attempts.case", size=2, max_wait=0, **options)
    return declared(ahandler if is_async else handler)


def in_async_batch(leak, **options):
    return in_batch(leak, is_async=True, **options)


@work(name="attempts.writer", retry=ONCE)
def writer(number: int = 0) -> bool:
    """Write a row; tell whether a transaction is open."""
    Order.objects.create(reference=f"writer {number}")
    return connection.in_atomic_block or not connection.get_autocommit()


def writes_alone() -> bool:
    return enqueue(writer()).result(timeout=20) is False


#: Each runs the handler in another place; databases differ in what such a handler leaves.
IN_OTHER_THREADS = (forms.in_a_thread_of_async, in_batch, in_async_batch)
THREADS = [plain, *(pytest.param(declared, marks=on_sqlite) for declared in IN_OTHER_THREADS)]


@pytest.mark.parametrize("declared", THREADS)
def test_the_next_works_of_the_thread_start_without_a_transaction(declared, caplog):
    is_batch = "batch" in declared.__name__
    with running_worker(concurrency=1):
        for name, leak in LEAKS.items():
            caplog.clear()
            handle = enqueue(declared(leak, retry=ONCE)(*[None] * is_batch))
            handle.result(timeout=20)
            assert [enqueue(writer(number=number)).result(timeout=20) for number in range(2)] == [False] * 2
            written = list(Order.objects.order_by("pk").values_list("reference", flat=True))
            assert written == [f"writer {number}" for number in range(2)], name
            [record] = [each for each in caplog.records if "left" in each.getMessage()]
            assert "attempts.case" in record.getMessage()
            assert record.work_id == (None if is_batch else handle.id)
            assert (handle.id if record.work_id else "batch") in record.getMessage()
            Order.objects.all().delete()


@on_sqlite
def test_a_handler_that_raises_too_fails_as_it_raised():
    def leaks_and_raises() -> None:
        leaked_transaction()
        raise RuntimeError("no luck")

    with running_worker(concurrency=1):
        handle = enqueue(plain(leaks_and_raises, retry=ONCE)())
        assert writes_alone()
    assert (handle.state().status, handle.state().error) == ("dead", "RuntimeError: no luck")


@pytest.mark.vendors("sqlite")
def test_a_handler_that_closes_the_connection_of_the_driver_costs_no_slot(caplog):
    """SQLite's driver then refuses to tell whether it is inside a transaction."""

    def closes() -> None:
        connection.ensure_connection()
        connection.connection.close()

    with running_worker(concurrency=1):
        handle = enqueue(plain(closes, retry=ONCE)())
        handle.result(timeout=20)
        assert writes_alone()
    [record] = [each for each in caplog.records if each.levelname != "INFO"]
    assert f"work {handle.id} (attempts.case) left no session" in record.getMessage()


@on_sqlite
def test_a_report_whose_receiver_leaves_a_connection_that_cannot_be_closed_fails_nothing():
    broken = []

    def cannot_close() -> None:
        raise RuntimeError("the driver cannot close")

    def receive(**more) -> None:
        if not broken:
            leave_a_block_open("receiver")
            broken.append(connections["default"])
            broken[0].close = cannot_close

    def no_advice(error, info) -> None:
        raise RuntimeError("no advice")

    def fails() -> None:
        raise ValueError("no luck")

    with connected(receive, error_reported), running_worker(concurrency=1):
        handle = enqueue(plain(fails, retry=ONCE, on_failure=no_advice)())
        assert ended(handle).error == "ValueError: no luck"
        del broken[0].close
        assert writes_alone()


def and_complete(leak):
    def handler(ctx: Context):
        leak()
        with ctx.complete():
            Order.objects.create(reference="leaked")

    return handler


def and_acomplete(leak):
    async def handler(ctx: Context):
        await sync_to_async(leak)()
        await ctx.acomplete(lambda: Order.objects.create(reference="leaked") and None)

    return handler


before_complete = form("before_complete", and_complete)
before_acomplete = form("before_acomplete", and_acomplete)
INSIDE = (forms.atomic, forms.in_prepare, forms.in_complete, forms.in_aprepare, forms.in_acomplete)


def has_failed(handle) -> bool:
    """Whether an attempt is refused for its leak, and has left nothing."""
    state = ended(handle)
    refused = (state.status, state.error.partition(":")[0]) == ("dead", "InvalidInstruction")
    return refused and not Order.objects.filter(reference="leaked").exists()


def test_a_leak_inside_a_transaction_of_the_attempt_fails_the_attempt():
    with running_worker(concurrency=1):
        for declared in (*INSIDE, before_complete, before_acomplete):
            handle = enqueue(declared(leaked_transaction, retry=ONCE)())
            assert writes_alone()
            assert has_failed(handle), declared
        handle = enqueue(before_complete(LEAKS["autocommit is off"], retry=ONCE)())
        assert writes_alone()
        assert "autocommit is off" in handle.state().error
    assert not Order.objects.filter(reference="leaked").exists()


@on_sqlite
@pytest.mark.parametrize("declared", INSIDE)
def test_such_a_leak_fails_the_attempt_while_a_test_drains(declared):
    handle = enqueue(declared(leaked_transaction, retry=ONCE)())
    drain(raises=False)
    assert has_failed(handle)


@on_sqlite
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_generator_that_is_collected_later_ends_no_other_transaction():
    def collects() -> None:
        Order.objects.create(reference="kept")
        kept_blocks.clear()
        gc.collect()

    with running_worker(concurrency=1):
        enqueue(plain(leaked_transaction, retry=ONCE)()).result(timeout=20)
        enqueue(forms.atomic(collects, retry=ONCE, name="attempts.collects")()).result(timeout=20)
    assert list(Order.objects.values_list("reference", flat=True)) == ["kept"]


def status_of(child: int) -> int:
    """Wait for the end of a child, which is killed if it does not come; return its wait status."""
    try:
        return eventually(lambda: (found := os.waitpid(child, os.WNOHANG))[0] and found, seconds=5)[1]
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]


def raises() -> None:
    raise ValueError("in the child")


at_once_in_async = form("at_once_in_async", lambda act: forms.awaited(lambda: act()))


def one_in_a_batch(act):
    return batch_work(name="attempts.case", size=1)(lambda items: [act() for _ in items])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("declared", "back"),
    [
        (forms.atomic, lambda: "of the child"),
        pytest.param(plain, raises, marks=on_sqlite),
        pytest.param(plain, sys.exit, marks=on_sqlite),
        pytest.param(at_once_in_async, lambda: "of the child", marks=on_sqlite),
        pytest.param(at_once_in_async, raises, marks=on_sqlite),
        pytest.param(one_in_a_batch, lambda: ["of the child"], marks=on_sqlite),
        pytest.param(one_in_a_batch, sys.exit, marks=on_sqlite),
    ],
)
def test_a_forked_child_that_comes_back_ends_and_the_outcome_of_the_parent_counts(declared, back):
    def forks():
        if declared is not at_once_in_async:
            Order.objects.exists()
        child = os.fork()
        return back() if not child else os.waitstatus_to_exitcode(status_of(child))

    request = declared(forks)(*[1] * (declared is one_in_a_batch))
    with running_worker(concurrency=1):
        assert ended(enqueue(request)).result == 1
