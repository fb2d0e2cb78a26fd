"""Which units an output asks for, in all its forms, and what of it is dropped."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.identity import Unit, units_of


def test_a_mapping_gives_each_unit_its_input():
    read = units_of({"a": {"size": 1}, "b": {}, "c": None})
    assert read.units == (Unit("a", {"size": 1}), Unit("b", {}), Unit("c", {}))
    assert read.dropped == ()


@pytest.mark.parametrize("value", ["text", 7, ["size", 1], {1: "a key that is no name"}])
def test_one_bad_value_spoils_a_whole_mapping(value):
    read = units_of({"a": {}, "b": value})
    assert read.units == ()
    assert len(read.dropped) == 1
    assert repr(value) in read.dropped[0]


@pytest.mark.parametrize(
    ("output", "units"),
    [
        (["a", b"b"], [Unit("a"), Unit("b")]),
        (("a", "é".encode()), [Unit("a"), Unit("é")]),
        (["a", ("b", {"x": 1}), ["c", None, None]], [Unit("a"), Unit("b", {"x": 1}), Unit("c")]),
        ([["a", {}, {"priority": 1}, 5]], [Unit("a", priority=5)]),  # the fourth element overrules
        ([["a", {}, {"priority": 1}, None]], [Unit("a", priority=1)]),  # null does not
        (["key", ["key", {"data": "x"}, {"priority": 10}]], [Unit("key", {"data": "x"}, priority=10)]),
    ],
    ids=["list", "tuple", "mixed", "fourth element", "null", "named twice"],
)
def test_lists_and_tuples_give_units(output, units):
    assert units_of(output).units == tuple(units)


def test_the_documented_example_of_lists():
    options = [["c", {}, {"priority": 10}], ["d", {}, {"delay": 90}], ["e", {}, {}, 20.0]]
    read = units_of([["a"], ["b", {"k": "v"}], *options])
    assert read.units == (
        *(Unit("b", {"k": "v"}), Unit("c", priority=10)),
        *(Unit("d", delay=90.0), Unit("e", priority=20)),
    )
    assert len(read.dropped) == 1
    assert "['a']" in read.dropped[0]


def test_priorities_are_rounded_and_kept_within_what_can_be_stored():
    output = [["a", {}, {}, 10.6], ["b", {}, {}, -10.6], ["c", {}, {}, 1e12], ["d", {}, {}, -(10**400)]]
    assert [unit.priority for unit in units_of(output).units] == [11, -11, 2**31 - 1, -(2**31 - 1)]


def test_delays_are_numbers_or_timedeltas_and_never_negative():
    read = {0.9: 0.9, -5: 0.0, timedelta(minutes=1): 60.0, None: 0.0, 10**400: timedelta.max.total_seconds()}
    output = [[f"unit-{n}", {}, {"delay": delay, "other": "key"}] for n, delay in enumerate(read)]
    assert [unit.delay for unit in units_of(output).units] == list(read.values())


BAD_NAMES = ["", "x" * 191, "nul\x00", "half \ud800", "space ", b"\xff"]
BAD_OPTIONS = [{"priority": "high"}, {"priority": True}, {"priority": float("nan")}, {"delay": "soon"}]
BAD_OPTIONS += [{"delay": float("inf")}, "metadata"]
BAD_LISTS = [[], ["only a name"], [7, {}], ["", {}], ["a", "input"], ["a", {1: 2}], ["a", {}, {}, "5"]]
BAD_LISTS += [["a", {}, {}, False], ["a", {}, {"priority": "high"}, 5]]


@pytest.mark.parametrize(
    "element", [7, None, {"a": {}}, *BAD_NAMES, *BAD_LISTS, *(["a", {}, options] for options in BAD_OPTIONS)]
)
def test_a_bad_element_is_dropped_and_the_others_stay(element):
    read = units_of(["before", element, "after"])
    assert [unit.name for unit in read.units] == ["before", "after"]
    assert len(read.dropped) == 1


@pytest.mark.parametrize("output", ["a", b"a", 7, None, {"a"}, object()])
def test_what_is_neither_mapping_nor_list_gives_nothing(output):
    read = units_of(output)
    assert read.units == ()
    assert "expected an output to be a mapping or a list" in read.dropped[0]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=20,
)


@given(anything)
def test_no_output_raises_and_every_element_is_a_unit_or_reported(output):
    read = units_of(output)
    names = [unit.name for unit in read.units]
    assert len(names) == len(set(names))
    if isinstance(output, list | tuple):
        assert len(read.units) + len(read.dropped) <= len(output)
        assert bool(read.units or read.dropped) == bool(output)
    assert all(unit.priority is None or abs(unit.priority) < 2**31 for unit in read.units)
    assert all(unit.delay >= 0 for unit in read.units)
