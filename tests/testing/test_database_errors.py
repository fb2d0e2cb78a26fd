"""A handler that meets a database error spoils neither its test's transaction nor what ran before it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from django_ayework import Retry, WorkState, enqueue, work
from django_ayework.testing import perform
from tests.app.models import Order
from tests.app.works import add

pytestmark = pytest.mark.django_db

ONCE = Retry(attempts=1)


def run(request: Any, drain: Any) -> WorkState:
    handle = enqueue(request, retry=ONCE)
    drain(raises=False)
    state = handle.state()
    assert state is not None
    return state


def taken() -> Order:
    return Order.objects.create(reference="taken")


def bad_query() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM no_such_table")


@work(name="t.errors.duplicate")
def duplicate(pk: int) -> None:
    Order.objects.create(reference="undone")
    Order.objects.create(pk=pk, reference="again")


@work(name="t.errors.translated")
def translated(pk: int) -> None:
    try:
        bad_query()
    except DatabaseError as error:
        raise ValueError("translated") from error


@work(name="t.errors.translated_model")
def translated_model(pk: int) -> None:
    try:
        Order.objects.create(pk=pk, reference="again")
    except IntegrityError as error:
        raise ValueError("translated") from error


@work(name="t.errors.swallowed")
def swallowed(pk: int) -> str:
    try:
        with transaction.atomic():
            Order.objects.create(pk=pk, reference="again")
    except IntegrityError:
        Order.objects.create(reference="instead")
    return "done"


@work(name="t.errors.marked")
def marked(pk: int) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        raise ValueError("marked")


@work(name="t.errors.raises")
def raises() -> None:
    Order.objects.create(reference="written")
    raise ValueError("after the write")


@work(name="t.errors.async")
async def aduplicate(pk: int) -> None:
    await Order.objects.acreate(pk=pk, reference="again")


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (duplicate, "IntegrityError"),
        (aduplicate, "IntegrityError"),
        (translated, "ValueError: translated"),
        (translated_model, "ValueError: translated"),
        (marked, "ValueError: marked"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_test_goes_on_and_the_error_is_the_handlers(handler: Any, error: str, drain: Any) -> None:
    order = taken()
    before = enqueue(add(a=1, b=2))
    state = run(handler(pk=order.pk), drain)
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert (state.error or "").startswith(error)
    assert before.result(timeout=0) == 3
    assert list(Order.objects.values_list("reference", flat=True)) == ["taken"]
    after = enqueue(add(a=3, b=4))
    drain()
    assert after.result(timeout=0) == 7


def test_an_error_that_the_handler_deals_with_is_its_own_affair(drain: Any) -> None:
    order = taken()
    assert run(swallowed(pk=order.pk), drain).result == "done"
    assert sorted(Order.objects.values_list("reference", flat=True)) == ["instead", "taken"]


def test_any_other_error_keeps_what_was_written(drain: Any) -> None:
    assert run(raises(), drain).error == "ValueError: after the write"
    assert Order.objects.get().reference == "written"


def test_perform_leaves_the_transaction_whole_too() -> None:
    order = taken()
    assert isinstance(perform(duplicate(pk=order.pk)).error, IntegrityError)
    assert isinstance(perform(translated(pk=order.pk)).error, ValueError)
    assert Order.objects.count() == 1
