"""Recorded attempts, and the progress of running works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django_ayework.models import Attempt, Work
from django_ayework.rules.states import Outcome, Status
from django_ayework.store.database import CHUNK, atomic, matching, rows
from django_ayework.store.many_rows import portions


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
