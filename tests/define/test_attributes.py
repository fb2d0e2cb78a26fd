"""Attributes that types, requests, handles and instructions do not have, and the ones that are meant."""

import copy
import pickle

import pytest

from django_ayework import dependency, get_handle
from django_ayework.define.types import WorkType
from tests.app.works import add
from tests.define.declared import context


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        ("delay", "add.enqueue(…)"),
        ("apply_async", "enqueue(add(…), delay=…)"),
        ("send", "add.enqueue(…)"),
        ("enqeue", "'enqueue'"),
        ("func", "add.handler(…)"),
        ("s", "add(…)"),
    ],
)
def test_an_attribute_of_a_type_named_as_elsewhere(foreign, own):
    with pytest.raises(AttributeError) as refusal:
        getattr(add, foreign)
    assert str(refusal.value) == f"'WorkType' object has no attribute {foreign!r}. Did you mean {own}?"


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        ("get", "handle.result(timeout=…)"),
        ("status", "handle.state().status"),
        ("ready", "handle.state().status in Status.terminal"),
        ("task_id", "handle.id"),
        ("revoke", "cancel(handle.id)"),
        ("resutl", "'result'"),
    ],
)
def test_an_attribute_of_a_handle_named_as_elsewhere(foreign, own):
    with pytest.raises(AttributeError) as refusal:
        getattr(get_handle("some-id"), foreign)
    assert str(refusal.value) == f"'Handle' object has no attribute {foreign!r}. Did you mean {own}?"


@pytest.mark.parametrize(
    ("foreign", "own"),
    [("enqueue", "enqueue(work)"), ("delay", "enqueue(work)"), ("result", "enqueue(work).result()")],
)
def test_an_attribute_of_a_request_is_a_function(foreign, own):
    request = add(a=1, b=2)
    with pytest.raises(AttributeError) as refusal:
        getattr(request, foreign)
    assert str(refusal.value) == f"'WorkRequest' object has no attribute {foreign!r}. Did you mean {own}?"


def test_instructions_without_next_say_what_has_it():
    ctx = context()
    for instruction, name in [
        (ctx.result(1), "result"),
        (ctx.void(), "void"),
        (ctx.continue_with(add(a=1, b=2)), "continue_with"),
    ]:
        with pytest.raises(
            AttributeError, match=rf"^ctx\.{name}\(…\) has no \.next, which is of ctx\.queue\(…\) only"
        ):
            instruction.next([add(a=1, b=2)])
    assert not hasattr(dependency([], []), "next")


@pytest.mark.parametrize("thing", [add, get_handle("some-id")], ids=["type", "handle"])
@pytest.mark.parametrize("name", ["zzz", "_private", "__len__"])
def test_an_attribute_like_no_other_is_missed_in_the_usual_words(thing, name):
    kind = "WorkType" if isinstance(thing, WorkType) else "Handle"
    with pytest.raises(AttributeError, match=rf"^'{kind}' object has no attribute '{name}'$"):
        getattr(thing, name)
    assert not hasattr(thing, name)


def test_types_and_handles_are_copied_and_pickled():
    handle = get_handle("some-id")
    request = add(a=1, b=2)

    assert copy.deepcopy(request).id == pickle.loads(pickle.dumps(request)).id == request.id
    assert copy.copy(handle) == pickle.loads(pickle.dumps(handle)) == handle
    assert copy.copy(add).name == "shop.add"
