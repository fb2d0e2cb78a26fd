"""An audit in the terminal: a bar that fills, and the report as text."""

from __future__ import annotations

from collections.abc import Callable

from django.template.defaultfilters import filesizeformat

from example_project.audit.charts import text_bars
from example_project.audit.progress import Phase, Progress
from example_project.audit.report import Broken, Report

BAR = 32
STEP = 10  # per cent between two lines where there is no terminal to draw on
SHOWN_BROKEN = 20
SHOWN_LARGEST = 10
WORDS = {
    Phase.WAITING: "waiting for a worker",
    Phase.INSPECTING: "inspecting packages",
    Phase.REPORTING: "writing the report",
    Phase.FINISHED: "finished",
    Phase.FAILED: "failed",
}


class ProgressBar:
    """Draws the progress over itself on a terminal, and as a line now and then anywhere else."""

    def __init__(self, write: Callable[[str], object], live: bool) -> None:
        self._write = write
        self._live = live
        self._shown = ("", -1)

    def show(self, progress: Progress) -> None:
        """Draw what is new."""
        shown = (bar_line(progress), -1) if self._live else (progress.phase.value, progress.percent // STEP)
        if shown == self._shown:
            return
        self._shown = shown
        # The escape clears what a longer line may have left behind.
        self._write(f"\r{bar_line(progress)}\x1b[K" if self._live else f"{bar_line(progress)}\n")

    def close(self) -> None:
        """Leave the line, so that what follows starts on its own."""
        if self._live and self._shown[0]:
            self._write("\n")


def bar_line(progress: Progress) -> str:
    """Return the bar as one line.

    >>> bar_line(Progress(Phase.INSPECTING, done=3, total=4))
    '[████████████████████████········]  75%  3/4 inspecting packages'
    """
    filled = BAR * progress.percent // 100
    counted = f"{progress.done}/{progress.total} " if progress.total else ""
    bar = "█" * filled + "·" * (BAR - filled)
    return f"[{bar}] {progress.percent:3d}%  {counted}{WORDS[progress.phase]}"


def report_lines(report: Report) -> list[str]:
    """Return the report as lines of text."""
    return [*_totals(report), *_largest(report), *_licences(report), *_broken(report), *_unrecorded(report)]


def readable_size(size: int) -> str:
    """Return a size as people write it."""
    return str(filesizeformat(size)).replace("\xa0", " ")


def _totals(report: Report) -> list[str]:
    totals = report["totals"]
    lines = [
        f"{totals['packages']:,} packages, {totals['files']:,} files, {readable_size(totals['size'])}, "
        f"{totals['lines']:,} lines of code",
        f"{totals['broken']:,} broken files, {totals['unrecorded']:,} packages without RECORD",
    ]
    if totals["uninspected"]:
        lines.append(
            f"{totals['uninspected']:,} packages could not be inspected: see their works in the admin"
        )
    return lines


def _largest(report: Report) -> list[str]:
    rows = [
        (f"{package['name']} {package['version']}", package["size"], readable_size(package["size"]))
        for package in report["largest"][:SHOWN_LARGEST]
    ]
    return ["", "Largest packages", *(f"  {line}" for line in text_bars(rows))] if rows else []


def _licences(report: Report) -> list[str]:
    rows = [f"  {licence['packages']:>4}  {licence['name']}" for licence in report["licences"]]
    return ["", "Licences", *rows] if rows else []


def _broken(report: Report) -> list[str]:
    shown = report["broken"][:SHOWN_BROKEN]
    rows = [f"  {_broken_line(file)}" for file in shown]
    more = report["totals"]["broken"] - len(shown)
    return ["", "Broken files", *rows, *([f"  … and {more:,} more"] if more > 0 else [])] if rows else []


def _broken_line(file: Broken) -> str:
    detail = f" ({file['detail']})" if file["detail"] else ""
    return f"{file['package']}: {file['path']}: {file['kind']}{detail}"


def _unrecorded(report: Report) -> list[str]:
    rows = [f"  {name}" for name in report["unrecorded"]]
    return ["", "Without RECORD", *rows] if rows else []
