"""Cancelling: a work that has not ended ends at once, without success."""

from __future__ import annotations

from functools import partial
from typing import Any

from django_ayework.define.events import Kind
from django_ayework.define.signal import AbortReason
from django_ayework.flow.cascade import unreleased_ids
from django_ayework.flow.closing import close
from django_ayework.flow.handles import Handle
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.locking import lock_live_work
from django_ayework.flow.twins import twinned
from django_ayework.rules.states import Status
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction


@twinned
def cancel(id: str) -> Handle[Any, Any]:
    """End a work as cancelled; return its handle. Its waiters are decided as by any end without success.

    A handler that runs it is told by its signal; what it returns is refused. A gate's works are not queued,
    and count as cancelled for whoever watches them.

    Raises WorkNotFound, and AlreadyCompleted for a work that has ended.
    """
    return in_own_transaction(partial(cancel_here, id))


def cancel_here(id: str) -> Handle[Any, Any]:
    """Cancel within the transaction at hand: the row is locked, so its status cannot change meanwhile."""
    row = lock_live_work(id, "cancelled")
    ledger = Ledger(clock.now())
    transition = row.becoming(Status.CANCELLED, error=row.error, ended_at=ledger.now)
    transitions.apply([transition])
    after = row.after(transition)
    ledger.ended(after, Status.CANCELLED)
    ledger.outcomes.update(dict.fromkeys(unreleased_ids(row), Status.CANCELLED))
    ledger.effects.happened(Kind.CANCELLED, after)
    ledger.effects.revoked[row.id] = AbortReason.CANCELLED
    close(ledger)
    return Handle(row.id, row.group)
