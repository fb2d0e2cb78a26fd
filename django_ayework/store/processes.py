"""Worker processes and their heartbeats."""

from __future__ import annotations

from datetime import datetime

from django_ayework.models import WorkerProcess
from django_ayework.store.database import rows


def register(process: WorkerProcess) -> None:
    """Insert the row of a worker that starts."""
    rows(WorkerProcess).bulk_create([process])


def heartbeat(id: str, now: datetime, running: int, trouble: str) -> bool:
    """Note that a worker is alive, and how it is; return False when its row is gone."""
    alive = rows(WorkerProcess).filter(id=id)
    return bool(alive.update(seen_at=now, running=running, trouble=trouble))


def stopped(id: str, now: datetime) -> None:
    """Note that a worker stopped."""
    rows(WorkerProcess).filter(id=id).update(seen_at=now, stopped_at=now, running=0)


def living(since: datetime) -> list[tuple[str, str]]:
    """Return the ids of the workers that were seen since and have not stopped, with their queues."""
    return list(rows(WorkerProcess).filter(stopped_at=None, seen_at__gte=since).values_list("id", "queues"))


def find_process(id: str) -> WorkerProcess | None:
    """Read one worker, alive or not."""
    return rows(WorkerProcess).filter(id=id).first()


def delete_unseen(before: datetime) -> int:
    """Delete workers not seen since; their works' leases lapsed long ago."""
    return rows(WorkerProcess).filter(seen_at__lt=before).delete()[0]
