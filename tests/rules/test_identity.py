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

ticks_and_randoms = st.tuples(st.integers(0, 2**60 - 1), st.integers(0, 2**62 - 1))


def test_the_example_of_rfc_9562():
    assert uuid7(0x017F22E279B0CC3, 0x18C4DC0C0C07398F) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(ticks_and_randoms, ticks_and_randoms)
def test_an_id_is_a_usable_uuid_7_that_holds_its_parts_and_sorts_as_text_by_them(parts, others):
    text = uuid7(*parts)
    made = uuid.UUID(text)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert ((made.int >> 80) << 12 | made.int >> 64 & 0xFFF, made.int & 2**62 - 1) == parts
    assert str(made) == text == require_work_id(text)
    assert (text < uuid7(*others)) is (parts < others)


@pytest.mark.parametrize("id", ["x", "order-17", "a" * 64, "заказ:1", "ünïcödé", "😀", "a/b?c=d#e", "'\"--;"])
def test_words_up_to_64_characters_are_ids(id):
    assert require_work_id(id) == id


REFUSED = ["", "a" * 65, "two words", "tab\there", "line\n", "nul\x00", "escape\x1b", "no\u00a0break"]


@pytest.mark.parametrize("id", [*REFUSED, "\u2028", "\ud800", "\u200b"])
def test_other_texts_are_refused(id):
    with pytest.raises(InvalidWorkId, match="1 to 64 printable characters without spaces, got: ") as refusal:
        require_work_id(id)
    assert isinstance(refusal.value, AyeworkError) and isinstance(refusal.value, ValueError)
    assert refusal.value.id == id


@pytest.mark.parametrize("id", [7, None, b"bytes", ["list"], uuid.UUID(int=7)])
def test_what_is_no_text_is_refused(id):
    with pytest.raises(InvalidWorkId) as refusal:
        require_work_id(id)
    text = f"expected the id of a work as a text, got: {id!r}. Pass .id of a handle, or str(…) of a UUID."
    assert (str(refusal.value), refusal.value.id) == (text, None)


INFINITE, NO_NUMBER = float("inf"), float("nan")


@pytest.mark.parametrize(("option", "values", "error", "message"), [
    ("key", ["", "k" * 191, "a\nb", "nul\x00", " k", "k ", 5, None, b"k"], InvalidOption, "be .* got: "),
    ("scope", ["incomplet"], InvalidOption, "be .* got: 'incomplet'.*Did you mean 'incomplete'"),
    ("scope", ["Any"], InvalidOption, "be .* got: 'Any'.*'any'"),
    ("window", [0, timedelta(), -1, INFINITE, NO_NUMBER], ValueError, "be"),
    ("window", ["soon"], TypeError, "be seconds"),
])  # fmt: skip
def test_an_option_of_dedup_that_cannot_be_used_is_refused(option, values, error, message):
    for value in values:
        with pytest.raises(error, match=f"expected Dedup's {option} to {message}") as refusal:
            Dedup(**{"key": "k"} | {option: value})
        assert isinstance(refusal.value, AyeworkError) or option == "window"


@pytest.mark.parametrize("key", ["k", "k" * 190, "order 7", "Straße 🚀"])
def test_any_printable_text_is_a_key_and_looks_at_works_that_have_not_ended(key):
    dedup = Dedup(key)
    assert (dedup.key, dedup.scope, dedup.window, dedup.exclude) == (key, "incomplete", None, ())


@pytest.mark.parametrize(("option", "given", "kept"), [
    ("window", 5, 5.0), ("window", 0.05, 0.05), ("window", timedelta(minutes=1), 60.0),
    ("exclude", "one", ("one",)), ("exclude", ["one", "two", "one"], ("one", "two")),
    ("exclude", SimpleNamespace(id="one"), ("one",)), ("exclude", iter(["one"]), ("one",)),
    ("exclude", (SimpleNamespace(id="one"), "two"), ("one", "two")),
])  # fmt: skip
def test_a_window_is_seconds_or_a_timedelta_and_ids_and_handles_can_be_excluded(option, given, kept):
    assert getattr(Dedup("k", **{option: given}), option) == kept


