"""Recorded attempts, progress, and worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.rules.states import Outcome, Status
from django_ayework.store.bulk import portions
from django_ayework.store.database import CHUNK, atomic, matching, rows

# Attempts.


def insert_attempts(attempts: Sequence[Attempt]) -> None:
    """Insert attempts."""
    for part in portions([len(attempt.error) + len(attempt.traceback) for attempt in attempts], most=CHUNK):
        rows(Attempt).bulk_create(attempts[part])


def attempts_of(work_id: str) -> list[Attempt]:
    """Read the recorded attempts of a work in the order in which they ended."""
    return list(rows(Attempt).filter(work_id=work_id).order_by("ended_at", "id"))


def recorded(work_ids: Sequence[str]) -> set[tuple[str, str, str, datetime | None]]:
    """Return work, worker, outcome and start of the attempts that are recorded of these works."""
    columns = ("work_id", "worker", "outcome", "started_at")
    return {(*row,) for row in matching(rows(Attempt).all(), "work_id", work_ids, *columns)}


def last_outcome(work_id: str, attempt: int) -> str | None:
    """Return how the last attempt that did not succeed ended, for a work that stands at ``attempt``.

    A revoked attempt is left out: the work had ended, and waits because it was retried. A failure is kept
    under that number, a deferral, which gave its attempt back, under the next one.
    """
    recent = rows(Attempt).filter(work_id=work_id, number__in=(attempt, attempt + 1))
    recent = recent.exclude(outcome=Outcome.REVOKED)
    return recent.order_by("-ended_at", "-id").values_list("outcome", flat=True).first()


# How far running works are.


def write_progress(progress: Mapping[str, tuple[int, str]]) -> None:
    """Write the progress of running works: id → (delivery, encoded progress)."""
    if not progress:
        return
    with atomic():
        free = rows(Work).select_for_update(skip_locked=True).filter(id__in=sorted(progress)).order_by("id")
        held = set(free.filter(status=Status.RUNNING).values_list("id", "delivery"))
        for id, (delivery, encoded) in progress.items():
            if (id, delivery) in held:
                rows(Work).filter(id=id).update(progress=encoded)


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
    rows(WorkerProcess).filter(id=id).update(seen_at=now, stopped_at=now, running=0, command="")


def command_process(id: str, command: str) -> bool:
    """Write what a worker is to do; return False for one that is not there, or has stopped."""
    return bool(rows(WorkerProcess).filter(id=id, stopped_at=None).update(command=command))


def note_obeyed(id: str, command: str, quiet: bool) -> None:
    """Note that a worker has obeyed a command; one that was given meanwhile stays."""
    rows(WorkerProcess).filter(id=id, command=command).update(command="", quiet=quiet)


def living(since: datetime) -> list[tuple[str, str]]:
    """Return the ids of the workers that were seen since and claim works, with their queues."""
    claiming = rows(WorkerProcess).filter(stopped_at=None, seen_at__gte=since, quiet=False)
    return list(claiming.values_list("id", "queues"))


def find_process(id: str) -> WorkerProcess | None:
    """Read one worker, alive or not."""
    return rows(WorkerProcess).filter(id=id).first()


def delete_unseen(before: datetime) -> None:
    """Delete workers not seen since; their works' leases lapsed long ago."""
    rows(WorkerProcess).filter(seen_at__lt=before).delete()
