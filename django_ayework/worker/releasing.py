"""The release of works that a worker holds: another attempt is made elsewhere or later, and none is spent."""

from __future__ import annotations

from collections.abc import Sequence

from django_ayework.flow.notify import publish_released
from django_ayework.store import transitions
from django_ayework.store.leases import holders_of
from django_ayework.worker.in_flight import Delivery, deliveries_by_id, loss_of


def release(deliveries: Sequence[Delivery], worker_id: str) -> list[Delivery]:
    """Release works; return those that this worker still holds, as other transactions have locked their rows.

    Works that are not ours any more are left alone.
    """
    released = transitions.release(deliveries_by_id(deliveries), worker_id, skip_locked=True)
    publish_released(delivery.row for delivery in deliveries if delivery.row.id in released)
    others = [delivery for delivery in deliveries if delivery.row.id not in released]
    holders = holders_of(delivery.row.id for delivery in others) if others else {}
    return [delivery for delivery in others if loss_of(delivery, holders.get(delivery.row.id)) is None]
