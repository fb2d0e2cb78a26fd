"""Reading pages of the documentation: their sections, tables and Python examples."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.docs import FENCE, PAGES, ROOT, examples

__all__ = ["PAGES", "ROOT", "names", "page", "python_blocks", "section", "table", "tables"]

HEADING = re.compile(r"^(#{1,6}) (.+?)\n", re.MULTILINE)


def page(path: str) -> Path:
    """Return a page by its path within the documentation."""
    return ROOT / "docs" / path


def section(path: str, heading: str) -> str:
    """Return what stands under a heading, with the headings below it, without code."""
    text = FENCE.sub("", page(path).read_text())
    found = list(HEADING.finditer(text))
    [start] = [match for match in found if match[2] == heading]
    ends = [m.start() for m in found if m.start() > start.start() and len(m[1]) <= len(start[1])]
    return text[start.end() : min(ends, default=len(text))]


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables in a text, each as rows of cells, without its head."""
    found = re.findall(r"^\|.*\n\|[-| ]+\|\n((?:\|.*(?:\n|\Z))+)", text, re.MULTILINE)
    return [[cells(line) for line in rows.splitlines()] for rows in found]


def table(path: str, heading: str) -> list[list[str]]:
    """Return the first table under a heading."""
    return tables(section(path, heading))[0]


def cells(line: str) -> list[str]:
    """Return the cells of a row.

    >>> cells("| `a` | b |")
    ['`a`', 'b']
    """
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def names(text: str) -> list[str]:
    """Return what is set as code."""
    return re.findall(r"`([^`\n]+)`", text)


def python_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Return each Python example of a page, with its line."""
    text = path.read_text()
    for match in FENCE.finditer(text):
        if match[3].split(" ")[0] in {"python", "py", "pycon"}:
            line = text.count("\n", 0, match.start(4)) + 1
            for offset, source in examples(textwrap.dedent(match[4])):
                yield line + offset, source
