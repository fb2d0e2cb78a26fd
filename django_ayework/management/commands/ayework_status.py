"""``ayework_status``: workers, queues, dead letters; or schedules."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from django_ayework.documentation import see
from django_ayework.flow.overview import Overview, overview
from django_ayework.flow.schedules import ScheduleOverview, schedules_overview
from django_ayework.management.base import JSONCommand
from django_ayework.rules.figures import Figures, QueueFigures, TypeFigures, WorkerFigures, bounded
from django_ayework.rules.formatting import counted, duration

#: Firings of each schedule that are shown.
FORESEEN = 3


class Command(JSONCommand):
    """Show problems, workers, queues, types and dead letters; or the schedules."""

    help = "Show problems, workers, queues and types with their figures, and the number of dead letters."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--schedules``."""
        super().add_arguments(parser)
        parser.add_argument(
            "--schedules", action="store_true", help="Show schedules instead, each with its next firings."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Look, then print."""
        if options["schedules"]:
            schedules = schedules_overview(FORESEEN)
            self.answer([asdict(schedule) for schedule in schedules], schedules_as_text(schedules), options)
            return
        seen = overview()
        self.answer(asdict(seen), as_text(seen), options)


def as_text(seen: Overview) -> str:
    """Return the overview as lines."""
    return "\n".join(
        [
            *problem_lines(seen),
            "Workers:",
            *(map(worker_line, seen.workers) if seen.workers else ["  none"]),
            "Queues:",
            *(map(queue_line, seen.queues) if seen.queues else ["  nothing is queued"]),
            *more_line(seen.more_queues),
            "Types:",
            *(map(type_line, seen.types) if seen.types else ["  nothing is queued"]),
            *more_line(seen.more_types),
            f"Dead letters: {bounded(seen.dead, seen.dead_capped)}",
        ]
    )


def problem_lines(seen: Overview) -> list[str]:
    """Return the headline and the other problems, each with its remedy and the address of its entry."""
    lines = []
    for problem in seen.problems or [seen.headline]:
        lines.append(problem.text)
        if problem.remedy:
            lines += [f"  {problem.remedy}", f"  {see('doctor', problem.code)}"]
    return lines


def more_line(are_more: bool) -> list[str]:
    """Return that there are others than those shown, if there are."""
    return ["  and more"] if are_more else []


def worker_line(worker: WorkerFigures) -> str:
    """Return a worker as a line."""
    return (
        f"  {worker.name or worker.id}  {worker.host}:{worker.pid}"
        f"  {worker.running} running, {worker.concurrency} at a time"
        f"  queues: {worker.queues or 'all'}  seen {worker.silent:.0f} s ago"
        f"{f'  version {worker.version}' if worker.version else ''}"
        f"{' (stale)' if worker.stale else ''}"
        f"{' (quiet)' if worker.quiet else ''}"
        f"{f'  TROUBLE: {worker.trouble}' if worker.trouble else ''}"
    )


def queue_line(queue: QueueFigures) -> str:
    """Return a queue as a line."""
    lapsed = f" ({queue.lapsed} lapsed)" if queue.lapsed else ""
    return (
        f"  {queue.queue}  {counts(queue, lapsed)}"
        f"{'' if queue.served else '  no live worker serves it'}{'  PAUSED' if queue.paused else ''}"
    )


def type_line(type: TypeFigures) -> str:
    """Return a type as a line."""
    times = (
        "" if type.p50 is None else f"  runs {duration(type.p50)}, 95 % within {duration(type.p95 or 0.0)}"
    )
    limit = f"  at most {type.max_running} at a time" if type.max_running else ""
    return f"  {type.type}  {counts(type)}{times}{limit}{'  PAUSED' if type.paused else ''}"


def counts(figures: Figures, lapsed: str = "") -> str:
    """Return the counts of a queue or a type."""
    count, failures = figures.bounded, figures.failed + figures.died
    failed = f"  {counted(failures, 'failure')} in the last hour" if failures else ""
    return (
        f"{count('pending')} pending (oldest {figures.waiting:.0f} s)  {count('running')} running{lapsed}"
        f"  {count('scheduled')} scheduled  {count('blocked')} blocked  {figures.rate:.0f} per minute{failed}"
    )


def schedules_as_text(schedules: list[ScheduleOverview]) -> str:
    """Return the schedules as lines."""
    lines = ["Schedules:"]
    for schedule in schedules:
        lines.append(
            f"  {schedule.name}  {schedule.state}  {schedule.when} ({schedule.tz})  runs {schedule.runs}"
            + (f"  {schedule.queued} queued" if schedule.queued else "")
        )
        if schedule.next:
            lines.append("    next: " + ", ".join(f"{at:%Y-%m-%d %H:%M:%S %Z}" for at in schedule.next))
        if schedule.error:
            lines.append(f"    error: {schedule.error.splitlines()[0]}")
    if not schedules:
        lines.append("  none; declare them with @schedule, and start a worker")
    return "\n".join(lines)
