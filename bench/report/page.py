"""Writes the kept figures to the page Performance and bench/figures.md: ``python -m bench.report.page``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report.files import ROOT, files, kept
from bench.report.table import render, summary
from bench.report.targets import TARGETS

#: The page of the documentation has the summary, the file beside the measurements has all figures.
PAGE = ROOT / "docs" / "explanation/performance.md"
ALL = ROOT / "bench" / "figures.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


class NoPlace(Exception):
    """The page does not say where the figures go."""


def main() -> int:
    """Rewrite the figures of the page; return 1 when there are none."""
    if not (taken := files()):
        print("There are no figures yet: take them with make bench.", file=sys.stderr)
        return 1
    readings = kept()
    write(PAGE, f"{described(taken)}\n{summary(readings, TARGETS)}")
    write(ALL, f"{described(taken)}\nAll figures:\n\n{render(readings, TARGETS)}")
    print(f"written: {PAGE.relative_to(ROOT)} and {ALL.relative_to(ROOT)}")
    return 0


def write(page: Path, figures: str) -> None:
    """Put figures between the marks of a page. Raises NoPlace."""
    page.write_text(replaced(page.read_text(), figures))


def replaced(text: str, figures: str) -> str:
    """Return the text with other figures between its marks. Raises NoPlace."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise NoPlace(f"expected one {BEGIN} and after it one {END}")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{figures.strip()}\n\n{END}{after}"


def described(taken: Sequence[Mapping[str, Any]]) -> str:
    """Return when the figures were taken, at which scale, with what."""
    days = sorted({str(file["taken"])[:10] for file in taken})
    scales = sorted({float(file["scale"]) for file in taken})
    versions: dict[str, str] = {}
    for file in taken:
        versions |= file.get("machine", {})
    cores = versions.pop("cores", "?")
    tools = ", ".join(f"`{name} {number}`" for name, number in versions.items())
    lines = [f"Taken on {' and '.join(days)} on {cores} cores, with {tools}."]
    if scales != [1.0]:
        lines.append(f"**Counts were multiplied by {', '.join(f'{scale:g}' for scale in scales)}.**")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
