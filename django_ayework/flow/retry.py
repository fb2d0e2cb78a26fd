"""Retrying by hand: a dead or cancelled work starts over, and what died because of it waits again."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import NotRetryable
from django_ayework.flow.cascade import Move, decision_of, reopen, waiting_again
from django_ayework.flow.closing import close
from django_ayework.flow.handles import Handle
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.locking import lock_work
from django_ayework.flow.options import decode_options
from django_ayework.flow.payloads import codec_of, encode_input
from django_ayework.flow.requests import request_of
from django_ayework.flow.units import require_free_unit
from django_ayework.rules.conditions import Decision
from django_ayework.rules.deadlines import resolve_deadline
from django_ayework.rules.states import RETRYABLE, Reason, Status
from django_ayework.rules.transitions import Transition
from django_ayework.rules.unknown import error_before
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import WorkRow
from django_ayework.store.waiters import WaiterRow, missed_by
from django_ayework.store.works import replace_input


def retry(id: str, input: Any = None) -> Handle[Any, Any]:
    """Make a dead or cancelled work pending again with a full budget of attempts; return its handle.

    Its group re-opens and waiters that died because of it wait again. ``expires`` counts anew, an explicit
    ``deadline`` stays. ``input`` replaces the stored one. A waiter is decided anew from what it watches.

    Raises WorkNotFound, and NotRetryable for a work in any other status, or for a waiter that still cannot be
    met, naming the members to retry first.
    """
    return in_own_transaction(partial(retry_here, id, input))


def retry_here(id: str, input: Any) -> Handle[Any, Any]:
    """Retry within the transaction at hand."""
    row, waiter = lock_work(id, "retried")
    if row.status not in RETRYABLE:
        raise NotRetryable(
            f"expected the work {id} to be dead or cancelled, but it is {row.status}; "
            "only ended works without success can be retried.",
            id=id,
        )
    ledger = Ledger(clock.now())
    require_free_unit(ledger, row)
    if input is not None:
        replace_input(row.id, new_input(row, input))
    if row.type == GATE_TYPE or (waiter is not None and decision_of(waiter) is not Decision.FIRE):
        retry_waiter(ledger, row, waiter)
    else:
        retry_work(ledger, row)
    close(ledger)
    return Handle(row.id, row.group)


def retry_work(ledger: Ledger, row: WorkRow) -> None:
    """Start a work over."""
    transition = starting_over(row, ledger.now)
    transitions.apply([transition])
    after = row.after(transition)
    ledger.reopened(after, was_dead=row.status == Status.DEAD)
    ledger.effects.queued(after)


def new_input(row: WorkRow, input: Any) -> str:
    """Encode the input that replaces the stored one, checked against the handler."""
    if row.type == GATE_TYPE:
        raise TypeError(
            f"expected no input for the gate {row.id}: what it releases was fixed when it was queued."
        )
    given = request_of(row.type, input).input
    return encode_input(row.type, given, codec_of(registry.find(row.type)))


def starting_over(row: WorkRow, now: datetime) -> Transition:
    """Return the way back to pending, the error of the last life kept for the handler to see."""
    options = decode_options(row.options)
    deadline = row.deadline if options.explicit_deadline else resolve_deadline(now, options.expires, None)
    error = "" if row.reason == Reason.UNKNOWN_TYPE else error_before(row.error)
    return row.becoming(Status.PENDING, attempt=0, run_at=now, deadline=deadline, error=error)


def retry_waiter(ledger: Ledger, row: WorkRow, waiter: WaiterRow | None) -> None:
    """Let a waiter wait again, or open, as its edges say now."""
    if waiter is None:
        raise NotRetryable(f"the gate {row.id} has lost its edges; queue a new one.", id=row.id)
    if decision_of(waiter) is Decision.NEVER:
        members = [id for id, _ in missed_by(row.id, limit=1000)]
        raise NotRetryable(
            f"the {'gate' if row.type == GATE_TYPE else 'work'} {row.id} still cannot "
            f"{'open' if row.type == GATE_TYPE else 'start'}; "
            f"retry first what it waits for: {', '.join(members[:5])}.",
            id=row.id,
            members=members,
        )
    transition = waiting_again(row, ledger.now)
    transitions.apply([transition])
    reopen(ledger, Move(row, transition, reopen))
