"""Triggering: scheduled works run now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from django_ayework.define.handles import WorkState
from django_ayework.errors import NotTriggerable, WorkNotFound
from django_ayework.flow.closing import close
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.states import state_of
from django_ayework.rules.states import Status
from django_ayework.rules.transitions import Transition
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import WorkRow, lock_rows


def trigger(ids: Sequence[str]) -> list[WorkState]:
    """Make scheduled works due now, all or none; return their states in the order given, each once.

    Raises WorkNotFound, and NotTriggerable for a work that is not scheduled; then none is triggered.
    """
    return in_own_transaction(partial(trigger_here, list(dict.fromkeys(ids))))


def trigger_here(ids: Sequence[str]) -> list[WorkState]:
    """Trigger within the transaction at hand; the rows are locked, so what was checked holds."""
    rows = lock_rows(ids)
    require_scheduled(ids, rows)
    ledger = Ledger(clock.now())
    moves = {id: due_now(rows[id], ledger.now) for id in ids}
    transitions.apply(list(moves.values()))
    triggered = [rows[id].after(move) for id, move in moves.items()]
    for row in triggered:
        ledger.effects.awaits_worker(row)
    close(ledger)
    return [state_of(row) for row in triggered]


def require_scheduled(ids: Sequence[str], rows: dict[str, WorkRow]) -> None:
    """Raise unless every work exists and is scheduled; a missing one is told of first."""
    for id in ids:
        if id not in rows:
            raise WorkNotFound(f"no work has the id {id!r}, so none was triggered.", id=id)
    for id in ids:
        if rows[id].status != Status.SCHEDULED:
            raise NotTriggerable(
                f"expected the work {id} to be scheduled, but it is {rows[id].status}; none was triggered.",
                id=id,
            )


def due_now(row: WorkRow, now: datetime) -> Transition:
    """Return a scheduled work's way to pending."""
    return row.becoming(Status.PENDING, run_at=now, error=row.error)
