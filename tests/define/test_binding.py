"""Calling a type: the arguments are checked at once and kept by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import work


@work(name="tests.add")
def add(ctx, a: int, b: int = 2): ...


@work(name="tests.note")
def note(text: str, *, loud: bool = False, **labels): ...


def test_arguments_are_kept_by_name():
    assert add(1, b=3).input == add(1, 3).input == add(b=3, a=1).input == {"a": 1, "b": 3}


def test_defaults_are_not_stored():
    assert add(1).input == {"a": 1}
    assert note("x").input == {"text": "x"}


def test_extra_names_are_inputs_of_their_own():
    assert note("x", loud=True, colour="red").input == {"text": "x", "loud": True, "colour": "red"}


def test_extra_names_may_be_any_words():
    request = note("x", self=1, labels=2, name=3, kwargs=4)

    assert request.input == {"text": "x", "self": 1, "labels": 2, "name": 3, "kwargs": 4}


@pytest.mark.parametrize(
    ("call", "matter", "got"),
    [
        (lambda: add(), "missing a required argument: 'a'", "()"),
        (lambda: add(b=1), "missing a required argument: 'a'", "(b=…)"),
        (lambda: add(1, 2, 3), "too many positional arguments", "(…, …, …)"),
        (lambda: add(1, c=3), "got an unexpected keyword argument 'c'", "(…, c=…)"),
        (lambda: add(1, a=1), "multiple values for argument 'a'", "(…, a=…)"),
        (lambda: add(ctx=None, a=1), "got an unexpected keyword argument 'ctx'", "(ctx=…, a=…)"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would_and_what_came(call, matter, got):
    with pytest.raises(TypeError) as refusal:
        call()

    assert str(refusal.value) == f"tests.add: {matter}; expected tests.add(a, b=2), got tests.add{got}"


def test_the_expected_call_is_written_as_declared():
    with pytest.raises(TypeError, match=r"expected tests.note\(text, \*, loud=False, \*\*labels\)"):
        note()


def test_input_by_name_is_checked_in_the_same_way():
    assert add.build({"a": 1, "b": 3}).input == {"a": 1, "b": 3}
    with pytest.raises(TypeError, match=r"tests.add: missing .*; expected tests.add\(a, b=2\)"):
        add.build({})


def test_building_queues_nothing():
    """Without a database, queueing would fail."""
    assert add(1) is not None


def test_the_request_knows_its_type():
    request = add(1)

    assert request.type == add.name == "tests.add"
    assert repr(request) == f"<WorkRequest tests.add {request.id}>"


@given(
    st.lists(st.sampled_from(["text", "loud", "labels", "colour", "self", "name"]), unique=True).map(
        lambda names: {name: place for place, name in enumerate(names)}
    ),
    st.sampled_from([add, note]),
)
def test_a_call_by_name_is_bound_as_python_binds_it(arguments, work_type):
    try:
        bound = dict(work_type.signature.bind(**arguments).arguments)
    except TypeError:
        with pytest.raises(TypeError):
            work_type.build(arguments)
    else:
        bound.update(bound.pop("labels", {}))
        assert [*work_type.build(arguments).input.items()] == [*bound.items()]


def test_a_call_by_name_keeps_the_order_of_the_signature():
    assert list(add(b=1, a=2).input) == list(add.build({"b": 1, "a": 2}).input) == ["a", "b"]


def test_inputs_of_requests_are_not_the_mappings_that_they_were_made_of():
    given = {"a": 1, "b": 2}
    for _ in range(2):
        request = add.build(given)
        assert request.input == given
        assert request.input is not given
