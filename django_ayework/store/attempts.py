"""Attempts that did not succeed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django_ayework.models import Attempt
from django_ayework.store.database import CHUNK, chunked, rows
from django_ayework.store.portions import portions


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
