"""``tick()``: fire the schedules that are due, here and now."""

from __future__ import annotations

from django_ayework.flow.schedules.sync import sync
from django_ayework.flow.schedules.ticking import fire_due
from django_ayework.rules.schedules.catching_up import BOUND


def tick() -> int:
    """Sync the declared schedules, then fire those that are due; return how many firings queued something.

    A schedule that is seen for the first time begins now, so tick once before travelling in time. What was
    fired is queued; ``drain()`` runs it.

    Example::

        tick()
        time_travel(timedelta(days=1))
        assert tick() == 1
    """
    sync()
    return fire_due(most=2 * BOUND).fired
