"""What an inspection can find wrong, in words that are safe to store and to print."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The ways in which an installed file can differ from its RECORD."""

    MISSING = "missing"
    CHANGED_SIZE = "changed size"
    CHANGED_HASH = "changed hash"
    NO_RECORD = "no record"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: which file, what is wrong, and the numbers behind it."""

    path: str
    kind: Kind
    detail: str = ""


def printable(text: str, limit: int = 500) -> str:
    r"""Return ``text`` with everything unprintable escaped, cut to ``limit`` characters.

    Names and paths come from files anyone may have written. A NUL byte or a lone surrogate cannot be
    stored by every database, and a control sequence must not reach a terminal.

    >>> printable("a\x00b\udcff")
    'a\\x00b\\udcff'
    >>> printable("abcdef", limit=4)
    'abc…'
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
