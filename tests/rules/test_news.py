"""What processes tell each other: short, and of no harm if it cannot be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.notifications import (
    ANYTHING,
    LONGEST,
    MOST_NAMED,
    Due,
    due_from_text,
    due_to_text,
    ids_from_text,
    ids_to_text,
)

names = st.text(max_size=20)
dues = st.builds(
    Due,
    st.none() | st.frozensets(st.tuples(names, names), max_size=20),
    st.none() | st.floats(0, 1e12, allow_nan=False),
)


@given(dues)
def test_what_is_due_is_read_as_it_was_written(due):
    assert due_from_text(due_to_text(due, "here"), "there") == due


@given(st.frozensets(names, max_size=20))
def test_ids_are_read_as_they_were_written(ids):
    assert ids_from_text(ids_to_text(ids, "here"), "there") == ids


@given(dues, st.frozensets(names))
def test_who_told_it_hears_nothing_of_it(due, ids):
    assert not due_from_text(due_to_text(due, "here"), "here")
    assert ids_from_text(ids_to_text(ids, "here"), "here") == frozenset()


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_what_cannot_be_read_means_look(text):
    due, ids = due_from_text(text, "here"), ids_from_text(text, "here")

    assert isinstance(due, Due)
    assert ids is None or all(isinstance(id, str) for id in ids)


@pytest.mark.parametrize("text", ["", "scribble", "null", "[]", "{}", '["there"]', '["there", 5, null]'])
def test_scribble_means_look(text):
    assert due_from_text(text, "here") == ANYTHING
    assert ids_from_text(text, "here") is None


@pytest.mark.parametrize("number", [MOST_NAMED, MOST_NAMED + 1])
def test_too_many_names_are_told_as_any(number):
    ids = {f"id-{n}" for n in range(number)}
    places = frozenset((id, "type") for id in ids)

    assert ids_from_text(ids_to_text(ids, "here"), "there") == (ids if number == MOST_NAMED else None)
    read = due_from_text(due_to_text(Due(places, 5.0), "here"), "there")
    assert read == Due(places if number == MOST_NAMED else None, 5.0)


def test_a_message_is_never_too_long():
    ids = {"ü" * 200 + str(n) for n in range(MOST_NAMED)}
    places = frozenset((id, id) for id in ids)

    for text in (ids_to_text(ids, "here"), due_to_text(Due(places, 5.0), "here")):
        assert text.isascii()
        assert len(text) <= LONGEST
    assert due_from_text(due_to_text(Due(places, 5.0), "here"), "there") == Due(None, 5.0)


@given(dues, dues)
def test_two_together_say_what_each_says(one, two):
    both = one | two

    assert both.places is None or one.places | two.places == both.places
    assert (both.places is None) == (one.places is None or two.places is None)
    assert both.start == min((s for s in (one.start, two.start) if s is not None), default=None)
    assert bool(both) == (bool(one) or bool(two))
