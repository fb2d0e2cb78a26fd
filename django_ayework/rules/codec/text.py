"""JSON text: how plain data is written, what is tagged, and what a codec and a custom type are.

*Plain* data is what ``json`` alone brings back unchanged. Everything else is wrapped as
``{"$ayework": "<tag>", "value": …}``.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json import JSONEncoder
from math import isfinite
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from django_ayework.errors import NotEncodable

TAG = "$ayework"
VALUE = "value"

#: Containers may be nested this deep. A fixed limit, well inside Python's own, means that every process can
#: read what another process has written, whatever the depth of its stack.
MAX_DEPTH = 100

#: Whole numbers of this size and beyond are tagged: many JSON readers would round them.
BIG = 2**53

TEXT_ONLY = frozenset({str})

#: The place between two halves of a surrogate pair that stand in a text as two characters.
SPLIT_PAIR = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")

LONGEST_PATH = 200
#: Steps of a path that are no subscripts.
KEY, MEMBER = "key of ", "{…}"

T = TypeVar("T")


@runtime_checkable
class Codec(Protocol):
    """Turns the values of a work into text for the database, and back.

    The text must be free of NUL characters and encodable as UTF-8, as every supported database asks.
    """

    def encode(self, value: Any) -> str:
        """Return the text for ``value``, or raise ``NotEncodable``."""
        ...

    def decode(self, text: str) -> Any:
        """Return the value ``text`` stands for, or raise ``NotDecodable``."""
        ...


@dataclass(frozen=True, kw_only=True)
class CustomType(Generic[T]):
    """How values of one class, and of its subclasses, are written and read.

    ``to_plain`` may return anything the codec can encode, rich values included; ``from_plain`` gets the same
    back. ``tag`` is stored with every value: choose it once, and keep it when the class is renamed or moved.

    >>> from django_ayework.rules.codec import RichJSON
    >>> point = CustomType(tag="complex", type=complex,
    ...     to_plain=lambda c: [c.real, c.imag], from_plain=lambda parts: complex(*parts))
    >>> codec = RichJSON(extra=[point])
    >>> codec.encode(1 + 2j)
    '{"$ayework":"complex","value":[1.0,2.0]}'
    >>> codec.decode(codec.encode(1 + 2j))
    (1+2j)
    """

    tag: str
    type: builtins.type[T]
    to_plain: Callable[[T], Any]
    from_plain: Callable[[Any], T]

    def __post_init__(self) -> None:
        if not isinstance(self.tag, str) or not self.tag:
            raise TypeError(f"expected tag to be a text that is not empty, got: {self.tag!r}")
        if not isinstance(self.type, builtins.type):
            raise TypeError(f"expected type to be a class, got: {self.type!r}")
        if self.type in (type(None), bool, int, float, str, list, dict, object):
            raise ValueError(f"expected a class without a JSON form of its own, got: {self.type.__name__}")
        if not callable(self.to_plain) or not callable(self.from_plain):
            raise TypeError(f"expected to_plain and from_plain of tag {self.tag!r} to be callable")


class UnknownTag(dict[str, Any]):
    """A wrapper whose tag this codec does not know, written perhaps by a newer release.

    It is a dict with the stored content. A class of its own lets the codec write it back unchanged, while a
    user's mapping that only looks like a wrapper is escaped.
    """

    __slots__ = ()


class Refusal(Exception):
    """A value cannot be stored. The path to the value is collected while the call stack unwinds.

    So paths cost nothing unless a value is refused.
    """

    def __init__(self, *, expected: str, got: str, advice: str) -> None:
        super().__init__(expected, got, advice)
        self.expected = expected
        self.got = got
        self.advice = advice
        self.steps: list[str] = []

    def error(self, root: str) -> NotEncodable:
        """Return the error to show to the caller."""
        path = located(root, self.steps)
        return NotEncodable(f"expected {self.expected}, got: {self.got} at {path}; {self.advice}", path=path)


def located(root: str, steps: list[str]) -> str:
    """Return the path to a value, given the steps from the value up to the root.

    >>> located("order", ["[2]", "['lines']"])
    "order['lines'][2]"
    >>> located("order", [KEY, "['lines']"])
    "key of order['lines']"
    """
    prefix = ""
    while KEY in steps:
        prefix, steps = KEY, steps[steps.index(KEY) + 1 :]
    path = root + "".join(reversed(steps))
    return prefix + (path if len(path) <= LONGEST_PATH else f"{path[:120]}…{path[-60:]}")


def tagged(tag: str, value: Any) -> dict[str, Any]:
    """Wrap ``value``.

    >>> tagged("date", "2026-05-01")
    {'$ayework': 'date', 'value': '2026-05-01'}
    """
    return {TAG: tag, VALUE: value}


#: Writes compact JSON in which text stays readable.
write: Callable[[Any], str] = JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode

#: Writes compact JSON in ASCII.
write_escaped: Callable[[Any], str] = JSONEncoder(
    ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


def has_surrogates(text: str) -> bool:
    """Tell whether ``text`` holds characters that UTF-8 cannot express."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def pieces(text: str) -> list[str]:
    """Split ``text`` wherever JSON would merge two surrogates into one character; most texts are one piece.

    >>> pieces("tea")
    ['tea']
    """
    return SPLIT_PAIR.split(text) if has_surrogates(text) else [text]


def quoted(value: Any, limit: int = 60) -> str:
    """Return the ``repr`` of ``value``, shortened, whatever ``value`` is.

    >>> quoted("tea"), quoted("x" * 100, limit=10)
    ("'tea'", "'xxxxxxxx…")
    """
    try:
        text = repr(str.__str__(value) if isinstance(value, str) else value)
    except Exception:  # a foreign __repr__, or a number with too many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_plain(value: Any) -> bool:
    """Tell whether ``json`` alone would bring ``value`` back unchanged.

    >>> is_plain({"a": [1, None, "x"]}), is_plain({"a": (1,)}), is_plain({1: "a"})
    (True, False, False)
    """
    return all_plain((value,), MAX_DEPTH)


def all_plain(values: Iterable[Any], levels: int) -> bool:
    """Tell whether all ``values`` are plain and nested at most ``levels`` deep."""
    for value in values:
        kind = type(value)
        if kind is str or kind is bool or value is None:
            continue
        if kind is int:
            plain = -BIG < value < BIG
        elif kind is float:
            plain = isfinite(value)
        elif kind is list:
            plain = levels > 0 and all_plain(value, levels - 1)
        else:
            plain = kind is dict and levels > 0 and has_names(value) and all_plain(value.values(), levels - 1)
        if not plain:
            return False
    return True


def has_names(value: dict[Any, Any]) -> bool:
    """Tell whether all keys of a dict are text, none of them our tag."""
    return TAG not in value and TEXT_ONLY.issuperset(map(type, value))
