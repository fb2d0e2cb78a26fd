"""Calls from async code that query the database name the twin to await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from django_ayework import (
    cancel,
    complete,
    delete_chains,
    enqueue,
    enqueue_many,
    explain,
    get_handle,
    limit,
    pause,
    resume,
    retry,
    trigger,
    work,
)
from django_ayework.models import Work
from tests.app.works import add

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: dict[str, Callable[[], Any]] = {
    "enqueue": lambda: enqueue(add(a=1, b=2)),
    "enqueue ": lambda: add.enqueue(a=1, b=2),
    "enqueue  ": lambda: enqueue("shop.add", {"a": 1, "b": 2}, delay=5),
    "enqueue   ": lambda: enqueue(add(a=1, b=2), on_commit=True),
    "enqueue_many": lambda: enqueue_many([add(a=1, b=2), add(a=3, b=4)]),
    "cancel": lambda: cancel("some-id"),
    "complete": lambda: complete("some-id"),
    "delete_chains": lambda: delete_chains("some-id"),
    "explain": lambda: explain("some-id"),
    "limit": lambda: limit("shop.add", weight=5),
    "pause": lambda: pause(queue="mail"),
    "resume": lambda: resume(queue="mail"),
    "retry": lambda: retry("some-id"),
    "trigger": lambda: trigger("some-id"),
    "state": lambda: get_handle("some-id").state(),
    "result": lambda: get_handle("some-id").result(),
    "group": lambda: get_handle("some-id").group(),
    "chain": lambda: get_handle("some-id").chain(),
}


@pytest.mark.parametrize(("name", "call"), CALLS.items(), ids=list(CALLS))
def test_a_call_from_async_code_names_its_twin(name: str, call: Callable[[], Any]) -> None:
    async def act() -> None:
        call()

    name = name.strip()
    with pytest.raises(SynchronousOnlyOperation) as refusal:
        asyncio.run(act())
    assert str(refusal.value) == (
        f"{name}() queries the database, so it cannot be called from async code; write await a{name}(…)."
    )
    assert not Work.objects.exists()


def test_an_async_handler_that_enqueues_is_told_so(drain: Any) -> None:
    @work(name="t.async.enqueues")
    async def enqueues() -> None:
        enqueue(add(a=1, b=2))

    handle = enqueue(enqueues())
    drain(limit=1, raises=False)
    assert "write await aenqueue(…)." in (handle.state().last_error or "")  # type: ignore[union-attr]
