"""Reading pages of the documentation: their sections, tables and examples."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.docs import FENCE, PAGES, ROOT, examples

__all__ = ["OPERATIONS", "PAGES", "ROOT", "blocks", "code_of", "headings", "listed", "names", "page", "plain"]
__all__ += ["python_blocks", "section", "series", "table", "tables"]

HEADING = re.compile(r"^(#{1,6}) (.+?)\n", re.MULTILINE)


def page(path: str | Path) -> Path:
    """Return a page by its path within the documentation."""
    return ROOT / "docs" / path


OPERATIONS = sorted([*page("operations").glob("*.md"), ROOT / "SECURITY.md"])


def headings(path: str | Path, level: int = 2) -> list[str]:
    """Return the headings of a level."""
    return re.findall(rf"^{'#' * level} (.+)$", page(path).read_text(), re.MULTILINE)


def section(path: str | Path, heading: str) -> str:
    """Return what stands under a heading, with the headings below it, without code."""
    text = FENCE.sub("", page(path).read_text())
    found = list(HEADING.finditer(text))
    [start] = [match for match in found if match[2] == heading]
    ends = [m.start() for m in found if m.start() > start.start() and len(m[1]) <= len(start[1])]
    return text[start.end() : min(ends, default=len(text))]


def plain(path: str | Path, heading: str | None = None) -> str:
    """Return a page, or a section of it, without code and line ends."""
    text = section(path, heading) if heading else FENCE.sub("", page(path).read_text())
    return " ".join(text.split())


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables in a text, each as rows of cells, without its head."""
    found = re.findall(r"^\|.*\n\|[-| ]+\|\n((?:\|.*(?:\n|\Z))+)", text, re.MULTILINE)
    return [[cells(line) for line in rows.splitlines()] for rows in found]


def table(path: str | Path, heading: str, number: int = 0) -> list[list[str]]:
    """Return a table under a heading."""
    return tables(section(path, heading))[number]


def listed(path: str | Path, heading: str, number: int = 0) -> list[str]:
    """Return what is set as code in the first column of a table."""
    return [name for row in table(path, heading, number) for name in names(row[0])]


def cells(line: str) -> list[str]:
    """Return the cells of a row.

    >>> cells("| `a` | b |")
    ['`a`', 'b']
    """
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def names(text: str) -> list[str]:
    """Return what is set as code."""
    return re.findall(r"`([^`\n]+)`", text)


def blocks(path: str | Path, language: str) -> list[str]:
    """Return the blocks of code in a language."""
    return [match[4] for match in FENCE.finditer(page(path).read_text()) if match[3] == language]


def code_of(path: Path) -> Iterator[str]:
    """Yield what a page sets as code, in the text and in blocks."""
    text = path.read_text()
    yield from (match[4] for match in FENCE.finditer(text))
    yield from names(FENCE.sub("", text))


def series() -> dict[str, set[str]]:
    """Return each series of the page on monitoring, with its labels."""
    rows = [row for rows in tables(section("operations/monitoring.md", "Series")) for row in rows]
    return {names(row[0])[0]: set(names(row[2])) for row in rows}


def python_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Return each Python example of a page, with its line."""
    text = path.read_text()
    for match in FENCE.finditer(text):
        if match[3].split(" ")[0] in {"python", "py", "pycon"}:
            line = text.count("\n", 0, match.start(4)) + 1
            for offset, source in examples(textwrap.dedent(match[4])):
                yield line + offset, source
