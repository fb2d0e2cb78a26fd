"""``perform``, and the kit in a project's test cases."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, TransactionTestCase

from django_ayework import Abort, Context, Defer, NotEncodable, Retry, dependency, enqueue, work
from django_ayework.define.instructions import Queue, Result, Void
from django_ayework.errors import InvalidInstruction
from django_ayework.flow import enqueue as queueing
from django_ayework.models import Work
from django_ayework.rules.codec import RichJSON
from django_ayework.signals import work_succeeded
from django_ayework.testing import assert_enqueued, assert_not_enqueued, drain, running_worker, time_travel
from django_ayework.testing import perform as perform_of_the_kit
from tests.app.models import Order
from tests.app.works import add, fail, pay
from tests.direct.works import quick
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db
ONCE = Retry(attempts=1)
DECISIONS = {"defer": Defer(delay=5), "abort": Abort("no card")}


@work(name="testing.children")
def children(ctx: Context):
    return ctx.queue([add(a=1, b=2), add(a=3, b=4)])


@work(name="testing.plain")
async def plain(items: list[int]) -> list[int]:
    items.append(0)
    return items


@work(name="testing.ends")
def ends(ctx: Context, how: str) -> Any:
    if how in DECISIONS:
        raise DECISIONS[how]
    if how == "forgotten":
        ctx.result(1)
    return {"void": ctx.void, "unstorable": object}.get(how, lambda: None)()


@on_sqlite
def test_the_result_and_the_instruction_of_an_input_that_is_stored_and_read_back(perform):
    performed = perform(add(a=1, b=2))
    assert (performed.result, performed.error) == (3, None)
    assert isinstance(performed.instruction, Result)
    given = [1]
    performed = perform(plain(items=given))
    assert (performed.result, performed.instruction, performed.error) == ([1, 0], None, None)
    assert given == [1]
    assert perform(quick()).result == threading.current_thread().name
    with pytest.raises(NotEncodable):
        perform(plain(items=[object()]))


@on_sqlite
@pytest.mark.parametrize(
    ("given", "hint"), [(add, "Call the type: add"), (add.handler, "Write @work above add")]
)
def test_a_type_or_its_function_is_refused_as_by_enqueue(perform, given, hint):
    with pytest.raises(TypeError, match=rf"^expected perform\(work\) to have works built .*{hint}"):
        perform(given)


@on_sqlite
class OneWay(RichJSON):
    """Writes what it cannot read."""

    def decode(self, text: str) -> Any:
        raise ValueError("no way back")


def test_an_input_that_cannot_be_read_back_is_refused_with_the_error(perform):
    one_way = work(name="testing.one_way", codec=OneWay())(lambda n: n)
    with pytest.raises(AssertionError) as raised:
        perform(one_way(n=1))
    assert str(raised.value) == "the work could not be started: ValueError: no way back"


def test_children_are_built_and_not_queued(perform):
    performed = perform(children())
    assert performed.result is None
    assert isinstance(performed.instruction, Queue)
    assert [item.input for item in performed.instruction.items] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert Work.objects.count() == 0
    assert isinstance(perform(ends(how="void")).instruction, Void)


NOT_USABLE: dict[str, Callable[[], object]] = {
    "expected perform(work) to have a work with a handler, got a gate.": lambda: perform_of_the_kit(
        dependency(["x"], [fail()])
    ),
    "expected limit to be a whole number, 0 or more, got: 'x'": lambda: drain(limit="x"),
    "expected time_travel(…) to be given seconds (a number) or a timedelta, got: '5'": lambda: time_travel(
        "5"
    ),
}


@on_sqlite
def test_a_worker_of_a_test_is_refused_a_database_in_memory(monkeypatch):
    monkeypatch.setattr(connection, "is_in_memory_db", lambda: True)
    with (
        pytest.raises(ImproperlyConfigured, match=r"set DATABASES\['default'\]\['TEST'\] = \{'NAME'"),
        running_worker(),
    ):
        pass


@pytest.mark.parametrize(("message", "call"), NOT_USABLE.items(), ids=["a gate", "a limit", "a duration"])
def test_what_the_kit_cannot_use_is_refused_with_what_it_expects(message, call):
    with pytest.raises((TypeError, ValueError)) as refused:
        call()
    assert str(refused.value).startswith(message)


@on_sqlite
def test_an_error_is_returned_and_raised_by_the_result(perform):
    performed = perform(fail(message="no card"))
    with pytest.raises(RuntimeError, match="no card") as raised:
        _ = performed.result
    assert raised.traceback[-1].name == "fail"
    with pytest.raises(RuntimeError, match="no card"):
        _ = performed.instruction
    assert performed.error is raised.value


@on_sqlite
@pytest.mark.parametrize("how", DECISIONS)
def test_a_decision_is_returned_as_the_error(perform, how):
    assert perform(ends(how=how)).error is DECISIONS[how]


@on_sqlite
@pytest.mark.parametrize(("how", "error"), [("forgotten", InvalidInstruction), ("unstorable", NotEncodable)])
def test_an_outcome_that_cannot_be_used_is_returned_as_the_error(perform, how, error):
    assert isinstance(perform(ends(how=how)).error, error)


def test_the_handler_can_be_shown_a_later_attempt(perform):
    @work(name="testing.attempt")
    def attempt(ctx: Context) -> list[Any]:
        return [ctx.attempt, ctx.type, ctx.signal.aborted, ctx.claim("once")]

    assert perform(attempt(), attempt=3).result == [3, "testing.attempt", False, True]
    assert perform(attempt()).result == [1, "testing.attempt", False, False]


class PlainTest(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.order = Order.objects.create(reference="A1")

    def test_a_real_worker_is_refused_because_it_would_see_no_work_of_the_test(self):
        with (
            self.assertRaisesRegex(TransactionManagementError, "got it in one, .* Use a TransactionTestCase"),
            running_worker(),
        ):
            pass

    def test_works_run_in_the_tests_transaction(self):
        heard = []

        def receiver(work, **keywords):
            heard.append(work.id)

        work_succeeded.connect(receiver)
        self.addCleanup(work_succeeded.disconnect, receiver)
        handle = enqueue(pay(order_id=self.order.pk), delay=60)
        assert_enqueued(pay, order_id=self.order.pk)
        time_travel(61)
        self.assertEqual(drain().succeeded, 1)
        self.order.refresh_from_db()
        self.assertTrue(self.order.paid)
        self.assertEqual(heard, [handle.id])

    def test_nothing_is_left_of_other_tests_and_a_handler_can_be_called_alone(self):
        self.assertEqual(Work.objects.count(), 0)
        assert_not_enqueued()
        self.assertFalse(self.order.paid)
        self.assertEqual(perform_of_the_kit(add(a=1, b=2)).result, 3)
        self.assertEqual(Work.objects.count(), 0)

    def test_callbacks_can_be_captured_as_usual(self):
        with self.captureOnCommitCallbacks(execute=True):
            handle = enqueue(add(a=1, b=2), on_commit=True)
            self.assertIsNone(handle.state())
        self.assertIsNotNone(handle.state())
        self.assertEqual(drain().succeeded, 1)

    def test_drain_makes_the_first_attempt_of_a_work_that_skips_the_queue(self):
        """Without pytest's fixtures, which hold such works back."""
        offered, intake = [], queueing.providers.intake
        queueing.providers.held_back, queueing.providers.intake = False, offered.append
        self.addCleanup(setattr, queueing.providers, "intake", intake)
        with self.captureOnCommitCallbacks(execute=True):
            handle = enqueue(quick(number=1))
        enqueue(quick(number=2), on_commit=True)
        self.assertEqual(handle.state().attempt, 0)
        self.assertEqual(drain().succeeded, 2)
        self.assertEqual(handle.result(timeout=0), threading.current_thread().name)
        self.assertEqual(offered, [])


