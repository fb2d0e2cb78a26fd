"""Settlements lock works in id order, as callers do who lock several: neither makes a victim of the other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.db import connection, connections, transaction

from django_ayework import cancel, enqueue_many
from django_ayework.flow.settle import Report
from django_ayework.models import Work
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow
from django_ayework.store.sessions import engine_session
from tests.processes import eventually
from tests.races.rivals import claim_all, succeed
from tests.races.works import step

pytestmark = pytest.mark.vendors("postgresql")


def somebody_waits() -> bool:
    """Tell whether a session waits for a lock of this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return cursor.fetchone() is not None


class Settling(threading.Thread):
    """Settles works in a session of the engine's own, in the order given."""

    def __init__(self, rows: Sequence[WorkRow]) -> None:
        super().__init__()
        self.rows = rows
        self.report: Report | None = None

    def run(self) -> None:
        with engine_session():
            try:
                self.report = succeed(*self.rows)
            finally:
                connections.close_all()


@pytest.mark.parametrize("count", [2, 300])
def test_a_settlement_that_waits_for_a_work_holds_none_behind_it(count: int) -> None:
    enqueue_many([step(number=number) for number in range(count)])
    rows = sorted(claim_all().values(), reverse=True)
    first, now = rows[-1], clock.now()
    for number, row in enumerate(rows):  # an index of running works has them the other way round
        Work.objects.filter(id=row.id).update(leased_until=now + timedelta(hours=1, seconds=number))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE django_ayework_work")
    settling = Settling(rows)
    with transaction.atomic():
        cancel(first.id)
        settling.start()
        eventually(somebody_waits)
        behind = Work.objects.select_for_update(nowait=True).exclude(id=first.id)
        assert len(behind.filter(id__in=[row.id for row in rows])) == count - 1
    settling.join(30)
    assert settling.report is not None
    assert settling.report.refused == [first.id]
    assert Work.objects.filter(status="success").count() == count - 1
