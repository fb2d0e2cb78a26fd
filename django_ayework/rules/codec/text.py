"""Plain JSON data as text, tags for what JSON does not know, and custom types."""

from __future__ import annotations

import builtins
import json.encoder
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json import JSONEncoder
from math import isfinite
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

# --- text ---
# Plain data as JSON text that every database can hold; and short quotations for messages.

#: The place between two halves of a surrogate pair that stand in a text as two characters.
SPLIT_PAIR = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")

_readable = JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
_escaped = JSONEncoder(ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":"))


def kept(encoder: JSONEncoder) -> Callable[[Any, int], Iterable[str]]:
    """Return the part of an encoder that is written in C, which itself would make it anew for every text.

    It takes a value and a level of indentation, and returns a text in parts: in one, where it is missing.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda plain, level: (encoder.encode(plain),)
    quote = json.encoder.encode_basestring_ascii if encoder.ensure_ascii else json.encoder.encode_basestring
    parts: Callable[[Any, int], Iterable[str]] = make(
        None, encoder.default, quote, None, ":", ",", False, False, encoder.allow_nan
    )
    return parts


_readable_parts = kept(_readable)
_escaped_parts = kept(_escaped)


def write(plain: Any) -> str:
    """Return compact JSON in which text stays readable.

    >>> write({"name": "Zoë"})
    '{"name":"Zoë"}'
    """
    return "".join(_readable_parts(plain, 0))


def write_escaped(plain: Any) -> str:
    """Return compact JSON in ASCII.

    >>> write_escaped({"name": "Zoë"})
    '{"name":"Zo\\\\u00eb"}'
    """
    return "".join(_escaped_parts(plain, 0))


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
    """Split ``text`` wherever JSON would melt two surrogates into one character; most texts are one piece.

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
        plain = str.__str__(value) if isinstance(value, str) else value
        return shortened(repr(plain), limit)
    except Exception:  # a foreign __repr__, or a number with too many digits
        return f"<{type(value).__name__}>"


def shortened(text: str, limit: int) -> str:
    """Cut ``text`` at ``limit`` characters.

    >>> shortened("elderberry", 5)
    'elde…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


# --- tags ---
# The wrapper around values JSON does not know: ``{"$ayework": "<tag>", "value": …}``.

TAG = "$ayework"
VALUE = "value"


def tagged(tag: str, value: Any) -> dict[str, Any]:
    """Wrap ``value``.

    >>> tagged("date", "2026-05-01")
    {'$ayework': 'date', 'value': '2026-05-01'}
    """
    return {TAG: tag, VALUE: value}


class UnknownTag(dict[str, Any]):
    """A wrapper whose tag this codec does not know, written perhaps by a newer release.

    It is a dict with the stored content. Being a class of its own, it can be written back as it was, while a
    mapping of a user that merely looks like it is escaped.
    """

    __slots__ = ()


# --- plain ---
# The short cut: is a value made only of what JSON can say, exactly?

#: Containers may be nested this deep. A fixed limit, well inside Python's own, means that what one process
#: could write another can read, whatever the depth of its stack.
MAX_DEPTH = 100

#: Whole numbers of this size and beyond are tagged: many JSON readers would round them.
BIG = 2**53

ATOMS = frozenset({str, bool, type(None)})
TEXT_ONLY = frozenset({str})


def is_plain(value: Any) -> bool:
    """Tell whether ``json`` alone would bring ``value`` back unchanged.

    >>> is_plain({"a": [1, None, "x"]}), is_plain({"a": (1,)}), is_plain({1: "a"})
    (True, False, False)
    """
    if type(value) is dict:  # as inputs are: one step less
        return has_names(value) and all_plain(value.values(), MAX_DEPTH - 1)
    return all_plain((value,), MAX_DEPTH)


def all_plain(values: Iterable[Any], room: int) -> bool:
    """Tell whether all ``values`` are plain and nested at most ``room`` deep."""
    for value in values:
        kind = type(value)
        if kind in ATOMS:
            continue
        if kind is int:
            plain = -BIG < value < BIG
        elif kind is float:
            plain = isfinite(value)
        elif kind is list:
            plain = room > 0 and all_plain(value, room - 1)
        else:
            plain = kind is dict and room > 0 and has_names(value) and all_plain(value.values(), room - 1)
        if not plain:
            return False
    return True


def has_names(value: dict[Any, Any]) -> bool:
    """Tell whether a dict has text for keys, none of them our tag."""
    return TAG not in value and TEXT_ONLY.issuperset(map(type, value))


# --- custom ---
# The description of a type that JSON does not know.

T = TypeVar("T")

#: Types with a JSON form of their own; their values cannot be given another one.
NATIVE: tuple[builtins.type, ...] = (type(None), bool, int, float, str, list, dict)


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
        """Refuse what could never work, where the type is described."""
        if not isinstance(self.tag, str) or not self.tag:
            raise TypeError(f"expected tag to be a text that is not empty, got: {self.tag!r}")
        if not isinstance(self.type, builtins.type):
            raise TypeError(f"expected type to be a class, got: {self.type!r}")
        if self.type in (*NATIVE, object):
            raise ValueError(f"expected a class without a JSON form of its own, got: {self.type.__name__}")
        if not callable(self.to_plain) or not callable(self.from_plain):
            raise TypeError(f"expected to_plain and from_plain of tag {self.tag!r} to be callable")


# --- protocol ---
# What a codec must be able to do.


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
