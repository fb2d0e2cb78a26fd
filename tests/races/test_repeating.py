"""What is repeated by itself, and what is the caller's to repeat."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_ayework import cancel, enqueue
from django_ayework.models import Work
from django_ayework.store.database import is_contention
from tests.races.works import step

#: How a session says how long it waits for a lock, as briefly as it can.
BRIEFLY = {
    "postgresql": "SET lock_timeout = '50ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
    "sqlite": "PRAGMA busy_timeout = 50",
}


def elsewhere(act: Callable[[], object]) -> None:
    """Act in a session of its own."""

    def run() -> None:
        try:
            act()
        finally:
            connections.close_all()

    thread = Thread(target=run)
    thread.start()
    thread.join(30)


def test_a_lock_timeout_is_the_callers_at_once() -> None:
    handle = enqueue(step(), delay=3600)
    refused: list[OperationalError] = []
    raised: list[OperationalError] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except OperationalError as error:
            refused.append(error)
            raise

    def wait_briefly() -> None:
        with connection.cursor() as cursor:
            cursor.execute(BRIEFLY[connection.vendor])
        with connection.execute_wrapper(note):
            try:
                cancel(handle.id)
            except OperationalError as error:
                raised.append(error)

    with transaction.atomic():
        Work.objects.select_for_update().get(id=handle.id)
        elsewhere(wait_briefly)
    assert is_contention(raised[0])
    assert refused == raised


@pytest.mark.vendors("sqlite")
def test_a_transaction_that_is_behind_another_one_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says that the database is locked, too, but at once."""
    handle = enqueue(step(), delay=3600)
    monkeypatch.setattr(connection, "transaction_mode", "DEFERRED")
    others: list[object] = []

    def overtake(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE") and not others:
            elsewhere(lambda: others.append(enqueue(step())))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(overtake):
        cancel(handle.id)
    assert len(others) == 1
    assert Work.objects.get(id=handle.id).status == "cancelled"
