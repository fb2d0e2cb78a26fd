"""Calls that cannot be carried out: each has its own error, a sentence that helps, and writes nothing."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from django_ayework import cancel, dependency, enqueue, enqueue_many, errors, get_handle, retry, trigger, work
from django_ayework.api import change_priority, change_queue, complete, delete_chains, explain
from django_ayework.flow.controls import limit, pause, resume
from django_ayework.models import Work
from tests.app.models import Order
from tests.app.works import add
from tests.flow.kit import Opaque

#: They are refused before a statement is sent.
pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@work(name="t.bad.keep")
def keep(order: Any = None, **more: Any) -> None: ...


@work(name="t.bad.with_context")
def with_context(context, a: int) -> None: ...  # type: ignore[no-untyped-def]


MAPPING = "expected the input of 'shop.add' as a mapping"
LIKE = f"{MAPPING}, such as enqueue('shop.add', {{'a': …}}), got"
BUILT = "works built by calling their type, such as add(a=1, b=2), got"
#: Names, arguments and works that do not fit, and the beginning of what is said.
MISFITS: dict[str, tuple[Any, str]] = {
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
    "a first parameter named context": (
        lambda: with_context(a=1),  # type: ignore[call-arg]
        "t.bad.with_context: missing a required argument: 'context'; expected t.bad.with_context(context, a)"
        ", got t.bad.with_context(a=…). If 'context' is the context, put it first, and call it ctx or "
        "annotate it with Context",
    ),
    "among options": (lambda: enqueue("shop.add", a=1, b=2), f"{LIKE} a, b"),
    "as keyword arguments": (lambda: enqueue("shop.add", kwargs={"a": 1, "b": 2}), f"{LIKE} kwargs"),  # type: ignore[call-overload]
    "misspelt": (
        lambda: enqueue("shop.add", {"a": 1, "b": 2}, dealy=5),
        "'dealy' is not a queueing option. Did you mean 'delay'",
    ),
    "list": (lambda: enqueue("shop.add", [1, 2]), f"{MAPPING} of names to values"),
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
    with pytest.raises((TypeError, errors.UnknownWorkType)) as raised:
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
    ],
    ids=["type", "function", "builtin", "none"],
)
def test_what_is_no_work(what, hint):
    for call in (partial(enqueue, what), partial(enqueue_many, [what])):
        with pytest.raises(TypeError, match=re.escape(BUILT)) as raised:
            call()
        assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"order": {"lines": [1, Opaque()]}}, "input['order']['lines'][1]"),
        ({"extra": Order(pk=7)}, "input['extra']"),
    ],
    ids=["nested", "keyword"],
)
def test_an_argument_that_cannot_be_stored(arguments, path):
    with pytest.raises(errors.NotEncodable) as raised:
        enqueue(keep(**arguments))
    assert raised.value.path == path
    assert str(raised.value).startswith("the input of 't.bad.keep' cannot be stored: ")
    assert isinstance(raised.value, TypeError)
    with pytest.raises(errors.NotEncodable, match=re.escape(path)):
        enqueue(dependency(["x"], [keep(**arguments)]))
    assert Work.objects.count() == 0


def test_an_input_that_is_too_large(configure):
    configure(MAX_PAYLOAD=30)
    with pytest.raises(errors.PayloadTooLarge) as raised:
        enqueue(keep(order="x" * 30))
    assert str(raised.value) == (
        "expected the input of 't.bad.keep' to have at most 30 characters once encoded "
        "(AYEWORK['MAX_PAYLOAD']), got: 42; store it elsewhere and pass a reference."
    )
    assert isinstance(raised.value, ValueError)
    assert enqueue(keep(order="x" * 18)).state() is not None


WHOLE = "to be a whole number from -2147483647 to 2147483647, got:"
TEXT = "to be a text of 1 to 64 printable characters, got:"
QUEUE = TEXT.replace(" of", " without commas, outer spaces or a leading hyphen of")
NAIVE = (
    "to be an aware datetime, got the naive datetime.datetime(2030, 1, 1, 0, 0); "
    "use django.utils.timezone.now() or make_aware()."
)
KEY = "to have a primary key of at most 64 characters without NUL"
#: An option, a value that cannot be used, and what is expected of it.
VALUES = [
    ("delay", -1, "to be 0 seconds or more, got: -1."),
    ("timeout", 0, "to be more than 0 seconds, got: 0."),
    ("lease", timedelta(0), "to be more than 0 seconds, got: datetime.timedelta(0)."),
    ("expires", float("nan"), "to be 0 seconds or more, got: nan."),
    ("timeout", True, "to be seconds (a number) or a timedelta, got: True (bool)."),
    ("priority", 1.5, f"{WHOLE} 1.5."),
    ("priority", "high", f"{WHOLE} 'high'."),
    ("retry", {"attempts": 2}, "to be a Retry(...), such as Retry(attempts=5), got: {'attempts': 2}."),
    *(("queue", name, f"{QUEUE} {name!r}.") for name in ("", "mail,sms", " mail", "-mail")),
    ("fairness", "", f"{TEXT} ''."),
    ("run_at", "noon", "to be an aware datetime, got: 'noon' (str)."),
    ("run_at", datetime(2030, 1, 1), NAIVE),
    ("deadline", datetime(2030, 1, 1), NAIVE),
    ("about", 7, "to be a saved model object, got: 7."),
    ("about", ("shop.order", 7), "to be a saved model object, got: ('shop.order', 7)."),
    ("about", Order(reference="A1"), "to be a saved model object, got: <Order: A1>."),
    ("about", Order, f"to be a saved model object, got: {Order!r}."),
    ("about", Order(pk="x" * 65, reference="A1"), f"{KEY}, got: {'x' * 65!r}."),
    ("about", Order(pk="a\x00b", reference="A1"), rf"{KEY}, got: 'a\x00b'."),
]


@pytest.mark.parametrize(("option", "value", "expected"), VALUES)
def test_a_value_of_an_option_that_cannot_be_used(option, value, expected):
    with pytest.raises((TypeError, ValueError)) as raised:
        enqueue(add(a=1, b=2), **{option: value})
    assert str(raised.value) == f"expected {option} {expected}"


CALLS_BY_ID = (
    *(cancel, complete, delete_chains, explain, retry, trigger),
    partial(change_priority, priority=1),
    partial(change_queue, queue="mail"),
)


@pytest.mark.parametrize("id", ["a\x00b", "\ud800"])
def test_no_work_has_an_id_that_the_database_refuses(id):
    for call in CALLS_BY_ID:
        with pytest.raises(errors.InvalidWorkId, match="printable characters"):
            call(id)


def test_a_work_that_is_not_named_by_its_id():
    handle = enqueue(add(a=1, b=2))
    for call in CALLS_BY_ID:
        if call is delete_chains:  # it takes handles
            continue
        for named in (handle, UUID(handle.id), [handle.id]):
            with pytest.raises(errors.InvalidWorkId) as refusal:
                call(named)
            assert str(refusal.value) == (
                f"expected the id of a work as a text, got: {named!r}. "
                "Pass .id of a handle, or str(…) of a UUID."
            )
    assert handle.state().status == "pending"


#: Calls that async code does by their twins.
CALLS: list[tuple[str, Any]] = [
    ("enqueue", lambda: enqueue(add(a=1, b=2))),
    ("enqueue", lambda: add.enqueue(a=1, b=2)),
    ("enqueue", lambda: enqueue("shop.add", {"a": 1, "b": 2}, delay=5)),
    ("enqueue", lambda: enqueue(add(a=1, b=2), on_commit=True)),
    ("enqueue_many", lambda: enqueue_many([add(a=1, b=2), add(a=3, b=4)])),
    *((call.__name__, partial(call, "some-id")) for call in (cancel, complete, delete_chains, explain)),
    *((call.__name__, partial(call, "some-id")) for call in (retry, trigger)),
    *(("limit", lambda: limit("shop.add", weight=5)), ("pause", lambda: pause(queue="mail"))),
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
