"""Assertions, time travel and factories."""

import unittest
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import django.test
import pytest
from django.apps import apps
from django.db import transaction

from django_ayework import Status, UnknownWorkType, dependency, enqueue, get_handle, registry, work
from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import Overview, Work
from django_ayework.store import database
from django_ayework.testing import factories, now, time_travel
from django_ayework.testing.factories import DeadLetterFactory, EngineFactory, WorkFactory
from tests.app.works import add, notify, pay
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def found(enqueued):
    """The ids of what ``enqueued`` finds."""
    return lambda *type, **given: [state.id for state in enqueued(*type, **given)]


def test_works_come_oldest_first_whatever_their_status(enqueued, found, drain):
    handles = [enqueue(add(a=1, b=2), id="zz"), enqueue(add(a=3, b=4)), enqueue(notify(order_id=1), id="aa")]
    drain(limit=1)
    assert found() == [handle.id for handle in handles]
    assert found(add) == [handle.id for handle in handles[:2]]
    assert enqueued("shop.add") == enqueued(add)
    assert enqueued("nothing") == []


def test_only_the_named_inputs_must_match(found):
    first, second = enqueue(add(a=1, b=2)), enqueue(add(a=1, b=3))
    assert found(add, a=1) == [first.id, second.id]
    assert found(add, a=1, b=3) == [second.id]
    assert found(add, a=2) == []
    with pytest.raises(TypeError, match=r"^expected one of the inputs of shop.add \(a, b\), got: 'aa'"):
        found(add, aa=1)
    assert found(b=2) == [first.id]
    Work.objects.update(input="garbage")
    assert (found(add, a=1), len(found(add))) == ([], 2)


def test_ended_works_are_included_unless_a_status_is_given(enqueued, found, drain):
    ended, scheduled = enqueue(add(a=1, b=2)), enqueue(add(a=3, b=4), delay=60)
    due = enqueue(notify(order_id=1))
    drain(limit=1)
    assert found(status="success") == [ended.id]
    assert found(status=Status.PENDING) == [due.id]
    assert found(status=["pending", "scheduled"]) == [scheduled.id, due.id]
    assert found(status=set(Status) - Status.terminal) == [scheduled.id, due.id]
    assert found(add, status="scheduled", a=3) == [scheduled.id]
    assert found(add, status="pending") == []
    with pytest.raises(ValueError) as refused:
        enqueued(status="pendng")
    assert str(refused.value) == (
        "expected status= to be one of blocked, scheduled, pending, running, success, dead, cancelled, "
        "got: 'pendng'. Did you mean 'pending'?"
    )


@on_sqlite
@pytest.mark.parametrize("name", ["assert_enqueued", "assert_not_enqueued"])
def test_assertions_refuse_what_no_work_can_be(name, request, monkeypatch, enqueued):
    monkeypatch.setattr(registry, "_declared", {"shop.add": add, "shop.pay": pay})
    assertion = request.getfixturevalue(name)
    with pytest.raises(UnknownWorkType, match=r"^no work is named 'shop\.ad'\. Did you mean 'shop\.add'\?"):
        assertion("shop.ad")
    with pytest.raises(TypeError) as refused:
        assertion(pay, order=7)
    assert str(refused.value) == (
        "expected one of the inputs of shop.pay (order_id), got: 'order'. Did you mean 'order_id'?"
    )
    with pytest.raises(TypeError, match=r"^no type of work has an input 'order_idd'\. Did you mean 'order_i"):
        assertion(order_idd=7)
    with pytest.raises(TypeError, match=r"^expected a type of work or its name, as in assert_enqueued\("):
        assertion(add(a=1, b=2))
    built = r"^expected a type of work or its name.*got: <WorkRequest shop\.add "
    with pytest.raises(TypeError, match=built):
        enqueued(add(a=1, b=2))


