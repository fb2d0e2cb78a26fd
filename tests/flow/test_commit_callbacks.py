"""Callbacks of a commit that code of the project's registers inside of the engine's own transaction."""

from contextlib import suppress
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from django_ayework import Context, enqueue, schedule, work
from django_ayework.define.schedules import schedules
from django_ayework.models import Firing, Work
from django_ayework.signals import work_queued, work_succeeded
from django_ayework.testing import running_worker, tick, time_travel
from tests.app.models import Order
from tests.app.works import add
from tests.fixtures import quick_polls  # noqa: F401
from tests.flow.kit import ONCE, connected
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("undeclared", "quick_polls")]


def fail() -> None:
    raise RuntimeError("no luck after the commit")


def test_one_of_a_schedules_function_that_raises_is_logged_and_the_firing_counts(caplog):
    queued: list[str] = []

    def run() -> Any:
        transaction.on_commit(fail)
        return add(a=1, b=2)

    def receive(work: Any, **more: Any) -> None:
        queued.append(work.id)

    schedule(name="t.flow.calls_back", every=60, run=run)
    try:
        tick()
        time_travel(60)
        with connected(receive, work_queued):
            assert tick() == 1
    finally:
        schedules.unregister("t.flow.calls_back")
    assert "no luck after the commit" in caplog.text
    assert queued == [Work.objects.get().id] == [Firing.objects.get().work_id]
    Work.objects.all().delete()


def test_one_of_a_function_that_appends_is_logged_and_the_outcomes_are_announced(caplog):
    ended: list[str] = []

    def append(before: int | None) -> int:
        transaction.on_commit(fail)
        return (before or 0) + 1

    @work(name="t.flow.appends")
    def appends(ctx: Context) -> Any:
        return ctx.result(1, append=append)

    def receive(work: Any, **more: Any) -> None:
        ended.append(work.id)

    with connected(receive, work_succeeded), running_worker(concurrency=1):
        handle = enqueue(appends())
        assert handle.group(timeout=20) == 1
        eventually(lambda: ended == [handle.id])
    assert "no luck after the commit" in caplog.text
    assert "came too late" not in caplog.text


def catch_an_error() -> None:
    with suppress(IntegrityError):
        Order.objects.create(pk=Order.objects.create(reference="first").pk)


def catch_a_deadlock() -> None:
    def deadlock(execute, sql, params, many, context):
        raise OperationalError(1213, "Deadlock found when trying to get lock")

    with connection.execute_wrapper(deadlock), connection.cursor() as cursor, suppress(OperationalError):
        cursor.execute("SELECT 1")


def close_the_connection() -> None:
    connection.close()


SPOILS = {
    "postgresql": [catch_an_error, close_the_connection],
    "mysql": [catch_a_deadlock, close_the_connection],
    "sqlite": [close_the_connection],
}


@pytest.mark.parametrize("spoil", SPOILS[connection.vendor])
def test_a_function_that_appends_and_spoils_the_transaction_fails_its_work_alone(spoil):
    def append(before: int | None) -> int:
        spoil()
        return 1

    @work(name="t.flow.spoils", retry=ONCE)
    def spoils(ctx: Context) -> Any:
        return ctx.result(1, append=append)

    handles = [enqueue(spoils()), enqueue(add(a=1, b=2))]
    with running_worker(concurrency=1):
        eventually(lambda: all(handle.state().ended_at for handle in handles))
    assert [handle.state().status for handle in handles] == ["dead", "success"]
    assert "expected the function given as append not to" in handles[0].state().error
