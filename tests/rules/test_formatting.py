"""Texts that are recorded and shown: errors, their causes, hidden parts, unknown types."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.errors import WorkFailed
from django_ayework.rules import formatting as rules
from django_ayework.rules.causes import LONGEST, fingerprint, normalised
from django_ayework.rules.codec import decode
from django_ayework.rules.formatting import HIDDEN, MAX_ERROR_LENGTH, cause_text, error_text, redacted
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


@pytest.mark.parametrize(("error", "text"), [
    (ValueError("no such card"), "ValueError: no such card"), (ValueError(), "ValueError"),
    (KeyError("a"), "KeyError: 'a'"), (ValueError("a", 1), "ValueError: ('a', 1)"),
    (WorkFailed(), "WorkFailed: The work died."),
    (ExceptionGroup("of", [ValueError("a"), TypeError(), ExceptionGroup("more", [ValueError("b")] * 2)]),
     "ExceptionGroup: of (3 sub-exceptions): "
     "ValueError: a; TypeError; ExceptionGroup: more (2 sub-exceptions): ValueError: b"),
    (ExceptionGroup("one", [Unprintable()]),
     "ExceptionGroup: one (1 sub-exception): Unprintable: (its message cannot be printed: RuntimeError)"),
    (KeyboardInterrupt(), "KeyboardInterrupt"), (OSError(2, "gone"), "FileNotFoundError: [Errno 2] gone"),
    (Unprintable(), "Unprintable: (its message cannot be printed: RuntimeError)"),
    (Mumbling(), "Mumbling: (its message cannot be printed: TypeError)"),
    (Endless(), "Endless: (its message cannot be printed: RecursionError)"),
    (ValueError("nul \x00, half \ud83d, whole 😀"), r"ValueError: nul \x00, half \ud83d, whole 😀"),
])  # fmt: skip
def test_an_exception_is_recorded_as_its_name_and_message(error, text):
    assert error_text(error) == cause_text(error) == text


def test_groups_of_groups_are_recorded_however_deep_they_are():
    error: Exception = ValueError("a")
    for _ in range(5000):
        error = ExceptionGroup("of", [error])
    assert error_text(error).startswith("ExceptionGroup: of (1 sub-exception): ExceptionGroup: of")


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


def test_a_cause_may_be_a_text():
    assert cause_text("card\x00refused") == r"card\x00refused"
    assert cause_text("x" * 20_000).endswith(MARK)


CARD = {"number": 4111, "holder": "Ann"}
NUMBERLESS = CARD | {"number": HIDDEN}


@pytest.mark.parametrize(("value", "path", "shown"), [
    ({"pin": 17, "n": 1}, "pin", {"pin": HIDDEN, "n": 1}),
    ({"pin": None}, "pin", {"pin": HIDDEN}),  # whether there is one is nobody's business either
    ({"card": CARD}, "card", {"card": HIDDEN}), ({"card": CARD}, "card.number", {"card": NUMBERLESS}),
    ({"n": 1}, "pin", {"n": 1}),
    ({"card": {"holder": "Ann"}}, "card.number", {"card": {"holder": "Ann"}}),
    ({"card": None}, "card.number", {"card": None}),
    ({"cards": [CARD, CARD]}, "cards.holder", {"cards": [{"number": 4111, "holder": HIDDEN}] * 2}),
    ({"cards": ({"a": [CARD]},)}, "cards.a.number", {"cards": [{"a": [NUMBERLESS]}]}),
    ({"card.number": 4111}, "card.number", {"card.number": HIDDEN}),  # a key with dots of its own
    ({"a.b": {"c": 1, "d": 2}}, "a.b.c", {"a.b": {"c": HIDDEN, "d": 2}}),
    ({"a": {"b.c": 1}, "a.b": {"c": 1}}, "a.b.c", {"a": {"b.c": HIDDEN}, "a.b": {"c": HIDDEN}}),
    # What cannot be looked into is hidden.
    *(({"card": card}, "card.number", {"card": HIDDEN}) for card in ("4111 Ann", Decimal("4111"), {4111})),
    (decode('{"card":{"$ayework":"card-2030","value":{"number":4111}}}'), "card.number", {"card": HIDDEN}),
    ({"cards": [CARD, "4111"]}, "cards.number", {"cards": [NUMBERLESS, HIDDEN]}),
    ({1: "one", "pin": 2}, "pin", {1: "one", "pin": HIDDEN}), ("a text", "pin", HIDDEN),
])  # fmt: skip
def test_a_path_hides_what_it_leads_to(value, path, shown):
    assert redacted(value, [path]) == shown


def test_the_input_is_left_as_it_is():
    value = {"card": dict(CARD), "list": [{"pin": 1}]}
    redacted(value, ["card.number", "list.pin"])
    assert value == {"card": CARD, "list": [{"pin": 1}]}


names = st.sampled_from(["a", "b", "a.b", "c"])
values = st.recursive(
    st.just("SECRET") | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)
inputs = st.dictionaries(names, values, max_size=3)


def secrets(value):
    return str(value).count("SECRET")


@given(inputs, st.lists(st.sampled_from(["a", "a.b", "b.c"]), max_size=3))
def test_what_a_path_leads_to_is_never_shown_and_more_paths_never_show_more(value, paths):
    rest = {name: item for name, item in value.items() if name != "a"}
    assert secrets(redacted(value, ["a"])) == secrets(rest)
    alone = [secrets(redacted(value, [path])) for path in paths]
    assert secrets(redacted(value, paths)) <= min([*alone, secrets(value)])


@given(moments, moments)
def test_a_parked_work_remembers_its_first_parking(first, now):
    assert rules.parked_since(rules.parked_error(first), now) == first.replace(microsecond=0)


@given(st.text() | st.text().map(lambda text: rules.parked_error(NOON)[:-3] + text))
def test_any_error_at_all_gives_a_moment_to_reckon_with(text):
    assert rules.parked_since(text, NOON) - NOON <= timedelta(days=2)


def test_the_error_of_a_parked_work_is_readable_and_after_any_other_it_starts_now():
    parked = rules.parked_error(NOON)
    assert parked == "no worker here knows this type, since 2026-01-01 12:00:00+00:00"
    naive, impossible = parked.removesuffix("+00:00"), parked[:-9] + "25:61:61"
    for text in ("", "ValueError: no luck", naive, impossible):
        assert rules.parked_since(text, NOON) == NOON


HOSTILE = "aB1 '\"`“”…:/@.-+,=#?\n()[]{}<>é٣xyzfacebd\x00\ud800"
classes = st.from_regex(r"[A-Z][a-z]{1,8}(Error|Exception|[0-9]{3})", fullmatch=True)


@pytest.mark.parametrize(("one", "other"), [
    ("KeyError: 'a'", "KeyError: 'something else'"), ('KeyError: "it\'s"', 'KeyError: "a"'),
    ("E: <Foo object at 0x7f1c2a>", "E: <Foo object at 0xdeadbeef>"), ("Gone: ORD-17-b", "Gone: ORD-4-b"),
    ("Late: 2026-01-01 10:00:00+00:00", "Late: 2026-11-23T16:35:07.123456Z"),
    ("SMTPError: ann@example.com: no", "SMTPError: bob.b+x@mail.example.org: no"),
    ("HTTPError: https://a.example/v1/x/17?a=b&c=d#e", "HTTPError: https://a.example/v1/x/4711?a=b#f"),
    ("HTTPError: https://ann:secret@a.example/x", "HTTPError: https://a.example/x"),
    ("OSError: /tmp/run-17/a.csv", "OSError: /tmp/run-4/a.csv"),
    ("ValueError: [1, 2, 3]", "ValueError: [1, 2]"),
    ("ValueError: -1.5e-7 is too small", "ValueError: 3 is too small"),
    ("no luck with 17\nTraceback 1", "no luck with 4\nTraceback 2"), ("  \n ValueError: 1", "ValueError: 2"),
])  # fmt: skip
def test_errors_that_differ_in_values_have_one_cause(one, other):
    assert normalised(one) == normalised(other)
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(("one", "other"), [
    ("ValueError: no luck", "ValueError: no stock"),
    ("Http404: gone", "Http403: gone"), ("Http404", "Http403"), ("ValueError", ""),
    ("HTTPError: https://a.example/x/1", "HTTPError: https://b.example/x/1"),
    ("deadline exceeded", "worker lost"),
])  # fmt: skip
def test_errors_that_differ_in_words_have_two(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_values_do_not_show():
    error = "SMTPError: 550 for ann@example.com at https://ann:secret@mx7.example.com/q?key=1 'x y'"
    assert normalised(error) == "SMTPError: … for … at https://….example.com/q '…'"


@given(classes, st.integers(0, 10**30), st.integers(0, 10**30), st.uuids(), st.uuids())
def test_numbers_and_ids_make_no_difference(name, one, other, first, second):
    before = f"{name}: order {one} of customer #{other}, id {first} ({one})"
    after = f"{name}: order {other} of customer #{one}, id {second} ({other})"
    assert fingerprint(before) == fingerprint(after)


@given(classes, classes, st.text(alphabet=HOSTILE))
def test_types_make_a_difference(one, other, message):
    assert (fingerprint(f"{one}: {message}") == fingerprint(f"{other}: {message}")) is (one == other)


@given(st.text() | st.text(alphabet=HOSTILE, max_size=500))
def test_what_is_normalised_stays_as_it_is(text):
    once = normalised(text)
    assert len(once) <= LONGEST
    assert normalised(once) == once
    assert re.fullmatch("[0-9a-f]{16}", fingerprint(text))


@given(st.text(alphabet=HOSTILE, min_size=1, max_size=4), st.text(alphabet=HOSTILE, max_size=4))
def test_long_hostile_texts_are_read_in_one_go(unit, end):
    """A pattern that goes back and forth would take minutes for these."""
    assert len(normalised(unit * 3000 + end)) <= LONGEST
