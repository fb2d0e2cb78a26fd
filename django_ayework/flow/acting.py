"""Acting on works by hand: cancel, trigger, complete."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from django_ayework.define.context import AbortReason, Context
from django_ayework.define.events import Kind
from django_ayework.define.handles import WorkState
from django_ayework.define.plans import Plan, plan_of, root_of
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AlreadyCompleted, NotTriggerable, WorkNotFound
from django_ayework.flow.dependencies import fire, read, unreleased_ids
from django_ayework.flow.gates import stored_release_ids
from django_ayework.flow.outcomes import success_from
from django_ayework.flow.recheck import flush
from django_ayework.flow.requests import twinned
from django_ayework.flow.services import EngineServices, assignment_of
from django_ayework.flow.settle import Settlement, record_all, success_of
from django_ayework.flow.states import state_of
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.models import Work
from django_ayework.rules.states import LIVE, Status, Transition, is_terminal
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import atomic, chunked, in_own_transaction, rows
from django_ayework.store.deletion import Step, live_steps, lock_steps, steps_in_group, steps_with_ids
from django_ayework.store.dependencies import WaiterRow, lock_waiters, watchers_of
from django_ayework.store.groups import last_step
from django_ayework.store.rows import WorkRow, find_row, lock_rows

# --- locking ---
# Taking hold of works, to act on them by hand.


def lock_work(id: str, act: str) -> tuple[WorkRow, WaiterRow | None]:
    """Lock a work that is to be, say, "retried"; return its row, and what it waits for if it is a waiter.

    A waiter's own lock comes before its work's, as in every settlement, so that the two cannot wait for each
    other; a plain work has no such lock. The waiters that watch the work are locked later, when its end is
    written: before the work's row they would meet a settlement of that work in the opposite order. Raises
    WorkNotFound.
    """
    row, waiter = lock_if_there(id)
    if row is None:
        raise WorkNotFound(f"no work has the id {id!r}, so it cannot be {act}.", id=id)
    return row, waiter


def lock_if_there(id: str) -> tuple[WorkRow | None, WaiterRow | None]:
    """Lock a work as :func:`lock_work` does, if there is one of this id."""
    waiter = lock_waiters([id]).get(id)
    return lock_rows([id]).get(id), waiter


def lock_live_work(id: str, act: str) -> WorkRow:
    """Lock a work that has not ended. Raises WorkNotFound and AlreadyCompleted."""
    row, _ = lock_work(id, act)
    if is_terminal(row.status):
        raise ended(id, row, act)
    return row


def lock_current_step(id: str, act: str) -> WorkRow:
    """Lock a work that has not ended; of a chain's id, the step that the chain is at.

    A chain's id is that of its first work. Until a step is locked it may hand over to the next one, so look
    again after each lock. Raises WorkNotFound and AlreadyCompleted.
    """
    row, _ = lock_if_there(id)
    while row is None or is_terminal(row.status):
        last = last_step(id)
        if last is None:
            raise WorkNotFound(f"no work has the id {id!r}, so it cannot be {act}.", id=id)
        if row is not None and last.id == row.id:
            raise ended(id, row, act)
        row, _ = lock_work(last.id, act)
    return row


def ended(id: str, row: WorkRow, act: str) -> AlreadyCompleted:
    """Return the error for a work that has ended, or for the chain of this id that has ended with it."""
    which = f"the work {id} ({row.type}) has ended already: it"
    if row.id != id:
        which = f"the chain {id} has ended already: its last step {row.id} ({row.type})"
    return AlreadyCompleted(f"{which} is {row.status}, so it cannot be {act}.", id=id)


def lock_all(steps: Sequence[Step]) -> list[Step]:
    """Lock works, with what decides those that wait; return them as they now are.

    A settlement locks a work before the waiters that watch it, and a waiter before its own work. So works
    that do not wait come first, then waiters, then works that wait. The waiters are those of these works and
    all that watch what never ends now, in one statement: in two they would not be in id order.
    """
    waiting = {step.id for step in steps if step.status == Status.BLOCKED}
    live = [step for step in steps if not is_terminal(step.status)]
    releases = [id for gate in gates_among(live) for id in stored_release_ids(gate.input)]
    held = lock_steps(step.id for step in steps if step.id not in waiting)
    lock_waiters({*(step.id for step in steps), *watchers_of([*(step.id for step in live), *releases])})
    return held + lock_steps(waiting)


def gates_among(steps: Iterable[Step]) -> list[WorkRow]:
    """Read the gates among these works; what they are to release never changes."""
    return read([step.id for step in steps if step.type == GATE_TYPE])


def require_group(id: str, act: str) -> None:
    """Raise WorkNotFound unless there is a group of this id, whose works were to be, say, "retried"."""
    row = find_row(id)
    if row is not None and row.group != id:
        raise WorkNotFound(
            f"expected the id of a group, got {id!r}, which is a work of the group {row.group!r}; nothing "
            f"was {act}. Give group={row.group!r} for all works of that group.",
            id=id,
        )
    if row is None and not rows(Work).filter(group_id=id).exists():
        raise WorkNotFound(f"no group has the id {id!r}, so nothing was {act}.", id=id)


# --- cancel ---
# Cancelling: works that have not ended end at once, without success.

#: Works in one transaction.
PAGE = 500


def cancel_one(id: str) -> WorkRow:
    """End a work as cancelled; return its row as it was. Its waiters are decided as by any failed end.

    A handler that runs it is told by its signal; what it returns is refused. A gate's works are not queued,
    and count as cancelled for whoever watches them.

    Raises WorkNotFound, and AlreadyCompleted for a work that has ended.
    """
    return in_own_transaction(partial(cancel_one_here, id))


def cancel_one_here(id: str) -> WorkRow:
    """Cancel within the transaction at hand: the row is locked, so its status cannot change meanwhile."""
    row = lock_live_work(id, "cancelled")
    end([row])
    return row


def cancel_group(group_id: str) -> list[str]:
    """Cancel the works of a group that have not ended; return their ids. Raises WorkNotFound."""
    cancelled = cancel_found(partial(steps_in_group, group_id, LIVE))
    if not cancelled:
        require_group(group_id, "cancelled")
    return cancelled


def cancel_works(ids: Sequence[str]) -> list[str]:
    """Cancel those of these works that have not ended; return their ids."""
    return cancel_found(partial(steps_with_ids, ids))


def cancel_type(type: str | None) -> list[str]:
    """Cancel the works of a type, or of all types, that have not ended; return their ids."""
    return cancel_found(partial(live_steps, type))


def cancel_found(find: Callable[[], Sequence[Step]]) -> list[str]:
    """Cancel what is found, one transaction per page, until nothing new is found; return the ids.

    Works that ended before they could be locked may have queued others, so look again. Waiters come first,
    the newest of them before those they wait for: none of them starts because of a cancellation before it.
    """
    cancelled: list[str] = []
    tried: set[str] = set()
    while fresh := [step for step in find() if step.id not in tried]:
        tried.update(step.id for step in fresh)
        fresh.sort(key=lambda step: (step.status == Status.BLOCKED, step.id), reverse=True)
        for page in chunked(fresh, PAGE):
            cancelled += in_own_transaction(partial(cancel_page, page))
    return cancelled


def cancel_page(steps: Sequence[Step]) -> list[str]:
    """Cancel those of these works that have not ended, within the transaction at hand; return their ids."""
    live = lock_rows(step.id for step in lock_all(steps) if not is_terminal(step.status))
    end(list(live.values()))
    return list(live)


def end(works: Sequence[WorkRow]) -> None:
    """End locked works as cancelled, with all that follows from it."""
    unit_of_work = UnitOfWork(clock.now())
    moves = [row.becoming(Status.CANCELLED, error=row.error, ended_at=unit_of_work.now) for row in works]
    transitions.apply(moves)
    for row, move in zip(works, moves, strict=True):
        after = row.after(move)
        unit_of_work.ended(after, Status.CANCELLED)
        unit_of_work.effects.happened(Kind.CANCELLED, after)
        unit_of_work.effects.revoked[row.id] = AbortReason.CANCELLED
    unit_of_work.outcomes.update(dict.fromkeys(unreleased_ids(*works), Status.CANCELLED))
    flush(unit_of_work)


# --- trigger ---
# Triggering: scheduled works run now.


def trigger(ids: Sequence[str]) -> list[WorkState]:
    """Make scheduled works due now, all or none; return their states in the order given, each once.

    Raises WorkNotFound, and NotTriggerable for a work that is not scheduled; then none is triggered.
    """
    return in_own_transaction(partial(trigger_here, list(dict.fromkeys(ids))))


def trigger_here(ids: Sequence[str]) -> list[WorkState]:
    """Trigger within the transaction at hand; the rows are locked, so what was checked holds."""
    rows = lock_rows(ids)
    require_scheduled(ids, rows)
    unit_of_work = UnitOfWork(clock.now())
    moves = {id: due_now(rows[id], unit_of_work.now) for id in ids}
    transitions.apply(list(moves.values()))
    triggered = [rows[id].after(move) for id, move in moves.items()]
    for row in triggered:
        unit_of_work.effects.awaits_worker(row)
    flush(unit_of_work)
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


# --- complete ---
# Completing without a worker: somebody else knows how a work ends.


@contextmanager
def completing(id: str) -> Generator[Context]:
    """Lock a work that has not ended and give its context; the instruction built inside is its outcome.

    Exactly as if its handler had returned it; without an instruction nothing changes. A gate opens, whatever
    it waited for. Of a chain's id, which is that of its first work, it is the step that the chain is at.
    Everything happens in the caller's transaction, if there is one; an error undoes it.

    Raises WorkNotFound, AlreadyCompleted, and InvalidInstruction when several instructions were built that
    are not part of one another.

    Example::

        with completing(approval_id) as ctx:
            ctx.queue([send_goods(order_id=7)])
    """
    with atomic():
        row = lock_current_step(id, "completed")
        context = context_of(row)
        yield context
        root = root_of(context)
        if root is not None:
            complete_here(row, plan_of(root, context, strict=True))


@twinned
def complete(id: str, result: Any = None) -> None:
    """End a work with success and this result (None: without one), without its handler.

    Of a chain's id it is the step that the chain is at.

    Raises WorkNotFound, AlreadyCompleted, NotEncodable.
    """
    with completing(id) as context:
        if result is None:
            context.void()
        else:
            context.result(result)


def complete_here(row: WorkRow, plan: Plan) -> None:
    """Write the success of a locked work; a worker that runs it is told after the commit."""
    unit_of_work = UnitOfWork(clock.now())
    if row.type == GATE_TYPE:
        move = fire(row, unit_of_work.now)
        transitions.apply([move.transition])
        move.follow_up(unit_of_work, move)
    else:
        success = success_from(plan, row)
        unaided = row._replace(worker=None)
        transitions.apply([success_of(unaided, success, unit_of_work.now)])
        record_all(unit_of_work, [Settlement(unaided, success)])
    unit_of_work.effects.revoked[row.id] = AbortReason.ALREADY_COMPLETED
    flush(unit_of_work)


def context_of(row: WorkRow) -> Context:
    """Return the context of a work that no handler runs."""
    return Context(assignment_of(row), EngineServices())
