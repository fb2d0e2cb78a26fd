"""Texts that are recorded and shown: errors, hidden parts, unknown types."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.errors import WorkFailed
from django_ayework.rules.codec import decode
from django_ayework.rules.formatting import (
    HIDDEN,
    MAX_ERROR_LENGTH,
    cause_text,
    error_text,
    parked_error,
    parked_since,
    redacted,
)
from tests.rules.moments import NOON, moments

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
        (Unprintable(), "Unprintable: (its message cannot be printed: RuntimeError)"),
        (Mumbling(), "Mumbling: (its message cannot be printed: TypeError)"),
        (Endless(), "Endless: (its message cannot be printed: RecursionError)"),
        (ValueError("nul \x00, half \ud83d, whole 😀"), r"ValueError: nul \x00, half \ud83d, whole 😀"),
    ],
)
def test_an_exception_is_recorded_as_its_name_and_message(error, text):
    assert error_text(error) == text


@given(st.text(st.characters()))  # surrogates and NUL included
def test_every_message_can_be_stored(message):
    text = error_text(ValueError(message))
    assert "\x00" not in text
    assert text.encode("utf-8").decode("utf-8") == text


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


CARD = {"number": 4111, "holder": "Ann"}


@pytest.mark.parametrize(
    ("value", "path", "shown"),
    [
        ({"pin": 17, "n": 1}, "pin", {"pin": HIDDEN, "n": 1}),
        ({"pin": None}, "pin", {"pin": HIDDEN}),  # whether there is one is nobody's business either
        ({"card": CARD}, "card", {"card": HIDDEN}),
        ({"card": CARD}, "card.number", {"card": {"number": HIDDEN, "holder": "Ann"}}),
        ({"n": 1}, "pin", {"n": 1}),
        ({"card": {"holder": "Ann"}}, "card.number", {"card": {"holder": "Ann"}}),
        ({"card": None}, "card.number", {"card": None}),
        ({"cards": [CARD, CARD]}, "cards.holder", {"cards": [{"number": 4111, "holder": HIDDEN}] * 2}),
        ({"cards": ({"a": [CARD]},)}, "cards.a.number", {"cards": [{"a": [CARD | {"number": HIDDEN}]}]}),
        ({"card.number": 4111}, "card.number", {"card.number": HIDDEN}),  # a key with dots of its own
        ({"a.b": {"c": 1, "d": 2}}, "a.b.c", {"a.b": {"c": HIDDEN, "d": 2}}),
        ({"a": {"b.c": 1}, "a.b": {"c": 1}}, "a.b.c", {"a": {"b.c": HIDDEN}, "a.b": {"c": HIDDEN}}),
        ({"card": "4111 Ann"}, "card.number", {"card": HIDDEN}),  # what cannot be looked into is hidden
        ({"card": Decimal("4111")}, "card.number", {"card": HIDDEN}),
        ({"card": {4111}}, "card.number", {"card": HIDDEN}),
        ({"cards": [CARD, "4111"]}, "cards.number", {"cards": [CARD | {"number": HIDDEN}, HIDDEN]}),
        ({1: "one", "pin": 2}, "pin", {1: "one", "pin": HIDDEN}),
        ("a text", "pin", HIDDEN),
    ],
)
def test_a_path_hides_what_it_leads_to(value, path, shown):
    assert redacted(value, [path]) == shown


def test_a_value_of_an_unknown_type_is_hidden_and_the_input_is_left_as_it_is():
    stored = '{"card":{"$ayework":"card-2030","value":{"number":4111}}}'
    assert redacted(decode(stored), ["card.number"]) == {"card": HIDDEN}
    value = {"card": dict(CARD), "list": [{"pin": 1}]}
    redacted(value, ["card.number", "list.pin"])
    assert value == {"card": CARD, "list": [{"pin": 1}]}


names = st.sampled_from(["a", "b", "a.b", "c"])
values = st.recursive(
    st.just("SECRET") | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)


@given(st.dictionaries(names, values, max_size=3), st.lists(st.sampled_from(["a", "a.b", "b.c"]), max_size=3))
def test_more_paths_never_show_more(value, paths):
    alone = [str(redacted(value, [path])).count("SECRET") for path in paths]
    assert str(redacted(value, paths)).count("SECRET") <= min([*alone, str(value).count("SECRET")])


@given(st.dictionaries(names, values, max_size=3))
def test_what_a_name_of_the_input_leads_to_is_never_shown(value):
    rest = {name: item for name, item in value.items() if name != "a"}
    assert str(redacted(value, ["a"])).count("SECRET") == str(rest).count("SECRET")


@given(moments, moments)
def test_a_parked_work_remembers_its_first_parking(since, now):
    assert parked_since(parked_error(since), now) == since


@given(st.text() | st.text().map(lambda text: parked_error(NOON)[:-3] + text))
def test_any_error_at_all_gives_a_moment_to_reckon_with(text):
    assert parked_since(text, NOON) - NOON <= timedelta(days=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: no luck",
        parked_error(NOON).removesuffix("+00:00"),  # a naive moment
        parked_error(NOON)[:-9] + "25:61:61",
    ],
)
def test_a_work_that_was_not_parked_starts_now(text):
    assert parked_since(text, NOON) == NOON


def test_the_error_of_a_parked_work_is_readable():
    assert parked_error(NOON) == "no worker here knows this type, since 2026-01-01T12:00:00+00:00"
