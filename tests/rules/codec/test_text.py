"""Plain data is written as Python's own encoder writes it, whichever part of that does it."""

from json import JSONEncoder

import pytest
from hypothesis import example, given, settings

from django_ayework.rules.codec import RichJSON, text
from django_ayework.rules.codec.containers import Walk
from django_ayework.rules.codec.text import has_surrogates, is_plain, kept, write, write_escaped
from tests.rules.codec.values import values

patient = settings(deadline=None)


def plain_form(value):
    """What a value comes to on the way through it."""
    codec = RichJSON()
    return Walk(codec._writers, codec._tags).plain(value)


@patient
@given(values)
@example("")
@example([])
@example({"a": [1.5, -0.0, 1e300, True, None, "é\u2028\x00"]})
def test_text_is_what_the_encoder_of_python_makes(value):
    plain = plain_form(value)
    common = {"check_circular": False, "allow_nan": False, "separators": (",", ":")}

    assert write(plain) == JSONEncoder(ensure_ascii=False, **common).encode(plain)
    assert write_escaped(plain) == JSONEncoder(ensure_ascii=True, **common).encode(plain)


@patient
@given(values)
@example({"a": 1, "b": "tea"})
@example({"\ud800\udc00": None})
def test_the_short_cut_writes_what_the_long_way_writes(value):
    """It is taken unless the text has surrogates, which are written in their own way."""
    if is_plain(value) and not has_surrogates(write(value)):
        assert write(value) == write(plain_form(value))


def test_the_encoder_is_used_as_it_is_where_python_has_no_other(monkeypatch):
    monkeypatch.setattr(text.json.encoder, "c_make_encoder", None)
    encoder = JSONEncoder(separators=(",", ":"))

    assert "".join(kept(encoder)({"a": ["é"]}, 0)) == '{"a":["\\u00e9"]}'


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_does_not_have_is_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write([number])