class WorkerTest(TransactionTestCase):
    def test_a_real_worker_runs_beside_the_test(self):
        with running_worker(concurrency=2) as worker:
            self.assertEqual(enqueue(add(a=1, b=2)).result(timeout=20), 3)
            self.assertEqual(worker.concurrency, 2)
        handle = enqueue(add(a=1, b=2))
        self.assertEqual(handle.state().status, "pending")


@pytest.mark.django_db(transaction=True)
def test_a_work_that_skips_the_queue_is_run_by_drain_or_a_worker():
    with transaction.atomic():
        handle = enqueue(quick(number=1))
    assert handle.state().status == "pending"
    assert drain().succeeded == 1
    assert handle.result(timeout=0) == threading.current_thread().name
    with running_worker():
        handle = enqueue(quick(number=1))
        handle.result(timeout=20)
    assert not handle.state().completed_by.startswith("direct-")


def run(request):
    handle = enqueue(request, retry=ONCE)
    drain(raises=False)
    return handle.state()


@pytest.fixture
def order(db):
    return Order.objects.create(reference="taken")


@work(name="testing.async")
async def aduplicate(pk: int, how: str) -> None:
    await Order.objects.acreate(pk=pk, reference="again")


@work(name="testing.misuses")
def misuses(pk: int, how: str) -> None:
    if how == "duplicate":
        Order.objects.create(reference="undone")
    try:
        if how == "marked":
            with transaction.atomic():
                transaction.set_rollback(True)
                raise ValueError("marked")
        elif how == "translated":
            with connection.cursor() as cursor:
                cursor.execute("SELECT no_such_column FROM no_such_table")
        else:
            Order.objects.create(pk=pk, reference="again")
    except DatabaseError as error:
        raise (ValueError("translated") if how.startswith("translated") else error) from error


@pytest.mark.parametrize(
    ("handler", "how", "error"),
    [
        (misuses, "duplicate", "IntegrityError"),
        (aduplicate, "async", "IntegrityError"),
        (misuses, "translated", "ValueError: translated"),
        (misuses, "translated model", "ValueError: translated"),
        (misuses, "marked", "ValueError: marked"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_database_error_of_a_handler_leaves_the_transaction_of_the_test_usable(
    perform, handler, how, error, order
):
    before = enqueue(add(a=1, b=2))
    state = run(handler(pk=order.pk, how=how))
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert state.error.startswith(error)
    assert before.result(timeout=0) == 3
    assert type(perform(handler(pk=order.pk, how=how)).error).__name__ == error.partition(":")[0]
    assert list(Order.objects.values_list("reference", flat=True)) == ["taken"]
    after = enqueue(add(a=3, b=4))
    drain()
    assert after.result(timeout=0) == 7


def test_other_errors_and_those_that_the_handler_catches_keep_the_written_rows(order):
    @work(name="testing.swallowed")
    def swallowed(pk: int) -> str:
        try:
            with transaction.atomic():
                Order.objects.create(pk=pk, reference="again")
        except IntegrityError:
            Order.objects.create(reference="instead")
        return "done"

    @work(name="testing.raises")
    def raises() -> None:
        Order.objects.create(reference="written")
        raise ValueError("after the write")

    assert run(swallowed(pk=order.pk)).result == "done"
    assert run(raises()).error == "ValueError: after the write"
    assert sorted(Order.objects.values_list("reference", flat=True)) == ["instead", "taken", "written"]
