"""``ayework_status``: workers, queues, dead letters; or schedules."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from django_ayework.flow.overview import Overview, overview
from django_ayework.flow.schedules import ScheduleOverview, schedules_overview
from django_ayework.management.base import JSONCommand

#: Firings of each schedule that are shown.
FORESEEN = 3


class Command(JSONCommand):
    """Show who works, what waits and what died; or what is scheduled."""

    help = "Show workers, queues with their depth and oldest age, and the number of dead letters."

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
    lines = ["Workers:"]
    for worker in seen.workers:
        lines.append(
            f"  {worker.name or worker.id}  {worker.host}:{worker.pid}"
            f"  {worker.running}/{worker.concurrency} running"
            f"  queues: {worker.queues or 'all'}  seen {worker.silent:.0f} s ago"
            f"{' (stale)' if worker.stale else ''}"
            f"{f'  TROUBLE: {worker.trouble}' if worker.trouble else ''}"
        )
    none_is_live = all(worker.stale for worker in seen.workers)
    if none_is_live:
        lines.append("  none is running; start one with: manage.py ayework_worker")
    lines.append("Queues:")
    for queue in seen.queues:
        lines.append(
            f"  {queue.queue}  {queue.pending} pending (oldest {queue.waiting:.0f} s)"
            f"  {queue.running} running{f' ({queue.lapsed} lapsed)' if queue.lapsed else ''}"
            f"  {queue.scheduled} scheduled  {queue.blocked} blocked"
            f"{'' if queue.served or none_is_live else '  no live worker serves it'}"
        )
    if not seen.queues:
        lines.append("  nothing is queued")
    lines.append(f"Dead letters: {seen.dead}")
    return "\n".join(lines)


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
