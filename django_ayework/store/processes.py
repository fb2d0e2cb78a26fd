"""Worker processes: their heartbeats, and the commands that they are given."""

from __future__ import annotations

from datetime import datetime

from django_ayework.models import WorkerProcess
from django_ayework.store.database import rows


def register_process(process: WorkerProcess) -> None:
    """Insert the row of a worker that starts."""
    rows(WorkerProcess).bulk_create([process])


def note_heartbeat(id: str, now: datetime, running: int, trouble: str) -> bool:
    """Note that a worker is alive, and how it is; return False when its row is gone."""
    alive = rows(WorkerProcess).filter(id=id)
    return bool(alive.update(seen_at=now, running=running, trouble=trouble))


def note_stopped(id: str, now: datetime) -> None:
    """Note that a worker stopped."""
    rows(WorkerProcess).filter(id=id).update(seen_at=now, stopped_at=now, running=0, command="")


def command_process(id: str, command: str) -> bool:
    """Write what a worker is to do; return False for one that is not there, or has stopped."""
    return bool(rows(WorkerProcess).filter(id=id, stopped_at=None).update(command=command))


def note_obeyed(id: str, command: str, quiet: bool) -> None:
    """Note that a worker has obeyed a command; one that was given meanwhile stays."""
    rows(WorkerProcess).filter(id=id, command=command).update(command="", quiet=quiet)


def live_processes(since: datetime) -> list[tuple[str, str]]:
    """Return the ids of the workers that were seen since and claim works, with their queues."""
    claiming = rows(WorkerProcess).filter(stopped_at=None, seen_at__gte=since, quiet=False)
    return list(claiming.values_list("id", "queues"))


def find_process(id: str) -> WorkerProcess | None:
    """Read one worker, alive or not."""
    return rows(WorkerProcess).filter(id=id).first()


def delete_unseen_processes(before: datetime) -> None:
    """Delete workers not seen since; their works' leases lapsed long ago."""
    rows(WorkerProcess).filter(seen_at__lt=before).delete()


def processes_seen_since(moment: datetime) -> list[WorkerProcess]:
    """Return the workers that were alive after this moment and have not stopped."""
    return list(rows(WorkerProcess).filter(seen_at__gte=moment, stopped_at=None).order_by("started_at"))
