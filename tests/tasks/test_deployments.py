"""Tasks whose functions have changed since they were enqueued: what is found before, and what runs."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

from django_ayework import registry, retry
from django_ayework.contrib.tasks.calls import tasks
from tests.tasks.kit import finished, task

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
NAME = f"{__name__}.charge"


def release(function, **options):
    """Declare the task that a release has under this name."""
    function.__qualname__ = "charge"
    return task(**options)(function)


@pytest.fixture(autouse=True)
def forgotten():
    yield
    registry.unregister(NAME)
    tasks.pop(NAME, None)


def misfits():
    out = StringIO()
    try:
        call_command("ayework_predeploy", "--json", stdout=out)
    except SystemExit as end:
        assert end.code == 1
    found = json.loads(out.getvalue())["groups"]
    assert {each["name"] for each in found} <= {NAME}
    return {(each["cause"], each["detail"], each["number"]) for each in found}


def test_a_parameter_that_is_new_renamed_or_gone_is_found_in_the_calls_of_a_task():
    enqueued = release(lambda order, note="": None)
    enqueued.enqueue(1)
    enqueued.enqueue(order=2, note="soon")
    enqueued.enqueue(3, "late")
    assert misfits() == set()
    release(lambda order, note="", *, currency: None)
    assert misfits() == {("missing_argument", "currency", 3)}
    release(lambda order, remark="": None)
    assert misfits() == {("unexpected_argument", "note", 1)}
    release(lambda number: None)
    assert misfits() == {
        ("missing_argument", "number", 1),
        *(("unexpected_argument", name, 1) for name in ("order", "note", "no. 2")),
    }
    release(lambda order, /, *, note="": None)
    assert misfits() == {
        ("missing_argument", "order", 1),
        *(("unexpected_argument", name, 1) for name in ("order", "no. 2")),
    }
    release(lambda *numbers, **more: None)
    assert misfits() == set()


def test_a_task_that_takes_the_context_is_given_it_first():
    enqueued = release(lambda context, order: None, takes_context=True)
    enqueued.enqueue(1)
    enqueued.enqueue(order=2)
    assert misfits() == set()
    release(lambda context, order, currency: None, takes_context=True)
    assert misfits() == {("missing_argument", "currency", 2)}


def test_a_task_that_begins_or_ceases_to_take_the_context_runs_with_the_arguments_that_it_was_given():
    ceases = release(lambda context, order: None, takes_context=True).enqueue(1)
    assert misfits() == set()
    release(lambda order, note="": [order, note])
    assert misfits() == set()
    assert finished(ceases).return_value == [1, ""]
    begins = release(lambda order: None).enqueue(2)
    release(lambda context, order: [context.attempt, order], takes_context=True)
    assert misfits() == set()
    assert finished(begins).return_value == [1, 2]


def test_an_edited_input_is_checked_against_the_function():
    result = release(lambda order, currency="EUR": f"{order} {currency}").enqueue("A", "EUR", "late")
    assert finished(result).status == "FAILED"
    call = {"args": ["A"], "kwargs": {}, "alias": "default", "takes_context": False}
    for wrong in ({"args": []}, {"kwargs": {"curency": "USD"}}, {"args": ["A", "EUR", "late"]}):
        with pytest.raises(TypeError, match=r"charge: .* expected .*charge\(order, currency='EUR'\), got "):
            retry(result.id, call | wrong)
    retry(result.id, call | {"kwargs": {"currency": "USD"}})
    assert finished(result).return_value == "A USD"
