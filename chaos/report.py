"""The tables of results, on the terminal and in docs/explanation/reliability.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path

from chaos.deadlocks import Measured
from chaos.faults import FAULTS
from chaos.run import Result
from chaos.servers import ROOT, SERVERS

PAGE = ROOT / "docs" / "explanation/reliability.md"
HEADS = (
    "fault",
    "database",
    "applied",
    "works",
    "reclaimed",
    "lost",
    "doubled",
    "stuck",
    "wrong",
    "recovery",
    "tracebacks",
)
MEASURED_HEADS = (
    "database",
    "calls",
    "works",
    "deadlocks",
    "seen by callers",
    "attempts failed",
    "other errors",
    "99 % of calls within",
    "longest call",
)


class NoPlace(Exception):
    """The page does not say where a table goes."""


def line(result: Result) -> str:
    """Return a result in one line, for the terminal."""
    head = f"{result.database:<9} {result.fault:<12}"
    if result.skipped:
        return f"{head} skipped: {result.skipped}"
    if result.error:
        return f"{head} the harness failed: {result.error}"
    counts = ", ".join(f"{name} {getattr(result, name)}" for name in ("lost", "doubled", "stuck", "wrong"))
    recovery = "" if result.recovery is None else f", recovery {result.recovery:.1f} s"
    works = f"{result.works} works, {result.reclaimed} reclaimed"
    return f"{head} {works}, {counts}, tracebacks {result.tracebacks}{recovery}"


def table(results: Iterable[Result]) -> str:
    """Return the results as a table, by fault and database."""
    faults, databases = list(FAULTS), list(SERVERS)
    ordered = sorted(results, key=lambda one: (faults.index(one.fault), databases.index(one.database)))
    return drawn(HEADS, [row(result) for result in ordered], texts=2)


def row(result: Result) -> Sequence[str]:
    """Return the cells of one result."""
    database = SERVERS[result.database].title
    if said := (f"skipped: {result.skipped}" if result.skipped else result.error):
        return [result.title, database, said, *[""] * (len(HEADS) - 3)]
    counts = (
        result.applied,
        result.works,
        result.reclaimed,
        result.lost,
        result.doubled,
        result.stuck,
        result.wrong,
    )
    recovery = "" if result.recovery is None else f"{result.recovery:.1f} s"
    return [result.title, database, *(f"{count}" for count in counts), recovery, f"{result.tracebacks}"]


def details(results: Iterable[Result], most: int = 12) -> str:
    """Return what was found, some of it for each run."""
    lines = []
    for result in results:
        said = [*result.findings, *(f"not applied: {one}" for one in result.hindered)]
        if said:
            lines.append(f"{result.database}, {result.fault} (SEED={result.seed}):")
            lines += [f"  {one}" for one in said[:most]]
            if len(said) > most:
                lines.append(f"  and {len(said) - most} more")
    return "\n".join(lines)


def measured_line(measured: Measured) -> str:
    """Return a measurement in one line, for the terminal, with the commonest errors."""
    head = f"{measured.database:<9} {measured.calls} calls, {measured.deadlocks} deadlocks"
    said = f"{head}, longest call {measured.longest:.2f} s ({measured.longest_call})"
    return "\n  ".join([said, *measured.errors])


def measured_table(measured: Iterable[Measured]) -> str:
    """Return the measurements as a table."""
    return drawn(MEASURED_HEADS, [measured_row(one) for one in measured], texts=1)


def measured_row(one: Measured) -> Sequence[str]:
    """Return the cells of one measurement."""
    counts = (one.calls, one.works, one.deadlocks, one.seen_by_callers, one.failed_attempts, one.other_errors)
    longest = f"{one.longest:.2f} s ({one.longest_call})"
    return [SERVERS[one.database].title, *(f"{count}" for count in counts), f"{one.usual:.3f} s", longest]


def drawn(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """Return a table of Markdown; all columns but the first are numbers."""
    rules = ["---"] * texts + ["---:"] * (len(heads) - texts)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def write_docs(
    results: Sequence[Result],
    measured: Sequence[Measured],
    versions: Mapping[str, str],
    seconds: float,
    page: Path = PAGE,
) -> None:
    """Put the tables that there are between their marks of the page. Raises NoPlace."""
    text = page.read_text()
    products = ", ".join(versions[name] for name in SERVERS if name in versions)
    told = f"Taken on {date.today()}, {seconds:g} s each, on {products}"
    seeds = ", ".join(sorted({one.seed for one in (*results, *measured)}))
    if results:
        text = replaced(text, "results", f"{told}; seed {seeds}.\n\n{table(results)}")
    if measured:
        text = replaced(text, "deadlocks", f"{told}; seed {seeds}.\n\n{measured_table(measured)}")
    page.write_text(text)


def replaced(text: str, name: str, content: str) -> str:
    """Return the text with other content between its marks. Raises NoPlace."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise NoPlace(f"expected one {begin} and after it one {end}")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"
