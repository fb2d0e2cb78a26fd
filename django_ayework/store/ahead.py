"""How many works of a queue go before one of them."""

from __future__ import annotations

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import rows


def works_ahead(id: str, queue: str, most: int) -> int:
    """Count the pending works that a claim takes before this one; ``most + 1`` stands for more than ``most``.

    They are the beginning of the queue in the order of claiming, so at most that many entries of the claim
    index are read, however long the queue is. A work that was taken meanwhile has none ahead.
    """
    pending = rows(Work).filter(status=Status.PENDING, queue=queue).order_by("-priority", "run_at", "id")
    first = list(pending.values_list("id", flat=True)[: most + 1])
    if id in first:
        return first.index(id)
    return most + 1 if len(first) > most else 0
