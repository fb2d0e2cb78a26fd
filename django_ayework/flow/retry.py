"""Retrying by hand: a dead or cancelled work starts over, and what died because of it waits again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from django_ayework.define.ids import new_id
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AyeworkError, NotRetryable
from django_ayework.flow.births import Birth
from django_ayework.flow.cascade import Move, deadline_anew, decision_of, reopen, waiting_again
from django_ayework.flow.closing import close
from django_ayework.flow.handles import Handle, remember_uncommitted
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.locking import lock_work, require_group
from django_ayework.flow.options import decode_options, encode_options
from django_ayework.flow.payloads import codec_of, encode_input
from django_ayework.flow.requests import request_of
from django_ayework.flow.states import gate_of
from django_ayework.flow.units import require_free_unit
from django_ayework.rules.conditions import Decision
from django_ayework.rules.states import LIVE, RETRYABLE, Reason, Status
from django_ayework.rules.transitions import Transition
from django_ayework.rules.unknown import error_before
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import chunked, in_own_transaction
from django_ayework.store.deletion import steps_in_group
from django_ayework.store.rows import WorkRow, statuses_of
from django_ayework.store.waiters import WaiterRow, missed_by, read_waiters, watched_by
from django_ayework.store.works import replace_input


def retry(id: str, input: Any = None, again: bool = False) -> Handle[Any, Any]:
    """Make a dead or cancelled work pending again with a full budget of attempts; return its handle.

    Its group re-opens and waiters that died because of it wait again. ``expires`` counts anew, an explicit
    ``deadline`` stays. ``input`` replaces the stored one. A waiter is decided anew from what it watches.
    With ``again`` a success may be run again: as a new work, whose parent it is.

    Raises WorkNotFound, and NotRetryable for a work in any other status, or for a waiter that still cannot be
    met, naming the members to retry first.
    """
    return in_own_transaction(partial(retry_here, id, input, again))


def retry_here(id: str, input: Any, again: bool) -> Handle[Any, Any]:
    """Retry within the transaction at hand."""
    row, waiter = lock_work(id, "retried")
    require_retryable(row, again)
    ledger = Ledger(clock.now())
    require_free_unit(ledger, row)
    if row.status == Status.SUCCESS:
        return run_again(ledger, row, input)
    if input is not None:
        replace_input(row.id, new_input(row, input))
    if row.type == GATE_TYPE or (waiter is not None and decision_of(waiter) is not Decision.FIRE):
        retry_waiter(ledger, row, waiter)
    else:
        retry_work(ledger, row)
    close(ledger)
    return Handle(row.id, row.group)


def require_retryable(row: WorkRow, again: bool) -> None:
    """Raise NotRetryable unless a work is dead or cancelled, or ``again`` allows for its success."""
    if row.status in RETRYABLE or (again and row.status == Status.SUCCESS and row.type != GATE_TYPE):
        return
    if again and row.status == Status.SUCCESS:
        raise NotRetryable(
            f"expected a work with a handler to run again, but {row.id} is a gate that has opened; "
            "run the works again that it has queued.",
            id=row.id,
        )
    expected, hint = "dead or cancelled", "only ended works without success can be retried."
    if again:
        expected, hint = "dead, cancelled or success", "wait for its end, or cancel it first."
    elif row.status == Status.SUCCESS and row.type != GATE_TYPE:
        hint += f" To run it once more, as a new work, call retry({row.id!r}, again=True)."
    text = f"expected the work {row.id} to be {expected}, but it is {row.status}; {hint}"
    raise NotRetryable(text, id=row.id)


def run_again(ledger: Ledger, row: WorkRow, input: Any) -> Handle[Any, Any]:
    """Queue a new work like one that has succeeded, in a group and a chain of its own.

    The old work is its parent. What gate had released that is kept in the options, for ``ctx.dependents``.
    """
    options = decode_options(row.options)
    gate = gate_of(row, options)
    new = row._replace(
        id=new_id(),
        status=Status.PENDING,
        group_id=None,
        parent_id=row.id,
        chain_id=None,
        chain_index=0,
        input=row.input if input is None else new_input(row, input),
        options=encode_options(replace(options, released_by=gate)),
        error="",
        progress=None,
        attempt=0,
        delivery=0,
        deadline=deadline_anew(row, ledger.now),
        queued_at=ledger.now,
        run_at=ledger.now,
        dedup_key=None,
        dedup_type=None,
        result=None,
        started_at=None,
        ended_at=None,
        completed_by=None,
    )
    blockers = tuple(id for id, _ in watched_by(row.id)) if options.blocked else ()
    ledger.bear([Birth(new, blockers=blockers)])
    close(ledger)
    remember_uncommitted([new.id])
    return Handle(new.id, new.id)


@dataclass(slots=True)
class Retried:
    """What became of several works: those retried, waiters that wait again because of that, and refusals."""

    ids: list[str] = field(default_factory=list)
    revived: list[str] = field(default_factory=list)
    refusals: dict[str, AyeworkError] = field(default_factory=dict)


def retry_each(ids: Sequence[str], again: bool = False) -> Retried:
    """Retry works one by one, each in a transaction of its own: a refusal does not undo the others.

    Waiters come last, the oldest first, as retrying what they wait for revives them.
    """
    report = Retried()
    waiters = {id for some in chunked(ids) for id in read_waiters(some)}
    ended = {id for id, status in statuses_of(waiters).items() if status in RETRYABLE}
    for id in (*(id for id in ids if id not in waiters), *sorted(waiters)):
        if id in ended and statuses_of([id]).get(id) in LIVE:
            report.revived.append(id)
            continue
        try:
            retry(id, again=again)
        except AyeworkError as refusal:
            report.refusals[id] = refusal
        else:
            report.ids.append(id)
    return report


def retryable_in(group_id: str) -> list[str]:
    """Return the ids of the dead and cancelled works of a group. Raises WorkNotFound."""
    ids = [step.id for step in steps_in_group(group_id, RETRYABLE)]
    if not ids:
        require_group(group_id, "retried")
    return ids


def retry_group(group_id: str) -> list[str]:
    """Retry the dead and cancelled works of a group; return the ids of those that start over or wait again.

    Raises WorkNotFound, and NotRetryable once the others were retried, for those that could not be.
    """
    report = retry_each(retryable_in(group_id))
    done = [*report.ids, *report.revived]
    if report.refusals:
        first = next(iter(report.refusals.values()))
        raise NotRetryable(
            f"expected to retry all dead and cancelled works of the group {group_id}; {len(done)} were, and "
            f"{len(report.refusals)} could not be, the first because: {first}",
            id=group_id,
            members=list(report.refusals),
        )
    return done


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
    error = "" if row.reason == Reason.UNKNOWN_TYPE else error_before(row.error)
    return row.becoming(Status.PENDING, attempt=0, run_at=now, deadline=deadline_anew(row, now), error=error)


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
