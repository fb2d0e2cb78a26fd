"""What goes in comes out, with its type, and as text any database can hold."""

import json

import pytest
from hypothesis import example, given, settings

from django_ayework.rules.codec import Codec, RichJSON, decode, encode, richjson
from tests.rules.codec.values import TAG, fingerprint, nasty_text, values

patient = settings(deadline=None)


@patient
@given(values)
@example({"$ayework": "decimal", "value": "1"})
@example({"a": [{"$ayework": "decimal", "value": "1"}]})
@example({1: {"$ayework": 1}})
@example({"\ud800\udc00": 1})
@example([True, 1, 1.0, -0.0])
def test_every_supported_value_comes_back_as_it_was(value):
    assert fingerprint(decode(encode(value))) == fingerprint(value)


@patient
@given(values)
@example("\x00")
@example(["\ud800", "é", "\x00"])
def test_the_text_is_json_without_nul_that_utf8_can_express(value):
    text = encode(value)
    text.encode()
    assert "\x00" not in text
    json.loads(text)


@patient
@given(values)
def test_what_was_read_is_written_the_same(value):
    text = encode(value)
    assert encode(decode(text)) == text


@patient
@given(values)
@example({"a": 1, "b": "tea"})
@example({"\ud800\udc00": None})
def test_the_short_cut_writes_what_the_walk_writes(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(richjson, "is_plain", lambda value: False)
        walked = encode(value)
    assert encode(value) == walked


@given(nasty_text)
@example("\ud800\udc00")
@example("\ud83d\ude00 is not \U0001f600")
def test_any_text_comes_back(text):
    assert decode(encode(text)) == text
    assert decode(encode({text: text})) == {text: text}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (-0.0, "-0.0"),
        ({"name": "Zoë", "n": [1, 2.5]}, '{"name":"Zoë","n":[1,2.5]}'),
        ("\x00\n", r'"\u0000\n"'),
        ({}, "{}"),
        # Mappings that need more than a JSON object.
        ({1: "a", "b": 2}, '{"$ayework":"dict","value":[[1,"a"],["b",2]]}'),
        ({TAG: "date"}, '{"$ayework":"dict","value":[["$ayework","date"]]}'),
        ((), '{"$ayework":"tuple","value":[]}'),
        ({3, 1, 2}, '{"$ayework":"set","value":[1,2,3]}'),
        (frozenset("ab"), '{"$ayework":"frozenset","value":["a","b"]}'),
        (b"tea", '{"$ayework":"bytes","value":"dGVh"}'),
        (("é",), '{"$ayework":"tuple","value":["é"]}'),
        # Surrogates cost readability, for the whole text.
        (["é", "\ud800"], r'["\u00e9","\ud800"]'),
        ("\ud800\udc00", r'{"$ayework":"str","value":["\ud800","\udc00"]}'),
    ],
)
def test_the_stored_form(value, text):
    assert encode(value) == text
    assert fingerprint(decode(text)) == fingerprint(value)


def test_equal_sets_are_written_alike():
    names = [f"name-{n}" for n in range(50)]
    assert encode(set(names)) == encode({*names[25:]} | {*names[:25]})
    assert decode(encode(set(names))) == set(names)


def test_a_shared_value_is_no_loop():
    shared = (1,)
    assert decode(encode([shared, shared, {"again": shared}])) == [shared, shared, {"again": shared}]


@pytest.mark.parametrize("leaf", [1, (1,)], ids=["plain", "rich"])
def test_a_hundred_levels_are_fine(leaf):
    value = leaf
    for _ in range(99 if leaf == (1,) else 100):
        value = [value]
    assert decode(encode(value)) == value


def test_a_codec_has_two_methods():
    assert isinstance(RichJSON(), Codec)
    assert not isinstance(json, Codec)
