"""Middlewares within an attempt's transaction, and around a handler that keeps its thread or loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from django_ayework import Context
from tests.app.models import Order
from tests.attempts.middlewares import awaited, in_a_worker, plain, run, steps

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh() -> None:
    steps.clear()


def wrote(ctx: Context, call_next: Any) -> Any:
    Order.objects.create(reference="middleware")
    steps.append(f"depth {len(connection.atomic_blocks)}")
    return call_next()


@pytest.mark.parametrize("outer", [plain, awaited])
def test_those_of_an_atomic_work_run_inside_its_transaction(outer):
    depth = len(connection.atomic_blocks)

    def breaks() -> None:
        raise ValueError("undo")

    run(breaks, atomic=True, middleware=[outer("m"), wrote])
    assert f"depth {depth + 1}" in steps
    assert not Order.objects.exists()


def test_those_of_a_staged_work_surround_the_whole_attempt():
    def staged(ctx: Context) -> Any:
        with ctx.prepare():
            steps.append("prepare")
        with ctx.complete():
            steps.append("complete")
            return ctx.result("done")

    state = run(staged, middleware=[plain("m"), awaited("n")])
    assert state.result == "done"
    assert steps == ["m before", "n before", "prepare", "complete", "n after", "m after"]


def test_an_error_after_complete_undoes_it():
    def staged(ctx: Context) -> Any:
        with ctx.complete():
            Order.objects.create(reference="undone")
            return ctx.result("done")

    def raises(ctx: Context, call_next: Any) -> Any:
        call_next()
        raise LookupError("after all")

    assert run(staged, middleware=[raises]).error == "LookupError: after all"
    assert not Order.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [plain, awaited])
def test_a_plain_handler_keeps_its_thread_and_an_async_one_its_loop(configure, kind):
    """So database connections, and the loop's own objects, are those they are without."""
    configure()

    def where() -> str:
        with transaction.atomic():
            Order.objects.create(reference="here")
        return threading.current_thread().name

    async def awhere() -> str:
        await Order.objects.acreate(reference="here")
        return threading.current_thread().name

    assert in_a_worker(where, middleware=[kind("m")]).result == "ayework-slot-0"
    assert in_a_worker(awhere, middleware=[kind("m")]).result == "ayework-async"
    assert Order.objects.count() == 2
