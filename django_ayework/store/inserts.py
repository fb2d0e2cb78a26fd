"""Inserting works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError

from django_ayework.models import Work
from django_ayework.store.database import atomic, chunked, connection
from django_ayework.store.rows import COLUMNS, PLACE, WorkRow, statuses_of

#: Empty at birth, so left to the column's NULL.
UNSET_AT_BIRTH = frozenset(
    {"result", "progress", "worker", "leased_until", "started_at", "ended_at", "completed_by"}
)
INSERTED = tuple(name for name in COLUMNS if name not in UNSET_AT_BIRTH)
MOMENTS = ("deadline", "queued_at", "run_at")


class IdsTaken(Exception):
    """Some of the ids exist already; rolls the savepoint back."""


def insert_works(works: Sequence[WorkRow]) -> set[str]:
    """Insert works of distinct ids in the caller's transaction; return the ids that existed already.

    A single one is a single statement. An existing id never breaks the caller's transaction.
    """
    if len(works) == 1:
        return set() if insert_chunk(works) else {works[0].id}
    try:
        with atomic():
            for some in chunked(works):
                if insert_chunk(some) < len(some):
                    raise IdsTaken
    except IdsTaken:
        taken = set(statuses_of(work.id for work in works))
        fresh = [work for work in works if work.id not in taken]
        return taken | insert_works(fresh) if fresh else taken
    return set()


def insert_chunk(works: Sequence[WorkRow]) -> int:
    """Run one INSERT; return how many rows it made."""
    database = connection()
    quote = database.ops.quote_name
    row = f"({', '.join(['%s'] * len(INSERTED))})"
    sql = (
        f"INSERT INTO {quote(Work._meta.db_table)} ({', '.join(map(quote, INSERTED))}) "
        f"VALUES {', '.join([row] * len(works))}"
    )
    params = [value for work in works for value in values_of(work, database.ops.adapt_datetimefield_value)]
    if database.vendor == "mysql":
        return insert_or_nothing(sql, params)
    with database.cursor() as cursor:
        cursor.execute(f"{sql} ON CONFLICT (id) DO NOTHING", params)
        return int(cursor.rowcount)


def values_of(work: WorkRow, adapt: Any) -> list[Any]:
    """Return the inserted columns' values, moments as the database driver takes them."""
    return [
        adapt(work[PLACE[name]]) if name in MOMENTS and work[PLACE[name]] is not None else work[PLACE[name]]
        for name in INSERTED
    ]


def insert_or_nothing(sql: str, params: Sequence[Any]) -> int:
    """Insert all rows, or none when an id is taken: MySQL undoes the statement, not the transaction."""
    try:
        with connection().cursor() as cursor:
            cursor.execute(sql, params)
            return int(cursor.rowcount)
    except IntegrityError:
        return 0
