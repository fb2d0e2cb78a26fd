"""What a page consists of. Values are texts, or HTML made by ``format_html``; templates escape the former."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and a value; a wide one takes a line of its own."""

    label: str
    value: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page under a title; ``more`` is the address of what did not fit."""

    title: str
    facts: Sequence[Fact] = ()
    table: Table | None = None
    note: str = ""
    more: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: a headline, and sections."""

    headline: str
    sections: Sequence[Section]
