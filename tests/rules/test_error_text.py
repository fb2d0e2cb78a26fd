"""What is recorded of an exception can be stored by every database and read by people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.errors import WorkFailed
from django_ayework.rules.texts import MAX_ERROR_LENGTH, cause_text, error_text

MARK = "… [truncated]"


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Mumbling(Exception):
    def __str__(self):
        return 5


class Endless(Exception):
    def __str__(self):
        return str(self)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such card"), "ValueError: no such card"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (ValueError("a", 1), "ValueError: ('a', 1)"),
        (WorkFailed(), "WorkFailed: The work died."),
        (ExceptionGroup("two", [ValueError("a"), TypeError()]), "ExceptionGroup: two (2 sub-exceptions)"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (OSError(2, "gone"), "FileNotFoundError: [Errno 2] gone"),
    ],
)
def test_an_exception_is_its_name_and_message(error, text):
    assert error_text(error) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unprintable(), "Unprintable: (its message cannot be printed: RuntimeError)"),
        (Mumbling(), "Mumbling: (its message cannot be printed: TypeError)"),
        (Endless(), "Endless: (its message cannot be printed: RecursionError)"),
    ],
)
def test_an_exception_that_cannot_be_printed_is_recorded_all_the_same(error, text):
    assert error_text(error) == text


@given(st.text(st.characters()))  # surrogates and NUL included
def test_every_message_can_be_stored(message):
    text = error_text(ValueError(message))

    assert "\x00" not in text
    assert text.encode("utf-8").decode("utf-8") == text


def test_characters_that_cannot_be_stored_remain_readable():
    assert error_text(ValueError("nul \x00, half \ud83d, whole 😀")) == (
        r"ValueError: nul \x00, half \ud83d, whole 😀"
    )


@pytest.mark.parametrize("character", ["x", "😀", "\x00", "\ud800"])
def test_a_long_message_is_cut_and_says_so(character):
    text = error_text(ValueError(character * 20_000))

    assert len(text) == MAX_ERROR_LENGTH + len(MARK)
    assert text.endswith(MARK)
    assert text.startswith("ValueError: ")


def test_a_message_that_just_fits_is_kept_whole():
    message = "x" * (MAX_ERROR_LENGTH - len("ValueError: "))

    assert error_text(ValueError(message)) == f"ValueError: {message}"
    assert error_text(ValueError(f"{message}y")).endswith(MARK)


def test_a_cause_is_an_exception_or_a_text():
    assert cause_text(ValueError("no")) == "ValueError: no"
    assert cause_text("card\x00refused") == r"card\x00refused"
    assert cause_text("x" * 20_000).endswith(MARK)
