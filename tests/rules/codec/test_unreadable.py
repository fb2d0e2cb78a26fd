"""Whatever is in the column, reading it returns a value or raises NotDecodable."""

import json
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from django_ayework.errors import AyeworkError, NotDecodable, NotEncodable
from django_ayework.rules.codec import decode, encode
from tests.rules.codec.values import TAG, fingerprint, values

TAGS = (
    *("int", "float", "str", "tuple", "set", "frozenset", "dict", "datetime", "date", "time"),
    *("timedelta", "decimal", "uuid", "bytes", "exception", "future"),
)

patient = settings(deadline=None, max_examples=300)


def unreadable(text):
    with pytest.raises(NotDecodable) as caught:
        decode(text)
    return str(caught.value)


@pytest.mark.parametrize("blank", [" ", "\n", "\t \r\n"])
def test_blanks_around_a_text_do_not_matter(blank):
    """Another program may have written it."""
    text = encode({"price": 3})
    assert decode(blank + text) == decode(text + blank) == decode(blank + text + blank) == {"price": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON text, got: '' (Expecting value: line 1 column 1 (char 0))"),
        ("[1,", "expected JSON text, got: '[1,' (Expecting value: line 1 column 4 (char 3))"),
        ("x" * 500, f"expected JSON text, got: '{'x' * 58}… (Expecting value: line 1 column 1 (char 0))"),
        ("1 2", "expected JSON text, got: '1 2' (Extra data: line 1 column 3 (char 2))"),
        ("NaN", "expected JSON text, got: NaN, which JSON does not have"),
        ("[-Infinity]", "expected JSON text, got: -Infinity, which JSON does not have"),
        ('{"a":1,"a":2}', "expected each key of an object once, got: ['a', 'a']"),
        ('{"$ayework":"date"}', "expected $ayework 'date' with one value, got the keys: ['$ayework']"),
        (
            '{"$ayework":"int","value":"0x1","extra":1}',
            "expected $ayework 'int' with one value, got the keys: ['$ayework', 'value', 'extra']",
        ),
        ('{"$ayework":"decimal","value":"a lot"}', "expected a stored decimal, got: 'a lot'"),
        ('[{"$ayework":"uuid","value":[1]}]', "expected a stored uuid, got: [1]"),
        ('{"$ayework":"set","value":[[]]}', "expected a stored set, got: [[]]"),
    ],
)
def test_the_message_quotes_what_came(text, message):
    assert unreadable(text) == message


def test_the_error_is_a_value_error():
    with pytest.raises(ValueError) as caught:
        decode("?")
    assert isinstance(caught.value, AyeworkError)


@pytest.mark.parametrize("value", [None, b"1", 5, ["1"]])
def test_only_text_can_be_read(value):
    assert unreadable(value) == f"expected JSON text, got: {type(value).__name__} {value!r}"


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("int", 5),
        ("int", "5"),
        ("int", "0x"),
        ("int", "0x1\n"),
        ("int", "0X1_0"),
        ("float", "1.5"),
        ("float", "NAN"),
        ("float", []),
        ("str", "a"),
        ("str", ["a", 1]),
        ("tuple", "ab"),
        ("tuple", {"a": 1}),
        ("set", "ab"),
        ("set", {"a": 1}),
        ("frozenset", "ab"),
        ("frozenset", [[1]]),
        ("dict", {"a": 1}),
        ("dict", [["a"]]),
        ("dict", [["a", 1, 2]]),
        ("dict", ["ab"]),
        ("dict", [[[], 1]]),
        ("dict", [["a", 1], ["a", 2]]),
        ("dict", [[1, 1], [True, 2]]),
        ("decimal", 1),
        ("decimal", [0, [1], 0]),
        ("uuid", "1234"),
        ("bytes", "dGVh!"),
        ("bytes", "dGV"),
        ("bytes", "dGVh\n"),
        ("bytes", "é"),
        ("bytes", None),
        ("date", 5),
        ("datetime", 5),
        ("time", None),
    ],
)
def test_malformed_values_cannot_be_read(tag, value):
    assert unreadable(json.dumps({TAG: tag, "value": value})).startswith(f"expected a stored {tag}, got: ")


def test_messages_stay_short_and_printable():
    message = unreadable(json.dumps({TAG: "date", "value": "\x00\ud800" * 100_000}))
    assert len(message) < 120
    assert message.isprintable()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_bottomless_text_cannot_be_read(text):
    assert "expected JSON text" in unreadable(text)


def test_too_many_digits_cannot_be_read():
    assert "expected JSON text, got: '1111" in unreadable("1" * (sys.get_int_max_str_digits() + 1))


def read_or_refused(text):
    """Any other exception fails the test that asks."""
    try:
        return decode(text)
    except NotDecodable as error:
        assert len(str(error)) < 300
        str(error).encode()
        return None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(
        ["nan", "-0x1f", "2026-05-01", "09:30:00+01:00", "2026-05-01T09:00[Europe/Paris]", "1e9", "dGVh"]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from([TAG, "value", "name", "message", "a"]), inner, max_size=3),
        st.builds(lambda tag, value: {TAG: tag, "value": value}, st.sampled_from(TAGS), inner),
        st.builds(lambda *pair: {TAG: "dict", "value": [[*pair]]}, inner, inner),
    ),
    max_leaves=20,
)


@patient
@given(st.text() | st.text(st.sampled_from('[]{}",:0123-.eE\\u$ NaInfinty')))
def test_any_text_is_read_or_refused(text):
    read_or_refused(text)


@patient
@given(json_values)
@example({TAG: [], "value": 1})
@example({TAG: {TAG: "str", "value": ["dec", "imal"]}, "value": "x"})
def test_any_json_is_read_or_refused(value):
    read_or_refused(json.dumps(value))


@patient
@given(values.map(encode), st.data())
def test_damaged_text_is_read_or_refused(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    read_or_refused(text[:start] + data.draw(st.text(max_size=3)) + text[end:])


@patient
@given(json_values)
@example({TAG: "future", "value": {TAG: "int", "value": "0x1"}})
@example({TAG: {TAG: "str", "value": ["dec", "imal"]}, "value": "1"})
def test_what_can_be_read_can_be_written_and_read_again(value):
    read = read_or_refused(json.dumps(value))
    try:
        again = encode(read)
    except NotEncodable as error:
        assert "keys that differ when stored" in str(error)  # two NaN for keys
    else:
        assert fingerprint(decode(again)) == fingerprint(read)
