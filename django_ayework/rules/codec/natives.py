"""Text and numbers: mostly what they are, tagged where JSON would change them."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from django_ayework.rules.codec.arrays import require_list
from django_ayework.rules.codec.plain import BIG
from django_ayework.rules.codec.tags import tagged
from django_ayework.rules.codec.text import pieces
from django_ayework.rules.codec.walk import Walk

HEX = re.compile("-?0x[0-9a-f]+")
NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def write_same(walk: Walk, value: Any) -> Any:
    """None, True and False are written as they are."""
    return value


def write_text(walk: Walk, value: str) -> Any:
    """Write text as it is; where JSON would melt two surrogates into one character, in pieces."""
    parts = pieces(str.__str__(value))
    return parts[0] if len(parts) == 1 else tagged("str", parts)


def read_text(plain: Any) -> str:
    """Join the pieces of a text; raise TypeError if they are no texts."""
    return "".join(require_list(plain))


def write_lazy_text(walk: Walk, value: Any) -> Any:
    """Write a lazy string as it reads now, in the language of the caller."""
    return write_text(walk, str(value))


def write_int(walk: Walk, value: int) -> Any:
    """Write small whole numbers as they are, big ones as hexadecimal text."""
    return value if -BIG < value < BIG else tagged("int", hex(value))


def read_int(plain: Any) -> int:
    """Read a whole number; hexadecimal has no limit on digits.

    >>> read_int("-0x20000000000000")
    -9007199254740992
    """
    if not HEX.fullmatch(plain):
        raise ValueError("expected hexadecimal digits")
    return int(plain, 16)


def write_float(walk: Walk, value: float) -> Any:
    """Write finite numbers as they are, NaN and infinities as text."""
    return value if isfinite(value) else tagged("float", float.__repr__(value))


def read_float(plain: Any) -> float:
    """Read NaN or an infinity."""
    return NOT_FINITE[plain]
