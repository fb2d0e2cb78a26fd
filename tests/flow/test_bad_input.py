"""What can be wrong with what comes in: each has its own error, a sentence that helps, and loses nothing."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from django_ayework import (
    AyeworkError,
    NotEncodable,
    PayloadTooLarge,
    UnknownWorkType,
    dependency,
    enqueue,
    enqueue_many,
    work,
)
from django_ayework.models import Work
from tests.app.models import Order
from tests.app.works import add
from tests.flow.conftest import Configure
from tests.flow.kit import Opaque

pytestmark = pytest.mark.django_db


@work(name="t.bad.keep")
def keep(order: Any = None, **more: Any) -> None: ...


def test_an_unknown_work_name() -> None:
    with pytest.raises(UnknownWorkType) as raised:
        enqueue("shop.adds", {"a": 1, "b": 2})
    assert str(raised.value).startswith(
        "no work is named 'shop.adds'. Did you mean 'shop.add'? "
        "A work is known once its app is in INSTALLED_APPS and its works.py defines it, or imports the "
        "module that does. Works are loaded here from "
    )
    assert isinstance(raised.value, AyeworkError)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, "shop.add: missing a required argument: 'b'; expected shop.add(a, b)"),
        ((1, 2, 3), {}, "shop.add: too many positional arguments; expected shop.add(a, b)"),
        ((), {"a": 1, "b": 2, "c": 3}, "shop.add: got an unexpected keyword argument 'c'; expected"),
        ((1,), {"a": 1}, "shop.add: multiple values for argument 'a'; expected shop.add(a, b)"),
    ],
    ids=["missing", "too many", "unexpected", "twice"],
)
def test_arguments_that_do_not_fit(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError) as raised:
        add(*args, **kwargs)
    assert str(raised.value).startswith(message)
    assert Work.objects.count() == 0


def test_arguments_that_do_not_fit_by_name() -> None:
    with pytest.raises(TypeError, match=r"missing a required argument: 'b'; expected shop\.add\(a, b\)"):
        enqueue("shop.add", {"a": 1})


def test_an_input_among_the_options() -> None:
    with pytest.raises(
        TypeError, match=r"such as enqueue\('shop\.add', \{'a': …\}\), got a, b among the options"
    ):
        enqueue("shop.add", a=1, b=2)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"'dealy' is not a queueing option. Did you mean 'delay'"):
        enqueue("shop.add", {"a": 1, "b": 2}, dealy=5)  # type: ignore[call-overload]


def test_an_input_that_is_no_mapping() -> None:
    with pytest.raises(TypeError, match=r"expected the input of 'shop\.add' as a mapping of names to values"):
        enqueue("shop.add", [1, 2])  # type: ignore[call-overload]


def test_an_input_beside_a_built_work() -> None:
    with pytest.raises(TypeError, match="expected the input only with a type name"):
        enqueue(add(a=1, b=2), {"a": 1})  # type: ignore[call-overload]


def test_an_input_beside_a_type_that_was_not_called() -> None:
    with pytest.raises(TypeError) as refusal:
        enqueue(add, {"a": 1, "b": 2})  # type: ignore[call-overload]
    assert str(refusal.value) == (
        "expected enqueue(work) to have a built work, got the type <WorkType shop.add> and its input; "
        "call the type: enqueue(add(…)), or give its name: enqueue('shop.add', {…})."
    )


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        (add, "<WorkType shop.add>. Call the type: add(…)."),
        (add.handler, "Is it a work? Write @work above add, and call it: add(…)."),
    ],
    ids=["type", "function"],
)
def test_what_was_not_called_or_not_declared(what: Any, hint: str) -> None:
    for refused in (partial(enqueue, what), partial(enqueue_many, [what])):
        with pytest.raises(TypeError, match=re.escape(hint)):
            refused()


@pytest.mark.parametrize("what", [add, print, None, 5], ids=["type", "function", "none", "number"])
def test_what_is_no_work(what: Any) -> None:
    with pytest.raises(TypeError, match=r"works built by calling their type, such as add\(a=1, b=2\), got"):
        enqueue(what)


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
def test_an_argument_that_cannot_be_stored(arguments: Any, path: str, advice: str) -> None:
    with pytest.raises(NotEncodable) as raised:
        enqueue(keep(**arguments))
    assert raised.value.path == path
    assert path in str(raised.value)
    assert advice in str(raised.value)
    assert str(raised.value).startswith("the input of 't.bad.keep' cannot be stored: ")
    assert isinstance(raised.value, TypeError)
    assert Work.objects.count() == 0


def test_an_argument_of_a_gated_work_that_cannot_be_stored() -> None:
    with pytest.raises(NotEncodable, match=r"input\['order'\]"):
        enqueue(dependency(["x"], [keep(order=Opaque())]))
    assert Work.objects.count() == 0


def test_an_input_that_is_too_large(configure: Configure) -> None:
    configure(MAX_PAYLOAD=30)
    with pytest.raises(PayloadTooLarge) as raised:
        enqueue(keep(order="x" * 30))
    assert str(raised.value) == (
        "expected the input of 't.bad.keep' to have at most 30 characters once encoded "
        "(AYEWORK['MAX_PAYLOAD']), got: 42; store it elsewhere and pass a reference."
    )
    assert isinstance(raised.value, ValueError)
    assert enqueue(keep(order="x" * 18)).state() is not None