@on_sqlite
def test_a_type_that_takes_any_input_has_no_unknown_one(assert_enqueued):
    @work(name="testing.anything")
    def anything(**values: int) -> None: ...

    enqueue(anything(a=1))
    assert_enqueued(anything, a=1)
    with pytest.raises(AssertionError):
        assert_enqueued(anything, b=1)


def test_the_newest_match_is_returned_also_of_gates_and_of_works_that_wait_for_the_commit(
    assert_enqueued, assert_not_enqueued
):
    assert_not_enqueued(GATE_TYPE)
    enqueue(add(a=1, b=2), id="zz")
    newest = enqueue(add(a=1, b=2), priority=4, id="aa")
    state = assert_enqueued(add, a=1)
    assert (state.id, state.priority) == (newest.id, 4)
    with transaction.atomic():
        handle = enqueue(add(a=3, b=2), on_commit=True)
    assert assert_enqueued(add, a=3).id == handle.id
    gate = enqueue(dependency(["never"], [add(a=1, b=2)]))
    assert assert_enqueued(GATE_TYPE).id == gate.id


def test_assertions_leave_callbacks_of_the_project_to_the_commit(
    assert_enqueued, assert_not_enqueued, enqueued, django_capture_on_commit_callbacks, drain
):
    called = []
    enqueue(add(a=1, b=1), on_commit=True)
    with django_capture_on_commit_callbacks() as captured:
        transaction.on_commit(lambda: called.append("first"))
        enqueue(add(a=1, b=2), on_commit=True)
        transaction.on_commit(lambda: called.append("second"))
        assert_enqueued(add, b=2)
        assert_not_enqueued(notify)
        assert len(enqueued()) == 2
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(lambda: called.append("of a block that is rolled back"))
        enqueue(notify(order_id=1), on_commit=True)
        assert_enqueued(notify)
        _ = 1 / 0
    assert called == []
    assert_not_enqueued(notify)
    for callback in captured:
        callback()
    assert called == ["first", "second"]
    assert drain().ran == 2


@on_sqlite
def test_messages_name_the_expected_and_the_queued_works(assert_enqueued, assert_not_enqueued):
    def refused(assertion, *type, **input):
        with pytest.raises(AssertionError) as raised:
            assertion(*type, **input)
        return str(raised.value)

    assert_not_enqueued()
    message = "expected a work shop.add(a=1) to be queued; nothing is."
    assert refused(assert_enqueued, add, a=1) == message
    handle = enqueue(add(a=2, b=2))
    assert_not_enqueued(add, a=1)
    assert_not_enqueued(notify)
    enqueue(notify(order_id=7))
    assert refused(assert_enqueued, "shop.add", a="one") == (
        "expected a work shop.add(a='one') to be queued; "
        'there is: shop.add {"a":2,"b":2}; shop.notify {"order_id":7}.'
    )
    message = f"expected no work shop.add(a=2) to be queued, but there are 1: {handle.id}."
    assert refused(assert_not_enqueued, add, a=2) == message


def ahead():
    """How many seconds the engine is ahead of this host, to the nearest ten."""
    return round((now() - datetime.now(UTC)).total_seconds(), -1)


@pytest.mark.parametrize("run", [1, 2])
def test_time_travel_moves_at_once_adds_up_and_is_undone_after_the_test(run):
    seen = [ahead()]
    for step in (3600, HOUR, -HOUR):
        time_travel(step)
        seen.append(ahead())
    assert seen == [0, 3600, 7200, 3600]


def test_a_block_is_undone_at_its_end_and_by_an_error():
    time_travel(HOUR)
    with time_travel(HOUR):
        assert ahead() == 7200
        with time_travel(HOUR):
            assert ahead() == 10_800
        assert ahead() == 7200
    assert ahead() == 3600
    with pytest.raises(ZeroDivisionError), time_travel(HOUR):
        _ = 1 / 0
    assert ahead() == 3600
    time_travel(timedelta(days=-400))
    handle = enqueue(add(a=1, b=2))
    assert abs((Work.objects.get(id=handle.id).queued_at - now()).total_seconds()) < 5
    assert ahead() == 3600 - 400 * 86_400


