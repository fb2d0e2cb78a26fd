"""Failed attempts, progress, and worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.rules.states import Status
from django_ayework.store.database import CHUNK, atomic, chunked, rows
from django_ayework.store.parameters import portions

# --- attempts ---
# Attempts that did not succeed.


class AttemptRow(NamedTuple):
    """What is kept of an attempt."""

    work_id: str
    number: int
    worker: str
    outcome: str
    error: str
    traceback: str
    started_at: datetime | None
    ended_at: datetime


def insert_attempts(attempts: Sequence[AttemptRow]) -> None:
    """Insert attempts."""
    for part in portions([len(attempt.error) + len(attempt.traceback) for attempt in attempts], most=CHUNK):
        rows(Attempt).bulk_create([Attempt(**attempt._asdict()) for attempt in attempts[part]])


def recorded(work_ids: Sequence[str]) -> set[tuple[str, str, str, datetime | None]]:
    """Return work, worker, outcome and start of the attempts that are recorded of these works."""
    found: set[tuple[str, str, str, datetime | None]] = set()
    for some in chunked(work_ids):
        attempts = rows(Attempt).filter(work_id__in=some)
        found.update(attempts.values_list("work_id", "worker", "outcome", "started_at"))
    return found


def last_outcome(work_id: str, attempt: int) -> str | None:
    """Return how the last attempt that did not succeed ended, for a work that stands at ``attempt``.

    A failure is kept under that number, a deferral, which gave its attempt back, under the next one.
    """
    recent = rows(Attempt).filter(work_id=work_id, number__in=(attempt, attempt + 1))
    return recent.order_by("-ended_at", "-id").values_list("outcome", flat=True).first()


# --- progress ---
# How far running works are.


def write_progress(progress: Mapping[str, tuple[int, str]]) -> None:
    """Write the progress of running works: id → (delivery, encoded progress)."""
    if not progress:
        return
    with atomic():
        free = rows(Work).select_for_update(skip_locked=True).filter(id__in=sorted(progress)).order_by("id")
        held = {
            (id, delivery)
            for id, delivery in free.filter(status=Status.RUNNING).values_list("id", "delivery")
        }
        for id, (delivery, encoded) in progress.items():
            if (id, delivery) in held:
                rows(Work).filter(id=id, delivery=delivery).update(progress=encoded)


# --- processes ---
# Worker processes and their heartbeats.


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
