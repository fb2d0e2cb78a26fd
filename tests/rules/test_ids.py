"""Ids of works: UUIDs of version 7, and words of the user's own."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.errors import AyeworkError, InvalidWorkId
from django_ayework.rules.identity import require_work_id, uuid7

milliseconds = st.integers(0, 2**48 - 1)
entropy = st.integers(0, 2**74 - 1)


def test_the_example_of_rfc_9562():
    assert uuid7(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(milliseconds, entropy)
def test_an_id_is_a_uuid_of_version_7_that_holds_what_it_was_made_of(milliseconds, entropy):
    made = uuid.UUID(uuid7(milliseconds, entropy))

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == milliseconds
    assert (made.int >> 64 & 0xFFF) << 62 | made.int & 2**62 - 1 == entropy
    assert str(made) == uuid7(milliseconds, entropy)


@given(st.tuples(milliseconds, entropy), st.tuples(milliseconds, entropy))
def test_ids_sort_as_text_by_their_time_then_by_what_follows(first, second):
    assert (uuid7(*first) < uuid7(*second)) is (first < second)


@given(milliseconds, entropy)
def test_what_exceeds_the_fields_does_not_spill_over(milliseconds, entropy):
    assert uuid7(milliseconds + 2**48, entropy + 2**74) == uuid7(milliseconds, entropy)


@given(milliseconds, entropy)
def test_made_ids_are_usable_ids(milliseconds, entropy):
    made = uuid7(milliseconds, entropy)

    assert require_work_id(made) == made


@pytest.mark.parametrize("id", ["x", "order-17", "a" * 64, "заказ:1", "ünïcödé", "😀", "a/b?c=d#e", "'\"--;"])
def test_words_up_to_64_characters_are_ids(id):
    assert require_work_id(id) == id


@pytest.mark.parametrize(
    "id",
    [
        "",
        "a" * 65,
        "two words",
        "tab\there",
        "line\n",
        "nul\x00",
        "escape\x1b",
        "no\u00a0break",  # a space too
        "\u2028",
        "\ud800",  # half a character, which no database takes
        "\u200b",  # invisible
        7,
        None,
        b"bytes",
        ["list"],
    ],
)
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
