"""Plain data as JSON text that every database can hold; and short quotations for messages."""

from __future__ import annotations

import json.encoder
import re
from collections.abc import Callable, Iterable
from json import JSONEncoder
from typing import Any

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
