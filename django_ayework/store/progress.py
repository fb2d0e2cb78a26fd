"""How far running works are."""

from __future__ import annotations

from collections.abc import Mapping

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, rows


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
