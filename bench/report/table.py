"""The table of all readings, with ratios and targets, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.report.readings import Reading
from bench.report.targets import OURS, Judgement, Side, Target

HEAD = ("phase", "contestant", "database", "setting", "figure", "median", "ours ÷ it", "target", "")
#: Where ours keeps its jobs when it is held against what keeps its own there.
COMPARED_ON = {"redis": "postgres"}


def render(readings: Sequence[Reading], targets: Sequence[Target], among: Sequence[Reading] = ()) -> str:
    """Return the table of some readings.

    Targets are judged by all readings that are known, and stand beside the rival's reading, or beside ours
    when there is no other rival. What was not measured says why.
    """
    judged = [target.judge(among or readings) for target in targets]
    rows = [row(reading, readings, judged) for reading in readings]
    lines = [HEAD, tuple("---" for _ in HEAD), *once(rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def row(reading: Reading, readings: Sequence[Reading], judged: Iterable[Judgement]) -> tuple[str, ...]:
    """Return the cells of a reading."""
    here = [one for one in judged if one.row == reading]
    named = (reading.phase, reading.contestant, reading.database, reading.setting, reading.figure)
    if not reading.rounds:
        return (*named, f"not measured: {reading.reason}", "", "", "")
    return (
        *named,
        figure_text(reading),
        ratio_text(reading, readings),
        ", ".join(target_text(one) for one in here),
        ", ".join(one.verdict for one in here),
    )


def once(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Name each phase in its first row only."""
    shown: list[tuple[str, ...]] = []
    last = ""
    for phase, *cells in rows:
        shown.append(("" if phase == last else phase, *cells))
        last = phase
    return shown


def figure_text(reading: Reading) -> str:
    """Return the median and how far the rounds are apart."""
    spread = f" ± {100 * reading.spread:.0f} %" if len(reading.rounds) > 1 else " (1 round)"
    failed = f" ({reading.reason})" if reading.reason else ""
    return number(reading.median) + spread + failed


def number(value: float) -> str:
    """Return a figure with about three digits that count."""
    if value >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio_text(reading: Reading, readings: Sequence[Reading]) -> str:
    """Return ours divided by this reading, on the same database or the one that stands for it."""
    if reading.contestant == OURS:
        return ""
    database = COMPARED_ON.get(reading.database, reading.database)
    ours = Side(reading.phase, reading.figure, database).among(readings)
    return number(ours.median / reading.median) if ours and reading.median else ""


def target_text(judgement: Judgement) -> str:
    """Return the bound, and what was reached where the row does not say it."""
    target = judgement.target
    reached = "" if judgement.reached is None else f": {number(judgement.reached)}"
    if target.rival is not None and target.rival.contestant == OURS:
        return f"{target.text} {target.rival.setting or target.rival.phase}{reached}"
    return target.text + (reached if target.is_difference else "")


def summary(readings: Sequence[Reading], targets: Sequence[Target]) -> str:
    """Return one line per target: what is held against what, the bound, what was reached."""
    lines = [("ours", "against", "target", "reached", ""), ("---",) * 5]
    for one in (target.judge(readings) for target in targets):
        ours, rival = one.target.ours, one.target.rival
        against = f"{rival.contestant}, {rival.setting or rival.phase}, {rival.database}" if rival else ""
        reached = "" if one.reached is None else number(one.reached)
        side = ", ".join(part for part in (ours.phase, ours.setting, ours.database, ours.figure) if part)
        lines.append((side, against, one.target.text, reached, one.verdict))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
