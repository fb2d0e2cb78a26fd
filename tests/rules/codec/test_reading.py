"""Reading a column returns a value or raises NotDecodable. Unknown tags and exceptions are kept."""

import copy
import json
import pickle
import sys
from enum import StrEnum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_ayework.errors import AyeworkError, NotDecodable, NotEncodable
from django_ayework.rules.codec import CustomType, RichJSON, StoredException, decode, encode
from tests.rules.codec.values import TAG, fingerprint, values

MALFORMED = {
    "int": [5, "5", "0x", "0x1\n", "0X1_0"],
    "float": ["1.5", "NAN", []],
    "str": ["a", ["a", 1]],
    "tuple": ["ab", {"a": 1}],
    "set": ["ab", {"a": 1}],
    "frozenset": ["ab", [[1]]],
    "dict": [{"a": 1}, [["a"]], [["a", 1, 2]], ["ab"], [[[], 1]], [["a", 1], ["a", 2]], [[1, 1], [True, 2]]],
    "decimal": [1, [0, [1], 0]],
    "uuid": ["1234"],
    "bytes": ["dGVh!", "dGV", "dGVh\n", "é", None],
    "date": [5, "2026-02-30"],
    "datetime": [5, "", "tomorrow", "9999-12-31T23:59:59-23:00[Europe/Paris]"],
    "time": [None, "25:00"],
    "timedelta": ["5", [1, 2], [1, 2, 3.0], [True, 0, 0], [1000000000, 0, 0], None, 5],
    "exception": ["ValueError", {}, {"name": "a"}, {"name": "a", "message": 1}],
}
ZONES = ("Mars/Olympus", "../../etc/passwd", "Europe")
MALFORMED["datetime"] += [f"2026-05-01T09:00:00[{zone}]" for zone in ZONES]
MALFORMED["exception"] += [{"name": "a", "message": "b", "x": "c"}]
TAGS = (*MALFORMED, "future")


def unreadable(text):
    with pytest.raises(NotDecodable) as caught:
        decode(text)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, AyeworkError)
    return str(caught.value)


@pytest.mark.parametrize("blank", [" ", "\n", "\t \r\n"])
def test_blanks_around_a_text_do_not_matter(blank):
    """Another program may have written it."""
    text = encode({"price": 3})
    assert decode(blank + text) == decode(text + blank) == decode(blank + text + blank) == {"price": 3}


NO_TEXT = "expected JSON text, got: "


@pytest.mark.parametrize(("text", "message"), [
    ("", f"{NO_TEXT}'' (Expecting value: line 1 column 1 (char 0))"),
    ("[1,", f"{NO_TEXT}'[1,' (Expecting value: line 1 column 4 (char 3))"),
    ("x" * 500, f"{NO_TEXT}'{'x' * 58}… (Expecting value: line 1 column 1 (char 0))"),
    ("1 2", f"{NO_TEXT}'1 2' (Extra data: line 1 column 3 (char 2))"),
    ("NaN", f"{NO_TEXT}NaN, which JSON does not have"),
    ("[-Infinity]", f"{NO_TEXT}-Infinity, which JSON does not have"),
    *((value, f"{NO_TEXT}{type(value).__name__} {value!r}") for value in (None, b"1", 5, ["1"])),
    ('{"a":1,"a":2}', "expected each key of an object once, got: ['a', 'a']"),
    ('{"$ayework":"date"}', "expected $ayework 'date' with one value, got the keys: ['$ayework']"),
    (
        '{"$ayework":"int","value":"0x1","extra":1}',
        "expected $ayework 'int' with one value, got the keys: ['$ayework', 'value', 'extra']",
    ),
    ('{"$ayework":"decimal","value":"a lot"}', "expected a stored decimal, got: 'a lot'"),
    ('[{"$ayework":"uuid","value":[1]}]', "expected a stored uuid, got: [1]"),
    ('{"$ayework":"set","value":[[]]}', "expected a stored set, got: [[]]"),
])  # fmt: skip
def test_the_message_quotes_what_came(text, message):
    assert unreadable(text) == message


@pytest.mark.parametrize(("tag", "value"), [(tag, value) for tag in MALFORMED for value in MALFORMED[tag]])
def test_malformed_values_cannot_be_read(tag, value):
    message = unreadable(json.dumps({TAG: tag, "value": value}))
    assert message.startswith(f"expected a stored {tag}, got: {value!r}"[:80])


def test_messages_stay_short_and_printable():
    message = unreadable(json.dumps({TAG: "date", "value": "\x00\ud800" * 100_000}))
    assert len(message) < 120
    assert message.isprintable()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_bottomless_text_cannot_be_read(text):
    assert "expected JSON text" in unreadable(text)
    assert "expected JSON text, got: '1111" in unreadable("1" * (sys.get_int_max_str_digits() + 1))


def read_or_refused(text):
    """Any other exception fails the test that asks."""
    try:
        return decode(text)
    except NotDecodable as error:
        assert len(str(error)) < 300
        str(error).encode()
        return None


DATES = ["2026-05-01", "09:30:00+01:00", "2026-05-01T09:00[Europe/Paris]"]
words = st.text(max_size=10) | st.sampled_from(["nan", "-0x1f", *DATES, "1e9", "dGVh"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from([TAG, "value", "name", "message", "a"]), inner, max_size=3),
        st.builds(lambda tag, value: {TAG: tag, "value": value}, st.sampled_from(TAGS), inner),
        st.builds(lambda *pair: {TAG: "dict", "value": [[*pair]]}, inner, inner),
    ),
    max_leaves=20,
)