def test_equal_dedups_are_equal_and_only_ids_can_be_excluded():
    assert len({Dedup("k", exclude=["a"]), Dedup("k", exclude=("a",)), Dedup("k", exclude="b")}) == 2
    with pytest.raises(InvalidWorkId):
        Dedup("k", exclude=[7])


# --- units of an output ---------------------------------------------------------------------------------

#: Priorities are rounded and kept within what can be stored; delays are never negative.
PRIORITIES = {10.6: 11, -10.6: -11, 1e12: 2**31 - 1, -(10**400): -(2**31 - 1)}
LONGEST = timedelta.max.total_seconds()
DELAYS = {0.9: 0.9, -5: 0.0, timedelta(minutes=1): 60.0, None: 0.0, 10**400: LONGEST}


@pytest.mark.parametrize(("output", "units"), [
    ({"a": {"size": 1}, "b": {}, "c": None}, [Unit("a", {"size": 1}), Unit("b", {}), Unit("c", {})]),
    (["a", b"b"], [Unit("a"), Unit("b")]), (("a", "é".encode()), [Unit("a"), Unit("é")]),
    (["a", ("b", {"x": 1}), ["c", None, None]], [Unit("a"), Unit("b", {"x": 1}), Unit("c")]),
    ([["a", {}, {"priority": 1}, 5]], [Unit("a", priority=5)]),  # the fourth element overrules
    ([["a", {}, {"priority": 1}, None]], [Unit("a", priority=1)]),  # null does not
    (["key", ["key", {"data": "x"}, {"priority": 10}]], [Unit("key", {"data": "x"}, priority=10)]),
    *(([["a", {}, {}, given]], [Unit("a", priority=rounded)]) for given, rounded in PRIORITIES.items()),
    *(([["a", {}, {"delay": given, "b": 1}]], [Unit("a", delay=read)]) for given, read in DELAYS.items()),
])  # fmt: skip
def test_mappings_lists_and_tuples_give_units(output, units):
    read = units_of(output)
    assert (read.units, read.dropped) == (tuple(units), ())


@pytest.mark.parametrize("element", [
    *(7, None, {"a": {}}, "", "x" * 191, "nul\x00", "half \ud800", "space ", b"\xff"),
    *([], ["only a name"], [7, {}], ["", {}], ["a", "input"], ["a", {1: 2}], ["a", {}, {}, "5"]),
    *(["a", {}, {}, False], ["a", {}, {"priority": "high"}, 5]),
    *(["a", {}, {"priority": value}] for value in ("high", True, NO_NUMBER)),
    *(["a", {}, {"delay": value}] for value in ("soon", INFINITE)), ["a", {}, "metadata"],
])  # fmt: skip
def test_a_bad_element_is_dropped_and_the_others_stay(element):
    read = units_of(["before", element, "after"])
    assert [unit.name for unit in read.units] == ["before", "after"]
    assert len(read.dropped) == 1


@pytest.mark.parametrize("value", ["text", 7, ["size", 1], {1: "a key that is no name"}])
def test_one_bad_value_spoils_a_whole_mapping(value):
    read = units_of({"a": {}, "b": value})
    assert (read.units, [repr(value) in dropped for dropped in read.dropped]) == ((), [True])


@pytest.mark.parametrize("output", ["a", b"a", 7, None, {"a"}, object()])
def test_what_is_neither_mapping_nor_list_gives_nothing(output):
    read = units_of(output)
    assert read.units == ()
    assert "expected an output to be a mapping or a list" in read.dropped[0]


atoms = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


def nested(some):
    return st.lists(some) | st.tuples(some, some) | st.dictionaries(st.text() | st.integers(), some)


@given(st.recursive(atoms, nested, max_leaves=20))
def test_no_output_raises_and_every_element_is_a_unit_or_reported(output):
    read = units_of(output)
    names = [unit.name for unit in read.units]
    assert len(names) == len(set(names))
    if isinstance(output, list | tuple):
        assert len(read.units) + len(read.dropped) <= len(output)
        assert bool(read.units or read.dropped) == bool(output)
    assert all(unit.priority is None or abs(unit.priority) < 2**31 for unit in read.units)
    assert all(unit.delay >= 0 for unit in read.units)
