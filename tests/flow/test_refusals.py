"""Calls that cannot be carried out: each has its own error, a sentence that helps, and writes nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from django_ayework import (
    InvalidWorkId,
    NotEncodable,
    PayloadTooLarge,
    UnknownWorkType,
    cancel,
    change_priority,
    change_queue,
    complete,
    delete_chains,
    dependency,
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
from tests.app.models import Order
from tests.app.works import add
from tests.flow.kit import Opaque

pytestmark = pytest.mark.django_db


@work(name="t.bad.keep")
def keep(order: Any = None, **more: Any) -> None: ...


MISFITS: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown name": (
        lambda: enqueue("shop.adds", {"a": 1, "b": 2}),
        "no work is named 'shop.adds'. Did you mean 'shop.add'? A work is known once its app is in",
    ),
    "by name": (
        lambda: enqueue("shop.add", {"a": 1}),
        "shop.add: missing a required argument: 'b'; expected shop.add(a, b)",
    ),
    "options at the type": (
        lambda: add.enqueue(a=1, b=2, delay=5),  # type: ignore[call-arg]
        "shop.add: got an unexpected keyword argument 'delay'; expected shop.add(a, b), "
        "got shop.add(a=…, b=…, delay=…). Did you mean enqueue(…, delay=…)?",
    ),
    "among options": (
        lambda: enqueue("shop.add", a=1, b=2),
        "expected the input of 'shop.add' as a mapping, such as enqueue('shop.add', {'a': …}), got a, b",
    ),
    "as keyword arguments": (
        lambda: enqueue("shop.add", kwargs={"a": 1, "b": 2}),  # type: ignore[call-overload]
        "expected the input of 'shop.add' as a mapping, such as enqueue('shop.add', {'a': …}), got kwargs",
    ),
    "misspelt": (
        lambda: enqueue("shop.add", {"a": 1, "b": 2}, dealy=5),
        "'dealy' is not a queueing option. Did you mean 'delay'",
    ),
    "list": (
        lambda: enqueue("shop.add", [1, 2]),
        "expected the input of 'shop.add' as a mapping of names to values",
    ),
    "input of a request": (
        lambda: enqueue(add(a=1, b=2), {"a": 1}),
        "expected the input only with a type name",
    ),
    "input of a type": (
        lambda: enqueue(add, {"a": 1, "b": 2}),
        "expected enqueue(work) to have a built work, got the type <WorkType shop.add> and its input; "
        "call the type: enqueue(add(…)), or give its name: enqueue('shop.add', {…}).",
    ),
}


@pytest.mark.parametrize(("call", "message"), MISFITS.values(), ids=MISFITS)
def test_a_name_or_arguments_that_do_not_fit(call, message):
    with pytest.raises((TypeError, UnknownWorkType)) as raised:
        call()
    assert str(raised.value).startswith(message)
    assert Work.objects.count() == 0


def test_a_list_of_works_is_refused_with_the_call_that_takes_one():
    with pytest.raises(TypeError, match=r"Did you mean enqueue_many\(\[…\]\)\?"):
        enqueue([add(a=1, b=2)])


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        (add, "<WorkType shop.add>. Call the type: add(…)."),
        (add.handler, "Is it a work? Write @work above add, and call it: add(…)."),
        (print, "got: <built-in function print>."),
        (None, "got: None."),
        (5, "got: 5."),
    ],
    ids=["type", "function", "builtin", "none", "number"],
)
def test_what_is_no_work(what, hint):
    for call in (partial(enqueue, what), partial(enqueue_many, [what])):
        with pytest.raises(
            TypeError, match=r"works built by calling their type, such as add\(a=1, b=2\), got"
        ) as raised:
            call()
        assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "path", "advice"),
    [
        ({"order": Opaque()}, "input['order']", "pass plain data"),
        ({"order": {"lines": [1, Opaque()]}}, "input['order']['lines'][1]", "pass plain data"),
        ({"order": Order(pk=7)}, "input['order']", "pass its primary key (.pk) and load it in the handler"),
        ({"order": print}, "input['order']", "pass its dotted name"),
        ({"extra": Opaque()}, "input['extra']", "pass plain data"),
    ],
    ids=["object", "nested", "model", "function", "keyword"],
)
def test_an_argument_that_cannot_be_stored(arguments, path, advice):
    with pytest.raises(NotEncodable) as raised:
        enqueue(keep(**arguments))
    assert raised.value.path == path
    assert advice in str(raised.value)
    assert str(raised.value).startswith("the input of 't.bad.keep' cannot be stored: ")
    assert isinstance(raised.value, TypeError)
    with pytest.raises(NotEncodable, match=re.escape(path)):
        enqueue(dependency(["x"], [keep(**arguments)]))
    assert Work.objects.count() == 0


def test_an_input_that_is_too_large(configure):
    configure(MAX_PAYLOAD=30)
    with pytest.raises(PayloadTooLarge) as raised:
        enqueue(keep(order="x" * 30))
    assert str(raised.value) == (
        "expected the input of 't.bad.keep' to have at most 30 characters once encoded "
        "(AYEWORK['MAX_PAYLOAD']), got: 42; store it elsewhere and pass a reference."
    )
    assert isinstance(raised.value, ValueError)
    assert enqueue(keep(order="x" * 18)).state() is not None


@pytest.mark.parametrize(
    "call",
    [
        *(cancel, complete, explain, retry, trigger),
        *(partial(change_priority, priority=1), partial(change_queue, queue="mail")),
    ],
)
@pytest.mark.parametrize(
    "form", [lambda handle: handle, lambda handle: UUID(handle.id), lambda handle: [handle.id]]
)
def test_a_work_that_is_not_named_by_its_id(call, form):
    handle = enqueue(add(a=1, b=2))
    named = form(handle)
    with pytest.raises(InvalidWorkId) as refusal:
        call(named)
    assert str(refusal.value) == (
        f"expected the id of a work as a text, got: {named!r}. Pass .id of a handle, or str(…) of a UUID."
    )
    assert handle.state().status == "pending"


# --- async callers --------------------------------------------------------------------------------------


CALLS: list[tuple[str, Callable[[], Any]]] = [
    ("enqueue", lambda: enqueue(add(a=1, b=2))),
    ("enqueue", lambda: add.enqueue(a=1, b=2)),
    ("enqueue", lambda: enqueue("shop.add", {"a": 1, "b": 2}, delay=5)),
    ("enqueue", lambda: enqueue(add(a=1, b=2), on_commit=True)),
    ("enqueue_many", lambda: enqueue_many([add(a=1, b=2), add(a=3, b=4)])),
    *((call.__name__, partial(call, "some-id")) for call in (cancel, complete, delete_chains, explain)),
    *((call.__name__, partial(call, "some-id")) for call in (retry, trigger)),
    ("limit", lambda: limit("shop.add", weight=5)),
    ("pause", lambda: pause(queue="mail")),
    ("resume", lambda: resume(queue="mail")),
    *((name, getattr(get_handle("some-id"), name)) for name in ("state", "result", "group", "chain")),
]


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_a_call_from_async_code_names_its_twin(name, call):
    async def act():
        call()

    with pytest.raises(SynchronousOnlyOperation) as refusal:
        asyncio.run(act())
    assert str(refusal.value) == (
        f"{name}() queries the database, so it cannot be called from async code; write await a{name}(…)."
    )
    assert not Work.objects.exists()
