"""Claiming: the next due works of a queue become running, leased to one worker."""

from __future__ import annotations

from datetime import datetime

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, fetch, is_postgresql, rows
from django_ayework.store.rows import COLUMNS, WorkRow, rows_of

#: The subselect picks and locks in the index's order; ARRAY() makes the planner run it exactly once.
CLAIM = f"""
UPDATE django_ayework_work
SET status = 'running', attempt = attempt + 1, delivery = delivery + 1,
    worker = %s, leased_until = %s, started_at = %s
WHERE id = ANY(ARRAY(
    SELECT id
    FROM django_ayework_work
    WHERE status = 'pending' AND queue = %s
    ORDER BY priority DESC, run_at, id
    LIMIT %s
    FOR UPDATE SKIP LOCKED
))
RETURNING {", ".join(COLUMNS)}
"""


def claim(queue: str, limit: int, worker: str, now: datetime, leased_until: datetime) -> list[WorkRow]:
    """Lease up to ``limit`` due works of a queue, by priority, then age; return them in that order.

    Nobody waits for a rival: rows locked by another claim are skipped.
    """
    claimed = claim_set_based if is_postgresql() else claim_under_locks
    works = claimed(queue, limit, worker, now, leased_until)
    return sorted(works, key=lambda row: (-row.priority, row.run_at, row.id))


def claim_set_based(
    queue: str, limit: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """One statement, its own transaction."""
    return [WorkRow._make(row) for row in fetch(CLAIM, (worker, leased_until, now, queue, limit))]


def claim_under_locks(
    queue: str, limit: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """Lock the candidates, then write them; on SQLite the transaction itself is the lock."""
    with atomic():
        due = rows(Work).filter(status=Status.PENDING, queue=queue).order_by("-priority", "run_at", "id")
        works = rows_of(due.select_for_update(skip_locked=True)[:limit])
        for attempt, delivery in {(row.attempt, row.delivery) for row in works}:
            alike = [row.id for row in works if (row.attempt, row.delivery) == (attempt, delivery)]
            rows(Work).filter(id__in=alike).update(
                status=Status.RUNNING,
                attempt=attempt + 1,
                delivery=delivery + 1,
                worker=worker,
                leased_until=leased_until,
                started_at=now,
            )
    return [
        row._replace(
            status=Status.RUNNING,
            attempt=row.attempt + 1,
            delivery=row.delivery + 1,
            worker=worker,
            leased_until=leased_until,
            started_at=now,
        )
        for row in works
    ]
