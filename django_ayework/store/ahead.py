"""How many works of a queue go before one of them."""

from __future__ import annotations

from collections.abc import Iterable

from django_ayework.store.lanes import heads_of
from django_ayework.store.rows import WorkRow


def works_ahead(row: WorkRow, types: Iterable[str], most: int) -> int:
    """Count the pending works that a claim takes before this one; ``most + 1`` stands for more than ``most``.

    ``types`` are those that are claimed together with its own. They are the beginnings of the queue's lanes
    in the order of claiming, so at most that many entries of each are read, however long the queue is. A work
    that was taken meanwhile has none ahead.
    """
    by_unit = bool(row.sort_key)
    heads = heads_of(row.queue, dict.fromkeys(types, most + 1))
    ids = [head.id for head in heads if bool(head.sort_key) is by_unit][: most + 1]
    if row.id in ids:
        return ids.index(row.id)
    return most + 1 if len(ids) > most else 0
