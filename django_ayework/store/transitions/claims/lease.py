"""What a claim writes, and the works as it leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.bulk import update_by_column, write
from django_ayework.store.database import connection
from django_ayework.store.rows import EMPTY, MOMENTS_READ, WorkRow

WORK = Work._meta.db_table
NOTHING = (None,) * len(EMPTY)

LEASE = f"""
UPDATE {WORK}
SET status = 'running', attempt = attempt + 1, delivery = delivery + 1,
    worker = %s, leased_until = %s, started_at = %s
"""


class Lease(NamedTuple):
    """Who holds works, until when, and since when; in the order of LEASE and of a row's last columns."""

    worker: str
    leased_until: datetime
    started_at: datetime


def rows_from(found: Iterable[tuple[Any, ...]], lease: Lease) -> list[WorkRow]:
    """Return what a statement returned as rows, with the lease that it has written."""
    written = (*NOTHING, str(Status.RUNNING), *lease)
    return [WorkRow._make(values + written) for values in found]


def rows_from_texts(found: Iterable[tuple[Any, ...]], lease: Lease) -> Iterator[WorkRow]:
    """See rows_from(); moments are made of their texts, of which works queued together share many."""
    zone: tzinfo | None = connection().timezone
    made: dict[str | None, datetime | None] = {None: None}
    written = (*NOTHING, str(Status.RUNNING), *lease)
    for values in found:
        columns = [*values, *written]
        for place in MOMENTS_READ:
            text = columns[place]
            if text not in made:
                made[text] = datetime.fromisoformat(text).replace(tzinfo=zone)
            columns[place] = made[text]
        yield WorkRow._make(columns)


def leased(works: Iterable[WorkRow], lease: Lease) -> list[WorkRow]:
    """Write the lease of works that this transaction has locked; return them as they are then."""
    held = [
        row._replace(
            status=Status.RUNNING, attempt=row.attempt + 1, delivery=row.delivery + 1, **lease._asdict()
        )
        for row in works
    ]
    write_lease(held, lease)
    return held


def write_lease(works: list[WorkRow], lease: Lease) -> None:
    """Write what the claim of these works changes, which this transaction has locked."""
    if works:
        counts = {"attempt": [row.attempt for row in works], "delivery": [row.delivery for row in works]}
        shared = {"status": str(Status.RUNNING), **lease._asdict()}
        write(Work, update_by_column([row.id for row in works], counts, shared))
