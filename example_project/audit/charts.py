"""The geometry of a bar chart, for SVG and for the terminal.

Widths are per cent, so the drawing follows the page while its letters keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROW = 40.0
BAR = 10.0
BASELINE = 15.0  # of the label, from the top of its row
SMALLEST = 0.5  # per cent: what is there is seen
LABEL = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: the label and the shown value stand on the line above it."""

    label: str
    full_label: str
    shown: str
    text_y: float
    y: float
    width: float
    height: float = BAR


@dataclass(frozen=True, slots=True)
class BarChart:
    """A chart whose bars all start at the left edge."""

    bars: tuple[Bar, ...]
    height: float


def shares(values: Sequence[float]) -> list[float]:
    """Return each value in per cent of the largest.

    >>> shares([200, 50, 0])
    [100.0, 25.0, 0.0]
    >>> shares([0])
    [0.0]
    """
    largest = max(values, default=0)
    return [round(max(100 * value / largest, SMALLEST), 2) if value > 0 else 0.0 for value in values]


def bar_chart(rows: Sequence[tuple[str, float, str]]) -> BarChart:
    """Return the chart of ``(label, value, shown value)``, one row each, in the order given."""
    widths = shares([value for _, value, _ in rows])
    bars = tuple(
        Bar(
            label=shortened(label),
            full_label=label,
            shown=shown,
            text_y=index * ROW + BASELINE,
            y=index * ROW + BASELINE + 7,
            width=width,
        )
        for index, ((label, _, shown), width) in enumerate(zip(rows, widths, strict=True))
    )
    return BarChart(bars, height=len(bars) * ROW)


def shortened(label: str, length: int = LABEL) -> str:
    """Return a label that fits.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return label if len(label) <= length else label[: length - 1] + "…"


def text_bars(rows: Sequence[tuple[str, float, str]], width: int = 30) -> list[str]:
    """Return the same chart as lines of text.

    >>> text_bars([("a", 4, "4 B"), ("bb", 2, "2 B")], width=4)
    ['a   ████  4 B', 'bb  ██    2 B']
    """
    names = [shortened(label, 28) for label, _, _ in rows]
    column = max(map(len, names), default=0)
    parts = shares([value for _, value, _ in rows])
    return [
        f"{name:<{column}}  {_blocks(part, width):<{width}}  {shown}"
        for name, part, (_, _, shown) in zip(names, parts, rows, strict=True)
    ]


def _blocks(share: float, width: int) -> str:
    eighths = max(round(share * width * 8 / 100), 1) if share > 0 else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()
