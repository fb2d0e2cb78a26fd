"""How many works of a queue go before one of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

from django_ayework.models import Work
from django_ayework.store.database import rows
from django_ayework.store.rows import WorkRow
from django_ayework.store.stand_ins import pending

Head: TypeAlias = tuple[int, str, datetime, str]


def works_ahead(row: WorkRow, types: Iterable[str], most: int) -> int:
    """Count the pending works that a claim takes before this one; ``most + 1`` stands for more than ``most``.

    ``types`` are those that are claimed together with its own. They are the beginnings of the queue's lanes
    in the order of claiming, so at most that many entries of each are read, however long the queue is. A work
    that was taken meanwhile has none ahead.
    """
    heads = [head for type in types for head in heads_of(row.queue, type, most + 1)]
    by_unit = bool(row.sort_key)
    ids = [id for *_, key, _run_at, id in sorted(heads) if bool(key) is by_unit][: most + 1]
    if row.id in ids:
        return ids.index(row.id)
    return most + 1 if len(ids) > most else 0


def heads_of(queue: str, type: str, number: int) -> Iterable[Head]:
    """Return the first works of a lane, as they are ordered."""
    first = pending(rows(Work), queue, type)[:number]
    columns = first.values_list("priority", "sort_key", "run_at", "id")
    return [(-priority, key, run_at, id) for priority, key, run_at, id in columns]
