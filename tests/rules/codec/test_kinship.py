"""Relatives of the supported types are stored as their nearest plain type."""

from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from enum import Enum, StrEnum
from types import MappingProxyType

import pytest
from django.utils.functional import SimpleLazyObject, lazy
from django.utils.safestring import mark_safe

from django_ayework.errors import NotEncodable
from django_ayework.rules.codec import decode, encode
from tests.rules.codec.values import fingerprint

Point = namedtuple("Point", "x y")


class Colour(StrEnum):
    RED = "red"


class OldColour(str, Enum):  # noqa: UP042
    RED = "red"


class Lines(list):
    pass


class Shouting(str):
    def __str__(self):
        return self.upper()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (OldColour.RED, "red"),
        ({OldColour.RED: 1}, {"red": 1}),
        ({OldColour.RED: 1, 2: 2}, {"red": 1, 2: 2}),
        (mark_safe("<b>"), "<b>"),
        (Shouting("tea"), "tea"),
        (lazy(str.upper, str)("tea"), "TEA"),
        (Point(1, (2,)), (1, (2,))),
        (Lines([1]), [1]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (MappingProxyType({1: 2}), {1: 2}),
        (UserDict(a=1), {"a": 1}),
        (bytearray(b"tea"), b"tea"),
        (memoryview(b"tea")[::2], b"ta"),
    ],
)
def test_relatives_become_plain(value, plain):
    assert fingerprint(decode(encode([value]))) == fingerprint([plain])


def test_a_lazy_stand_in_is_not_taken_for_what_it_pretends_to_be():
    with pytest.raises(NotEncodable, match="got: SimpleLazyObject"):
        encode(SimpleLazyObject(lambda: "tea"))


def test_an_unreadable_view_is_refused_with_its_cause():
    view = memoryview(b"tea")
    view.release()
    with pytest.raises(NotEncodable, match=r"written as bytes, got: memoryview \(ValueError: ") as caught:
        encode({"photo": view}, "input")
    assert caught.value.path == "input['photo']"
    assert isinstance(caught.value.__cause__, ValueError)
