"""Running works."""

from __future__ import annotations

from datetime import datetime

from django_ayework.flow.explain.workers import find_worker, live_workers
from django_ayework.flow.options import decode_options
from django_ayework.flow.overview import GONE_AFTER
from django_ayework.rules.explaining.explanation import Reason
from django_ayework.rules.explaining.fleet import absence
from django_ayework.rules.explaining.running import Hold, running
from django_ayework.store.rows import WorkRow


def why_running(row: WorkRow, now: datetime) -> list[Reason]:
    """Return who runs a work; when it must be taken back, also that no worker is there to do so."""
    hold = Hold(
        worker=row.worker,
        seen=find_worker(row.worker),
        attempt=row.attempt,
        attempts=decode_options(row.options).retry.attempts,
        started_at=row.started_at,
        leased_until=row.leased_until,
    )
    reasons = running(hold, now, GONE_AFTER)
    has_lapsed = row.leased_until is not None and row.leased_until < now
    return [*reasons, *absence(row.queue, live_workers(now))] if has_lapsed else reasons
