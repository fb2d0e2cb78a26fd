"""Messages between processes are short, and harmless if they cannot be read."""

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


@given(dues, st.frozensets(names, max_size=20))
def test_a_message_is_read_as_it_was_written_and_ignored_by_its_sender(due, ids):
    assert due_from_text(due_to_text(due, "here"), "there") == due
    assert ids_from_text(ids_to_text(ids, "here"), "there") == ids
    assert not due_from_text(due_to_text(due, "here"), "here")
    assert ids_from_text(ids_to_text(ids, "here"), "here") == frozenset()


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_a_message_or_means_anything(text):
    due, ids = due_from_text(text, "here"), ids_from_text(text, "here")
    assert isinstance(due, Due)
    assert ids is None or all(isinstance(id, str) for id in ids)


UNREADABLE = ["", "scribble", "null", "[]", "{}", '["there"]', '["there", 5, null]']
UNREADABLE += ['["there", 5, null, 1, 0]', '["there", null, "soon", 1, 0]']
UNREADABLE += ['["there", null, "soon", 1, 0]']


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_text_that_cannot_be_read_means_anything(text):
    assert due_from_text(text, "here") == ANYTHING
    assert ids_from_text(text, "here") is None


@pytest.mark.parametrize("number", [MOST_NAMED, MOST_NAMED + 1])
def test_too_many_names_are_written_as_any(number):
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
