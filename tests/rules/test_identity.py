"""Ids of works, the keys of Dedup, and the units that an output asks for."""

import uuid
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Dedup
from django_ayework.errors import AyeworkError, InvalidOption, InvalidWorkId
from django_ayework.rules.identity import Unit, require_work_id, units_of, uuid7

ticks = st.integers(0, 2**60 - 1)
randoms = st.integers(0, 2**62 - 1)


def test_the_example_of_rfc_9562():
    assert uuid7(0x017F22E279B0CC3, 0x18C4DC0C0C07398F) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(ticks, randoms)
def test_an_id_is_a_usable_uuid_of_version_7_that_holds_its_parts(tick, random):
    text = uuid7(tick, random)
    made = uuid.UUID(text)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert (made.int >> 80) << 12 | made.int >> 64 & 0xFFF == tick
    assert made.int & 2**62 - 1 == random
    assert str(made) == text == require_work_id(text)


@given(st.tuples(ticks, randoms), st.tuples(ticks, randoms))
def test_ids_sort_as_text_by_their_time_then_by_what_follows(first, second):
    assert (uuid7(*first) < uuid7(*second)) is (first < second)


@pytest.mark.parametrize("id", ["x", "order-17", "a" * 64, "заказ:1", "ünïcödé", "😀", "a/b?c=d#e", "'\"--;"])
def test_words_up_to_64_characters_are_ids(id):
    assert require_work_id(id) == id


REFUSED = ["", "a" * 65, "two words", "tab\there", "line\n", "nul\x00", "escape\x1b", "no\u00a0break"]
REFUSED += ["\u2028", "\ud800", "\u200b", 7, None, b"bytes", ["list"]]


@pytest.mark.parametrize("id", REFUSED)
def test_anything_else_is_refused(id):
    with pytest.raises(InvalidWorkId, match="1 to 64 printable characters without spaces, got: ") as refusal:
        require_work_id(id)
    assert isinstance(refusal.value, AyeworkError)
    assert isinstance(refusal.value, ValueError)
    assert refusal.value.id == (id if isinstance(id, str) else None)


@given(st.text(max_size=70))
def test_an_accepted_id_is_printable_short_and_without_spaces(text):
    try:
        require_work_id(text)
    except InvalidWorkId:
        return
    assert 1 <= len(text) <= 64
    assert text.isprintable()
    assert not any(character.isspace() for character in text)
    assert text.encode("utf-8").decode("utf-8") == text


@pytest.mark.parametrize("key", ["", "k" * 191, "a\nb", "nul\x00", " k", "k ", 5, None, b"k"])
def test_a_key_that_does_not_fit_its_column_everywhere_is_refused(key):
    with pytest.raises(InvalidOption, match=r"expected Dedup's key to be .* got: ") as refusal:
        Dedup(key)
    assert isinstance(refusal.value, AyeworkError)


@pytest.mark.parametrize("key", ["k", "k" * 190, "order 7", "Straße 🚀"])
def test_any_printable_text_is_a_key_and_looks_at_works_that_have_not_ended(key):
    dedup = Dedup(key)
    assert (dedup.key, dedup.scope, dedup.window, dedup.exclude) == (key, "incomplete", None, ())


@pytest.mark.parametrize(("scope", "hint"), [("incomplet", "Did you mean 'incomplete'"), ("Any", "'any'")])
def test_an_unknown_scope_is_refused_with_the_nearest_one(scope, hint):
    with pytest.raises(InvalidOption, match=rf"expected Dedup's scope to be .* got: '{scope}'.*{hint}"):
        Dedup("k", scope=scope)


@pytest.mark.parametrize(("window", "kept"), [(5, 5.0), (0.05, 0.05), (timedelta(minutes=1), 60.0)])
def test_a_window_is_seconds_or_a_timedelta(window, kept):
    assert Dedup("k", window=window).window == kept


def test_a_window_that_cannot_be_used_is_refused():
    for window in (0, timedelta(), -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected Dedup's window to be"):
            Dedup("k", window=window)
    with pytest.raises(TypeError, match="expected Dedup's window to be seconds"):
        Dedup("k", window="soon")


@pytest.mark.parametrize(
    ("exclude", "ids"),
    [
        ("one", ("one",)),
        (["one", "two", "one"], ("one", "two")),
        (SimpleNamespace(id="one"), ("one",)),
        ((SimpleNamespace(id="one"), "two"), ("one", "two")),
        ((id for id in ("one",)), ("one",)),
    ],
)
def test_ids_and_handles_can_be_excluded(exclude, ids):
    assert Dedup("k", exclude=exclude).exclude == ids


def test_only_ids_can_be_excluded_and_equal_ones_are_equal():
    with pytest.raises(InvalidWorkId):
        Dedup("k", exclude=[7])
    assert len({Dedup("k", exclude=["a"]), Dedup("k", exclude=("a",)), Dedup("k", exclude="b")}) == 2


# --- units of an output ---------------------------------------------------------------------------------


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