def test_a_clock_that_was_set_while_a_test_had_frozen_the_time_is_set_again(drain, monkeypatch):
    with monkeypatch.context() as frozen:
        frozen.setattr(database, "time", SimpleNamespace(monotonic=lambda: 2e9))
        enqueue(add(a=1, b=2), delay=60)
    handle = enqueue(add(a=3, b=4), run_at=datetime.now(UTC))
    assert drain().succeeded == 1
    assert handle.state().status == "success"
    assert ahead() == 0


@on_sqlite
@pytest.mark.parametrize("base", [unittest.TestCase, django.test.SimpleTestCase])
def test_a_test_case_undoes_it_by_itself(base):
    seen = []

    class Travels(base):
        def test_one(self):
            time_travel(HOUR)
            self.helper()
            seen.append(ahead())

        def test_two(self):
            seen.append(ahead())

        def helper(self):
            time_travel(HOUR)

        def runTest(self): ...

    result = unittest.TestResult()
    unittest.TestSuite([Travels("test_one"), Travels("test_two")]).run(result)
    assert result.wasSuccessful(), result.errors
    assert seen == [7200, 0]
    assert ahead() == 0


@on_sqlite
@pytest.mark.parametrize("base", [unittest.TestCase, django.test.SimpleTestCase])
def test_time_travel_in_the_set_up_of_a_class_is_undone_after_the_class(base):
    seen = []

    class Travels(base):
        @classmethod
        def setUpClass(cls):
            super().setUpClass()
            time_travel(HOUR)
            with time_travel(HOUR):
                seen.append(ahead())

        def test_one(self):
            time_travel(HOUR)
            seen.append(ahead())

        def test_two(self):
            seen.append(ahead())

    class Later(base):
        def test_three(self):
            seen.append(ahead())

    result = unittest.TestResult()
    unittest.TestSuite([Travels("test_one"), Travels("test_two"), Later("test_three")]).run(result)
    assert result.wasSuccessful(), result.errors
    assert seen == [7200, 7200, 3600, 0]


class TestTimeTravelInSetUpTestData(django.test.TestCase):
    @classmethod
    def setUpTestData(cls):
        time_travel(HOUR)

    def test_it_lasts_after_a_test_that_travels(self):
        assert ahead() == 3600
        time_travel(HOUR)

    def test_it_lasts_for_all_tests_of_the_class(self):
        assert ahead() == 3600


def test_time_travel_of_set_up_test_data_is_undone_after_the_class():
    assert ahead() == 0


ALL = [
    factory
    for factory in vars(factories).values()
    if isinstance(factory, type) and issubclass(factory, EngineFactory) and factory is not EngineFactory
]


@on_sqlite
@pytest.mark.parametrize("factory", ALL, ids=lambda factory: factory.__name__)
def test_a_factory_makes_rows_that_are_valid_and_differ_and_every_model_has_one(factory):
    models = apps.get_app_config("django_ayework").get_models()
    assert {each._meta.model for each in ALL} == {*models} - {Overview}
    rows = factory.create_batch(3)
    for row in rows:
        row.clean_fields()
        assert type(row).objects.get(pk=row.pk) == row
        assert str(row)
    assert len({row.pk for row in rows}) == 3


def test_a_work_of_a_factory_has_a_state_and_can_be_run(drain):
    for status in Status:
        state = get_handle(WorkFactory(status=status).id).state()
        assert state.status is status
        assert (state.ended_at is not None) == (status in Status.terminal)
    state = get_handle(DeadLetterFactory().id).state()
    assert (state.status, state.reason, state.error) == ("dead", "exhausted", "ValueError: no luck")
    assert state.ended_at is not None
    Work.objects.all().delete()
    row = WorkFactory(input='{"a":3,"b":4}')
    assert drain().succeeded == 1
    assert get_handle(row.id).result(timeout=0) == 7