@given(values.map(encode), st.data())
def test_damaged_text_is_read_or_refused(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    read_or_refused(text[:start] + data.draw(st.text(max_size=3)) + text[end:])


@given(json_values)
@example({TAG: [], "value": 1})
@example({TAG: "future", "value": {TAG: "int", "value": "0x1"}})
@example({TAG: {TAG: "str", "value": ["dec", "imal"]}, "value": "1"})
def test_any_json_is_refused_or_can_be_read_written_and_read_again(value):
    read = read_or_refused(json.dumps(value))
    try:
        again = encode(read)
    except NotEncodable as error:
        assert "keys that differ when stored" in str(error)  # two NaN for keys
    else:
        assert fingerprint(decode(again)) == fingerprint(read)


FUTURE = '{"$ayework":"future","value":[1,{"$ayework":"tuple","value":[2]}]}'


class Tag(StrEnum):
    DECIMAL = "decimal"
    OURS = TAG


@pytest.mark.parametrize("stored", [
    *({TAG: "future", "value": 1}, {TAG: "future"}, {TAG: "", "value": 1}, {TAG: None}, {TAG: {"a": 1}}),
    *({TAG: "future", "value": 1, "more": {"a": [2]}}, {TAG: ["int"], "value": "0x1"}),
])  # fmt: skip
def test_an_unknown_tag_passes_through(stored):
    text = json.dumps([stored], separators=(",", ":"))
    assert decode(text) == [stored]
    assert isinstance(decode(text)[0], dict)
    assert encode(decode(text)) == text


def test_known_tags_inside_unknown_ones_are_read():
    assert decode(FUTURE) == {TAG: "future", "value": [1, (2,)]}
    assert encode(decode(FUTURE)) == FUTURE


def test_a_newer_codec_reads_values_that_an_older_one_passed_on_and_leaves_what_a_user_wrote():
    kind = {"to_plain": lambda c: [c.real], "from_plain": lambda plain: complex(*plain)}
    newer = RichJSON([CustomType(tag="future", type=complex, **kind)])
    assert decode(newer.encode(1j)) == {TAG: "future", "value": [0.0]}
    assert newer.decode(encode(decode(newer.encode(2 + 0j)))) == 2
    lookalike = {TAG: "future", "value": [1]}
    assert newer.decode(encode(lookalike)) == lookalike
    assert newer.decode(encode(dict(decode(encode(lookalike))))) == lookalike


def nested(inner):
    keys = st.sampled_from([TAG, "value", Tag.OURS, 1])
    lists = st.lists(inner, max_size=3)
    return st.dictionaries(keys, inner, max_size=3) | lists | lists.map(tuple)


@given(st.recursive(st.sampled_from([1, "decimal", TAG, "1.5"]), nested))
def test_our_tag_as_a_key_is_data_in_any_place(value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize("tag", ["decimal", Tag.DECIMAL])
def test_a_value_passed_through_cannot_be_turned_into_a_known_one(tag):
    passed = decode(FUTURE)
    passed.update({TAG: tag, "value": "1.5"})
    assert decode(encode(passed)) == {TAG: "decimal", "value": "1.5"}


def test_a_value_passed_through_may_be_changed_into_any_mapping():
    passed = decode(FUTURE)
    del passed[TAG]
    passed[1] = 2
    assert decode(encode(passed)) == {"value": [1, (2,)], 1: 2}
    assert type(decode(encode(passed))) is dict
    del passed[1]
    assert encode(passed) == '{"value":[1,{"$ayework":"tuple","value":[2]}]}'


def test_a_value_passed_through_that_cannot_be_stored_is_refused():
    passed = decode(FUTURE)
    passed["value"] = object()
    with pytest.raises(NotEncodable) as caught:
        encode(passed, "input")
    assert caught.value.path == "input['value']"
    passed["value"] = [passed]
    with pytest.raises(NotEncodable, match=r"UnknownTag that contains itself at value\['value'\]\[0\];"):
        encode(passed)
    message = unreadable('{"$ayework":"set","value":[{"$ayework":"future","value":1}]}')
    assert message.startswith("expected a stored set, got: ")


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_exception_is_kept_as_name_and_message():
    text = encode(ValueError("no such colour"))
    assert text == '{"$ayework":"exception","value":{"name":"ValueError","message":"no such colour"}}'
    error = decode(text)
    assert (type(error), error.name, error.message) == (StoredException, "ValueError", "no such colour")
    assert str(error) == "ValueError: no such colour"
    assert str(decode(encode(KeyboardInterrupt()))) == "KeyboardInterrupt"


@pytest.mark.parametrize(("value", "read"), [
    (StoredException("KeyError", "'a'"), StoredException("KeyError", "'a'")),
    (Speechless(), StoredException("Speechless", "<its message cannot be read>")),
    (ValueError("\x00\ud800\udc00"), StoredException("ValueError", "\x00\ud800\udc00")),
    ({ValueError("a"): 1}, {StoredException("ValueError", "a"): 1}),
    ({ValueError("a")}, {StoredException("ValueError", "a")}),
    # No class is ever made from a name.
    (StoredException("os.system", "ls"), StoredException("os.system", "ls")),
])  # fmt: skip
def test_exceptions_are_read_as_stored_exceptions(value, read):
    assert decode(encode(value)) == read


def test_a_stored_exception_can_be_raised_copied_and_compared():
    error = StoredException("ValueError", "no")
    with pytest.raises(StoredException, match=r"^ValueError: no$"):
        raise error
    assert copy.copy(error) == pickle.loads(pickle.dumps(error)) == error
    assert hash(error) == hash(StoredException("ValueError", "no"))
    assert error != StoredException("ValueError", "yes")
    assert error != "ValueError: no"
