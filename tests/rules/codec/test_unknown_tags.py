"""What a newer release wrote passes through an older one; what users write never turns into it."""

import json
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.errors import NotDecodable, NotEncodable
from django_ayework.rules.codec import CustomType, RichJSON, decode, encode
from tests.rules.codec.values import TAG

FUTURE = '{"$ayework":"future","value":[1,{"$ayework":"tuple","value":[2]}]}'


class Tag(StrEnum):
    DECIMAL = "decimal"
    OURS = TAG


@pytest.mark.parametrize(
    "stored",
    [
        {TAG: "future", "value": 1},
        {TAG: "future"},
        {TAG: "", "value": 1},
        {TAG: "future", "value": 1, "more": {"a": [2]}},
        {TAG: None},
        {TAG: ["int"], "value": "0x1"},
        {TAG: {"a": 1}},
    ],
)
def test_an_unknown_tag_passes_through(stored):
    text = json.dumps([stored], separators=(",", ":"))
    assert decode(text) == [stored]
    assert isinstance(decode(text)[0], dict)
    assert encode(decode(text)) == text


def test_known_tags_inside_unknown_ones_are_read():
    assert decode(FUTURE) == {TAG: "future", "value": [1, (2,)]}
    assert encode(decode(FUTURE)) == FUTURE


def test_a_newer_codec_reads_what_an_older_one_passed_on():
    newer = RichJSON(
        [
            CustomType(
                tag="future", type=complex, to_plain=lambda c: [c.real], from_plain=lambda p: complex(*p)
            )
        ]
    )
    assert decode(newer.encode(1j)) == {TAG: "future", "value": [0.0]}
    assert newer.decode(encode(decode(newer.encode(2 + 0j)))) == 2


def test_what_a_user_writes_is_data_however_it_looks():
    newer = RichJSON([CustomType(tag="future", type=complex, to_plain=str, from_plain=complex)])
    lookalike = {TAG: "future", "value": "1"}
    assert newer.decode(encode(lookalike)) == lookalike
    assert newer.decode(encode(dict(decode(encode(lookalike))))) == lookalike


@given(
    st.recursive(
        st.sampled_from([1, "decimal", TAG, "1.5"]),
        lambda inner: (
            st.dictionaries(st.sampled_from([TAG, "value", Tag.OURS, 1]), inner, max_size=3)
            | st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
        ),
    )
)
def test_our_tag_as_a_key_is_data_in_any_place(value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize("tag", ["decimal", Tag.DECIMAL])
def test_a_value_passed_through_cannot_be_turned_into_a_known_one(tag):
    passed = decode(FUTURE)
    passed[TAG] = tag
    passed["value"] = "1.5"
    assert decode(encode(passed)) == {TAG: "decimal", "value": "1.5"}


def test_a_value_passed_through_may_be_changed_into_any_mapping():
    passed = decode(FUTURE)
    del passed[TAG]
    passed[1] = 2
    assert decode(encode(passed)) == {"value": [1, (2,)], 1: 2}
    assert type(decode(encode(passed))) is dict
    del passed[1]
    assert encode(passed) == '{"value":[1,{"$ayework":"tuple","value":[2]}]}'
    passed = decode(FUTURE)
    passed["value"] = object()
    with pytest.raises(NotEncodable) as caught:
        encode(passed, "input")
    assert caught.value.path == "input['value']"


def test_a_value_passed_through_that_was_put_inside_itself_is_refused():
    passed = decode(FUTURE)
    passed["value"] = [passed]
    with pytest.raises(NotEncodable, match=r"UnknownTag that contains itself at value\['value'\]\[0\];"):
        encode(passed)


def test_an_unknown_tag_cannot_be_a_member_of_a_set():
    with pytest.raises(NotDecodable, match="expected a stored set, got: "):
        decode('{"$ayework":"set","value":[{"$ayework":"future","value":1}]}')
