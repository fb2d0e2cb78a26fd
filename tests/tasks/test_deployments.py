"""Tasks whose functions have changed since they were enqueued: what is found before, and what runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_ayework import registry
from django_ayework.contrib.tasks.calls import tasks
from django_ayework.testing import drain
from tests.tasks.kit import task

pytestmark = pytest.mark.django_db

NAME = f"{__name__}.charge"


def release(function: Callable[..., Any], **options: Any) -> Any:
    """Declare the task that a release has under this name."""
    function.__qualname__ = "charge"
    return task(**options)(function)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    registry.unregister(NAME)
    tasks.pop(NAME, None)


def misfits() -> set[tuple[str, str, str, int]]:
    out = StringIO()
    try:
        call_command("ayework_predeploy", "--json", stdout=out)
    except SystemExit as end:
        assert end.code == 1
    found = json.loads(out.getvalue())["groups"]
    return {(each["cause"], each["name"], each["detail"], each["number"]) for each in found}


def test_a_parameter_that_is_new_renamed_or_gone_is_found_in_the_calls_of_a_task() -> None:
    enqueued = release(lambda order, note="": None)
    enqueued.enqueue(1)
    enqueued.enqueue(order=2, note="soon")
    enqueued.enqueue(3, "late")
    assert misfits() == set()
    release(lambda order, note="", *, currency: None)
    assert misfits() == {("missing_argument", NAME, "currency", 3)}
    release(lambda order, remark="": None)
    assert misfits() == {("unexpected_argument", NAME, "note", 1)}
    release(lambda number: None)
    assert misfits() == {
        ("missing_argument", NAME, "number", 1),
        ("unexpected_argument", NAME, "order", 1),
        ("unexpected_argument", NAME, "note", 1),
        ("unexpected_argument", NAME, "no. 2", 1),
    }
    release(lambda *numbers, **more: None)
    assert misfits() == set()


def test_a_task_that_takes_the_context_is_given_it_first() -> None:
    enqueued = release(lambda context, order: None, takes_context=True)
    enqueued.enqueue(1)
    enqueued.enqueue(order=2)
    assert misfits() == set()
    release(lambda context, order, currency: None, takes_context=True)
    assert misfits() == {("missing_argument", NAME, "currency", 2)}


def test_a_task_that_begins_or_ceases_to_take_the_context_runs_with_the_arguments_that_it_was_given() -> None:
    ceases = release(lambda context, order: None, takes_context=True).enqueue(1)
    assert misfits() == set()
    release(lambda order, note="": [order, note])
    assert misfits() == set()
    drain()
    ceases.refresh()
    assert ceases.return_value == [1, ""]
    begins = release(lambda order: None).enqueue(2)
    release(lambda context, order: [context.attempt, order], takes_context=True)
    assert misfits() == set()
    drain()
    begins.refresh()
    assert begins.return_value == [1, 2]
