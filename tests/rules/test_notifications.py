"""Messages between processes are short, and harmless if they cannot be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules import notifications
from django_ayework.rules.notifications import LONGEST, MOST_NAMED, Due, due_to_text, ids_to_text

names = st.text(max_size=20)
places_of = st.frozensets(st.tuples(names, names), max_size=20)
dues = st.builds(Due, st.none() | places_of, st.none() | st.floats(0, 1e12, allow_nan=False))


def due_from_text(text, reader="there"):
    return notifications.due_from_text(text, reader)


def ids_from_text(text, reader="there"):
    return notifications.ids_from_text(text, reader)


@given(dues, st.frozensets(names, max_size=20))
def test_a_message_is_read_as_it_was_written_and_ignored_by_its_sender(due, ids):
    due_text, ids_text = due_to_text(due, "here"), ids_to_text(ids, "here")
    assert (due_from_text(due_text), ids_from_text(ids_text)) == (due, ids)
    assert not due_from_text(due_text, "here")
    assert ids_from_text(ids_text, "here") == frozenset()


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_a_message_or_means_anything(text):
    due, ids = due_from_text(text), ids_from_text(text)
    assert isinstance(due, Due)
    assert ids is None or all(isinstance(id, str) for id in ids)


@pytest.mark.parametrize("text", [
    *("", "scribble", "null", "[]", "{}", '["there"]', '["there", 5, null]'),
    *('["there", 5, null, 1, 0]', '["there", null, "soon", 1, 0]'),
])  # fmt: skip
def test_a_text_that_cannot_be_read_means_anything(text):
    assert (due_from_text(text, "here"), ids_from_text(text, "here")) == (notifications.ANYTHING, None)


@pytest.mark.parametrize("number", [MOST_NAMED, MOST_NAMED + 1])
def test_too_many_names_are_written_as_any(number):
    ids = {f"id-{n}" for n in range(number)}
    places = frozenset((id, "type") for id in ids)
    are_named = number == MOST_NAMED
    assert ids_from_text(ids_to_text(ids, "here")) == (ids if are_named else None)
    assert due_from_text(due_to_text(Due(places, 5.0), "here")) == Due(places if are_named else None, 5.0)


def test_a_message_is_never_too_long():
    ids = {"ü" * 200 + str(n) for n in range(MOST_NAMED)}
    text = due_to_text(Due(frozenset((id, id) for id in ids), 5.0), "here")
    assert all(each.isascii() and len(each) <= LONGEST for each in (ids_to_text(ids, "here"), text))
    assert due_from_text(text) == Due(None, 5.0)


@given(dues, dues)
def test_two_together_say_what_each_says(one, two):
    both = one | two
    assert both.places == (None if None in (one.places, two.places) else one.places | two.places)
    assert both.start == min((s for s in (one.start, two.start) if s is not None), default=None)
    assert bool(both) == (bool(one) or bool(two))
