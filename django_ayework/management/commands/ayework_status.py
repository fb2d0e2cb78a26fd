"""``ayework_status``: workers, queues, dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django_ayework.flow.overview import Overview, overview
from django_ayework.management.output import JSONCommand


class Command(JSONCommand):
    """Show who works, what waits and what died."""

    help = "Show workers, queues with their depth and oldest age, and the number of dead letters."

    def handle(self, *args: Any, **options: Any) -> None:
        """Look, then print."""
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
        )
    if all(worker.stale for worker in seen.workers):
        lines.append("  none is running; start one with: manage.py ayework_worker")
    lines.append("Queues:")
    for queue in seen.queues:
        lines.append(
            f"  {queue.queue}  {queue.pending} pending (oldest {queue.waiting:.0f} s)"
            f"  {queue.running} running  {queue.scheduled} scheduled  {queue.blocked} blocked"
        )
    if not seen.queues:
        lines.append("  nothing is queued")
    lines.append(f"Dead letters: {seen.dead}")
    return "\n".join(lines)
