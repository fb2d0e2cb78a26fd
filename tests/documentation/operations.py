"""Reading the pages on operations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.docs import FENCE
from tests.documentation.pages import ROOT, names, page, section, tables

FOLDER = ROOT / "docs" / "operations"
PAGES = sorted([*FOLDER.glob("*.md"), ROOT / "SECURITY.md"])


def blocks(path: str, language: str) -> list[str]:
    return [match[4] for match in FENCE.finditer(page(path).read_text()) if match[3] == language]


def plain(path: str) -> str:
    """Return a page without code and line ends."""
    return " ".join(FENCE.sub("", page(path).read_text()).split())


def code_of(path: Path) -> Iterator[str]:
    """Yield what a page sets as code, in the text and in blocks."""
    text = path.read_text()
    yield from (match[4] for match in FENCE.finditer(text))
    yield from names(FENCE.sub("", text))


def series() -> dict[str, set[str]]:
    """Return each series of the page on monitoring, with its labels."""
    rows = [row for rows in tables(section("operations/monitoring.md", "Series")) for row in rows]
    return {names(row[0])[0]: set(names(row[2])) for row in rows}
