"""Retrying by hand: a dead or cancelled work starts over, and a success runs again as a new work."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any

from django_ayework.define.requests import GATE_TYPE, new_id
from django_ayework.documentation import type_error
from django_ayework.errors import NotRetryable
from django_ayework.flow.enqueue import request_of
from django_ayework.flow.gates import (
    Move,
    deadline_anew,
    decision_of,
    flush,
    make_moves,
    reopen,
    waiting_again,
)
from django_ayework.flow.handles import Handle
from django_ayework.flow.identity import require_free_unit
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.payloads import (
    decode_options,
    encode_options,
    encoded_input,
    headers_of,
    with_headers,
)
from django_ayework.flow.states import gate_of
from django_ayework.flow.termination import lock_work
from django_ayework.flow.uncommitted import remember_uncommitted
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.models import Work
from django_ayework.rules.conditions import Decision
from django_ayework.rules.formatting import error_before
from django_ayework.rules.states import RETRYABLE, Reason, Status
from django_ayework.store import transitions
from django_ayework.store.database import clock, own_transaction
from django_ayework.store.dependencies import WaiterRow, missed_by, watched_by
from django_ayework.store.rows import WorkRow, chain_ends, statuses_of


@own_transaction
def retry(id: str, input: Any = None, again: bool = False, by: str = "") -> Handle[Any, Any]:
    """Make a dead or cancelled work pending again with a full budget of attempts; return its handle.

    A cancelled work that had waited for its start is scheduled again, if that is to come. Its group re-opens,
    and waiters that died because of it wait again. ``expires`` counts anew, an explicit ``deadline`` stays.
    ``input`` replaces the stored input, which is kept as a revision that names ``by``, a user. A waiter is
    decided anew from the works for which it waits. With ``again`` a success is run again as a new work; the
    old work is its parent.

    Raises WorkNotFound, and NotRetryable for a work in any other status, or for a waiter that still cannot be
    met, naming the members to retry first.
    """
    row, waiter = lock_work(id, "retried")
    require_retryable(row, again)
    unit_of_work = UnitOfWork(clock.read())
    require_free_unit(row, unit_of_work.now)
    if row.status == Status.SUCCESS:
        return run_again(unit_of_work, row, input)
    if input is not None:
        transitions.replace_input(row, new_input(row, input), unit_of_work.now, by)
    if row.type == GATE_TYPE or (waiter is not None and decision_of(waiter) is not Decision.MET):
        wait_again(unit_of_work, row, waiter)
    else:
        start_over(unit_of_work, row)
    flush(unit_of_work)
    return Handle(row.id, row.group)


def require_retryable(row: WorkRow, again: bool) -> None:
    """Raise NotRetryable unless a work is dead or cancelled, or is a success and ``again`` is given."""
    is_success, is_gate = row.status == Status.SUCCESS, row.type == GATE_TYPE
    if row.status in RETRYABLE or (again and is_success and not is_gate):
        return
    if again and is_success:
        raise NotRetryable(
            f"expected a work with a handler to run again, but {row.id} is a gate that has opened; "
            "run the works again that it has queued.",
            id=row.id,
            code="gate-has-opened",
        )
    expected, hint = "dead or cancelled", "only ended works without success can be retried."
    if again:
        expected, hint = "dead, cancelled or success", "wait for its end, or cancel it first."
    elif is_success and not is_gate:
        hint += " To run it once more, as a new work, give again=True, or --again in the command."
    text = f"expected the work {row.id} to be {expected}, but it is {row.status}; {hint}"
    raise NotRetryable(text, id=row.id)


def start_over(unit_of_work: UnitOfWork, row: WorkRow) -> None:
    """Make a work pending again; its last error is kept for the handler to see.

    A cancelled work that had not begun waits for its start again, if that is to come.
    """
    waits = row.status == Status.CANCELLED and row.attempt == 0 and row.run_at > unit_of_work.now
    move = row.becoming(
        Status.SCHEDULED if waits else Status.PENDING,
        attempt=0,
        run_at=row.run_at if waits else unit_of_work.now,
        deadline=deadline_anew(row, unit_of_work.now),
        error="" if row.reason == Reason.UNKNOWN_TYPE else error_before(row.error),
    )
    transitions.apply([move])
    after = row.after(move)
    unit_of_work.reopened(after, was_dead=row.status == Status.DEAD)
    unit_of_work.effects.queued([after])


def wait_again(unit_of_work: UnitOfWork, row: WorkRow, waiter: WaiterRow | None) -> None:
    """Let a waiter wait again; its edges may open it at once. Raises NotRetryable if it cannot be met."""
    if waiter is None:
        raise NotRetryable(
            f"the gate {row.id} has lost its edges; queue a new one.", id=row.id, code="gate-lost-its-edges"
        )
    if decision_of(waiter) is Decision.NEVER:
        missed = [id for id, _ in missed_by(row.id, limit=1000)]
        existing = {*statuses_of(missed), *chain_ends(missed)}
        members = [id for id in missed if id in existing]
        what, verb = ("gate", "open") if row.type == GATE_TYPE else ("work", "start")
        advice = f"retry first the works that it waits for: {', '.join(members[:5])}."
        if not members:
            advice = f"no work has the ids for which it waits: {', '.join(missed[:5])}; queue a new {what}."
        raise NotRetryable(
            f"the {what} {row.id} still cannot {verb}; {advice}",
            id=row.id,
            members=members,
            code="retry-the-members-first",
        )
    make_moves(unit_of_work, [Move(row, waiting_again(row, unit_of_work.now), reopen)])


def run_again(unit_of_work: UnitOfWork, row: WorkRow, input: Any) -> Handle[Any, Any]:
    """Queue a new work like a success, in a group and a chain of its own; the success is its parent.

    The options keep the headers, and the gate that released the success, for ``ctx.dependents``.
    """
    options = decode_options(row.options)
    repeated = encode_options(replace(options, released_by=gate_of(row, options)))
    new = WorkRow(
        id=new_id(),
        input=row.input if input is None else new_input(row, input),
        type=row.type,
        queue=row.queue,
        priority=row.priority,
        fairness=row.fairness,
        parent_id=row.id,
        about_type=row.about_type,
        about_id=row.about_id,
        options=with_headers(repeated, headers_of(row.options)),
        deadline=deadline_anew(row, unit_of_work.now),
        queued_at=unit_of_work.now,
        run_at=unit_of_work.now,
        unit=row.unit,
        sort_key=row.sort_key,
    )
    watched = watched_by(row.id) if options.blocked else []
    succeeded = [id for id, outcome in watched if outcome == Status.SUCCESS]
    unit_of_work.insert([NewWork(new, blockers=tuple(id for id, _ in watched))], succeeded=succeeded)
    flush(unit_of_work)
    remember_uncommitted([new.id])
    return Handle(new.id, new.id)


def new_input(row: WorkRow, input: Any) -> str:
    """Encode the input that replaces the stored one, checked against the handler."""
    if row.type == GATE_TYPE:
        raise type_error(
            "gate-takes-no-input",
            f"expected no input for the gate {row.id}: the works it releases were fixed when it was queued.",
        )
    return encoded_input(request_of(row.type, input))


# Retrying with an input that a user has edited, unless the work has changed meanwhile.


def state_token(work: Work | WorkRow) -> str:
    """Return a short text that differs once the work has another status or input, or was claimed again."""
    state = "\x00".join([work.status, str(work.delivery), work.input])
    return blake2b(state.encode(), digest_size=12).hexdigest()


@own_transaction
def retry_edited(id: str, input: Any, token: str, by: str) -> Handle[Any, Any]:
    """Retry a work with another input, or run a success again with it; return the handle.

    ``token`` is the state of the work that was edited, ``by`` the name of the user. The old input of a work
    that is retried is kept as a revision.

    Raises WorkNotFound, NotRetryable, also for a work that is no more as it was, and what ``retry`` raises.
    """
    row, _ = lock_work(id, "retried")
    if state_token(row) != token:
        raise NotRetryable(
            f"expected the work {id} to be as it was when its input was edited, but it has been changed "
            "since; nothing was retried.",
            id=id,
            code="changed-since-edited",
        )
    return retry(id, input, again=row.status == Status.SUCCESS, by=by)
