"""Cancel, complete and delete works. The modules ``retry`` and ``acts`` have the other acts.

Each act finds works, locks them, decides what becomes of them, moves them, and records what follows in a
unit of work. Each runs in one transaction: the caller's, or one of its own that is repeated after a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from django_ayework.define.context import AbortReason, Context
from django_ayework.define.handles import Handle, Kind
from django_ayework.define.plans import Plan, plan_of, root_of
from django_ayework.define.requests import GATE_TYPE, WorkRequest
from django_ayework.errors import AlreadyCompleted, BlockerReference, InvalidInstruction, WorkNotFound
from django_ayework.flow.context_services import EngineServices, assignment_of
from django_ayework.flow.gates import flush, make_moves, open_gate, unreleased_ids
from django_ayework.flow.outcomes import success_from
from django_ayework.flow.payloads import stored_release_ids
from django_ayework.flow.settle import Settlement, attempt_row, record_all, success_of
from django_ayework.flow.uncommitted import is_uncommitted, settling
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.logs import logger
from django_ayework.models import Work
from django_ayework.rules.formatting import counted
from django_ayework.rules.identity import require_text, require_work_id
from django_ayework.rules.states import LIVE, Outcome, Status, is_terminal
from django_ayework.store import deletion, transitions
from django_ayework.store.database import atomic, chunked, clock, own_transaction, rows, sync_only
from django_ayework.store.deletion import Step
from django_ayework.store.dependencies import WaiterRow, lock_waiters, watchers_of
from django_ayework.store.rows import WorkRow, chains_of, find_row, find_rows, last_step, lock_rows

Chain = str | Handle[object, object] | WorkRequest[object, object]

#: Works that one transaction cancels.
PAGE = 500
#: References that the message of a BlockerReference names; its ``references`` are complete.
NAMED = 5


# Locking


def lock_if_there(id: str) -> tuple[WorkRow | None, WaiterRow | None]:
    """Lock a work; return its row, and its waiter if the work waits or has waited for others.

    The work's own waiter is locked before the work, as in a settlement that decides that waiter, so that the
    two cannot deadlock. The waiters that watch the work are locked later, when its end is written: a
    settlement of that work has locked the work before them.
    """
    waiter = lock_waiters([require_text(id)]).get(id)
    return lock_rows([id]).get(id), waiter


def lock_work(id: str, act: str) -> tuple[WorkRow, WaiterRow | None]:
    """Lock a work for an act, such as "retried", which the error names. Raises WorkNotFound."""
    row, waiter = lock_if_there(id)
    if row is None:
        raise not_found(id, act)
    return row, waiter


def lock_current_step(id: str) -> WorkRow:
    """Lock a work that has not ended, to complete it; of a chain's id, the chain's current step.

    A chain's id is that of its first work. Until a step is locked it may hand over to the next one, so the
    last step is read again after each lock. Raises WorkNotFound and AlreadyCompleted.
    """
    row, _ = lock_if_there(id)
    while row is None or is_terminal(row.status):
        last = last_step(id)
        if last is None:
            raise not_found(id, "completed")
        if row is not None and last.id == row.id:
            raise already_ended(id, row, "completed")
        row, _ = lock_work(last.id, "completed")
    return row


def lock_all(steps: Sequence[Step]) -> list[Step]:
    """Lock works, and the waiters that their end may decide; return the works as they are now.

    A settlement locks a work before the waiters that watch it, and a waiter before its own work. So works
    that do not wait come first, then waiters, then works that wait. One statement locks both the waiters of
    these works and those that watch them: two statements would not lock in the order of ids.
    """
    waiting = {step.id for step in steps if step.status == Status.BLOCKED}
    live = [step for step in steps if not is_terminal(step.status)]
    releases = [id for gate in gates_among(live) for id in stored_release_ids(gate.input)]
    locked = deletion.lock_steps(step.id for step in steps if step.id not in waiting)
    lock_waiters({*(step.id for step in steps), *watchers_of([*(step.id for step in live), *releases])})
    return locked + deletion.lock_steps(waiting)


def gates_among(steps: Iterable[Step]) -> list[WorkRow]:
    """Read the gates among these works; the works that a gate releases never change."""
    return list(find_rows(step.id for step in steps if step.type == GATE_TYPE).values())


def not_found(id: str, act: str) -> WorkNotFound:
    """Return the error for an id without a work."""
    return WorkNotFound(f"no work has the id {id!r}, so it cannot be {act}.", id=id)


def already_ended(id: str, row: WorkRow, act: str) -> AlreadyCompleted:
    """Return the error for a work that has ended, or for the chain of this id whose last step has ended."""
    which = f"the work {id} ({row.type}) has ended already: it"
    if row.id != id:
        which = f"the chain {id} has ended already: its last step {row.id} ({row.type})"
    return AlreadyCompleted(f"{which} is {row.status}, so it cannot be {act}.", id=id)


def require_group(id: str, act: str) -> None:
    """Raise WorkNotFound unless there is a group of this id; its works were to be, for example, "retried"."""
    row = find_row(id)
    if row is not None and row.group != id:
        raise WorkNotFound(
            f"expected the id of a group, got {id!r}, which is a work of the group {row.group!r}; nothing "
            f"was {act}. Give group={row.group!r} for all works of that group.",
            id=id,
            code="group-not-found",
        )
    if row is None and not rows(Work).filter(group_id=id).exists():
        raise WorkNotFound(
            f"no group has the id {id!r}, so nothing was {act}.", id=id, code="group-not-found"
        )


def require_others(ids: Iterable[str]) -> None:
    """Raise InvalidInstruction for the work of an attempt that is to write its outcome in this transaction.

    The attempt would lose its work and be rolled back, and the act with it.
    """
    if settling.id in ids:
        raise InvalidInstruction(
            f"expected a handler not to end its own work {settling.id} by a call in the transaction of its "
            "outcome; return ctx.void(), ctx.result(…) or ctx.continue_with(…), or raise Abort.",
            id=settling.id,
            code="ends-own-work",
        )


# Cancelling


@own_transaction
def cancel_one(id: str) -> WorkRow:
    """End a work as cancelled; return its row as it was. Its waiters are decided as by any failed end.

    The signal of a running handler is set, and the handler's result is refused. A gate's works are not
    queued, and count as cancelled for their watchers.

    Raises WorkNotFound, and AlreadyCompleted for a work that has ended.
    """
    row, _ = lock_work(id, "cancelled")
    if is_terminal(row.status):
        raise already_ended(id, row, "cancelled")
    end_as_cancelled([row])
    return row


def cancel_group(group_id: str) -> list[str]:
    """Cancel the works of a group that have not ended; return their ids. Raises WorkNotFound."""
    cancelled = cancel_found(partial(deletion.steps_in_group, group_id, LIVE))
    if not cancelled:
        require_group(group_id, "cancelled")
    return cancelled


def cancel_works(ids: Sequence[str]) -> list[str]:
    """Cancel those of these works that have not ended; return their ids."""
    return cancel_found(partial(deletion.steps_with_ids, ids))


def cancel_type(type: str | None) -> list[str]:
    """Cancel the works of a type, or of all types, that have not ended; return their ids."""
    return cancel_found(partial(deletion.live_steps, type))


def cancel_found(find: Callable[[], Sequence[Step]]) -> list[str]:
    """Cancel the works found, one transaction per page, until none is new; return the ids.

    Works that ended before they could be locked may have queued others, so they are searched for again.
    Waiters come first, and a newer waiter before an older one that it may wait for, so no waiter
    starts because a work before it was cancelled.
    """
    cancelled: list[str] = []
    tried: set[str] = set()
    while new := [step for step in find() if step.id not in tried]:
        tried.update(step.id for step in new)
        new.sort(key=lambda step: (step.status == Status.BLOCKED, step.id), reverse=True)
        for page in chunked(new, PAGE):
            cancelled += cancel_page(page)
    return cancelled


@own_transaction
def cancel_page(steps: Sequence[Step]) -> list[str]:
    """Cancel those of these works that have not ended; return their ids."""
    live = lock_rows(step.id for step in lock_all(steps) if not is_terminal(step.status))
    end_as_cancelled(list(live.values()))
    return list(live)


def end_as_cancelled(works: Sequence[WorkRow]) -> None:
    """End locked works as cancelled, and record what follows."""
    require_others(row.id for row in works)
    unit_of_work = UnitOfWork(clock.read())
    moves = [row.becoming(Status.CANCELLED, error=row.error, ended_at=unit_of_work.now) for row in works]
    transitions.apply(moves)
    for row, move in zip(works, moves, strict=True):
        record_revoked(unit_of_work, row, "the work was cancelled")
        after = row.after(move)
        unit_of_work.ended(after, Status.CANCELLED)
        unit_of_work.effects.happened(Kind.CANCELLED, after)
        note_taken(unit_of_work, row.id, AbortReason.CANCELLED)
    unit_of_work.outcomes.update(dict.fromkeys(unreleased_ids(*works), Status.CANCELLED))
    flush(unit_of_work)


def record_revoked(unit_of_work: UnitOfWork, row: WorkRow, why: str) -> None:
    """Record the attempt of a work that ends while a worker runs it; the worker's own outcome is refused."""
    if row.status == Status.RUNNING:
        unit_of_work.attempts.append(attempt_row(row, Outcome.REVOKED, unit_of_work.now, why))


def note_taken(unit_of_work: UnitOfWork, id: str, reason: AbortReason) -> None:
    """Note that a work was ended without its worker, which is notified after the commit.

    A work that this transaction has inserted could not be locked by a transaction that has begun to watch it,
    so its watchers are rechecked.
    """
    unit_of_work.effects.revoked[id] = reason
    if is_uncommitted(id):
        unit_of_work.unresolved.add(id)


# Completing without a worker


@contextmanager
def completing(id: str) -> Generator[Context]:
    """Lock a work that has not ended, and give its context; an instruction built in the block ends the work.

    The effect is that of a handler that returns the instruction. Without an instruction nothing changes. A
    gate opens, whatever it waited for. The id of a chain, which is that of its first work, selects the
    current step of the chain. The work ends in the caller's transaction, if there is one. An error in the
    block changes nothing.

    Raises WorkNotFound and AlreadyCompleted, also if the block has deleted or ended the work, and
    InvalidInstruction for several instructions that are not part of one another, and if the block has changed
    the work otherwise.

    Example::

        with completing(approval_id) as ctx:
            ctx.queue([send_goods(order_id=7)])
    """
    with atomic():
        row = lock_current_step(id)
        require_others([row.id])
        context = Context(assignment_of(row), EngineServices())
        yield context
        root = root_of(context)
        if root is not None:
            require_unchanged(row)
            end_with_success(row, plan_of(root, context, strict=True))


def require_unchanged(row: WorkRow) -> None:
    """Raise if the block of this transaction has changed a work that it is to end; it may report progress.

    The row is locked, so nobody else has. What follows an end must follow one that is written.
    """
    now = find_row(row.id)
    if now is None:
        raise not_found(row.id, "completed")
    if is_terminal(now.status):
        raise already_ended(row.id, now, "completed")
    if now._replace(progress=row.progress) != row:
        raise InvalidInstruction(
            f"expected the work {row.id} ({row.type}) to stay as it is inside of the block that completes "
            "it, but the block has changed it. Complete it before or after the other act.",
            id=row.id,
            code="changed-while-completing",
        )


@sync_only
def complete(id: str, result: Any = None) -> None:
    """End a work with success and this result (None: without a result), without its handler.

    The id of a chain selects the current step of the chain.

    Raises WorkNotFound, AlreadyCompleted, NotEncodable and PayloadTooLarge.
    """
    with completing(id) as context:
        if result is None:
            context.void()
        else:
            context.result(result)


@own_transaction
def complete_work(id: str, result: Any) -> None:
    """End this work with success and this result; a work that has ended does not stand for its chain.

    Raises WorkNotFound, AlreadyCompleted, NotEncodable.
    """
    row, _ = lock_work(id, "completed")
    if is_terminal(row.status):
        raise already_ended(id, row, "completed")
    complete(id, result)


def end_with_success(row: WorkRow, plan: Plan) -> None:
    """Write the success of a locked work."""
    unit_of_work = UnitOfWork(clock.read())
    record_revoked(unit_of_work, row, "the work was completed without its worker")
    if row.type == GATE_TYPE:
        make_moves(unit_of_work, [open_gate(row, unit_of_work.now)])
    else:
        success = success_from(plan, row)
        unaided = row._replace(worker=None)
        transitions.apply([success_of(unaided, success, unit_of_work.now)])
        record_all(unit_of_work, [Settlement(unaided, success)])
    note_taken(unit_of_work, row.id, AbortReason.ALREADY_COMPLETED)
    flush(unit_of_work)


# Deleting chains


@own_transaction
def delete_chains(chains: Sequence[Chain], cascade: bool = False) -> list[str]:
    """Delete chains with all their works; return the ids of those that existed, in the order given.

    ``cascade`` adds the chains that block any of their works, and those that block these, each once. The
    watchers of a work that had not ended are decided as if the work were cancelled.

    Raises BlockerReference, and deletes nothing, when a work that stays is, or was, blocked by one of them.
    """
    chain_ids, steps = lock_chains(chain_ids_of(chains), cascade)
    require_unreferenced(chain_ids, steps)
    unit_of_work = UnitOfWork(clock.read())
    live = [step for step in steps.values() if not is_terminal(step.status)]
    require_others(step.id for step in live)
    never_ending = [*(step.id for step in live), *unreleased_ids(*gates_among(live))]
    unit_of_work.outcomes.update(dict.fromkeys(never_ending, Status.CANCELLED))
    # The rows go before waiters are decided: a waiter that goes too must not be decided, and the works that
    # a gate queues now must find these chains gone.
    deletion.erase(list(steps))
    for step in steps.values():
        if step.group_id is not None:
            unit_of_work.groups.member_deleted(step.group_id, step.status)
        if step.status == Status.RUNNING:
            unit_of_work.effects.revoked[step.id] = AbortReason.NOT_FOUND
    if chain_ids:
        log = partial(
            logger.info, "Deleted %s: %s", counted(len(chain_ids), "chain"), ", ".join(chain_ids[:10])
        )
        unit_of_work.effects.after.append(log)
    flush(unit_of_work)
    return chain_ids


def chain_ids_of(chains: Sequence[Chain]) -> list[str]:
    """Return the ids of chains, each once; a handle stands for the chain of its work."""
    found = chains_of(item.id for item in chains if isinstance(item, Handle))
    ids = (require_work_id(getattr(item, "id", item)) for item in chains)
    return list(dict.fromkeys(found.get(id, id) for id in ids))


def lock_chains(chain_ids: Sequence[str], cascade: bool) -> tuple[list[str], dict[str, Step]]:
    """Lock every work of these chains, and with ``cascade`` of their blockers; return chains and works.

    Until a chain's last work is locked it may hand over to another, which may have blockers. So the chains
    are read again after each lock, until no work is new.
    """
    locked: dict[str, Step] = {}
    tried: set[str] = set()
    chains, steps = read_chains(chain_ids, cascade)
    while new := [step for step in steps if step.id not in tried]:
        tried.update(step.id for step in new)
        locked.update((step.id, step) for step in lock_all(new))
        chains, steps = read_chains(chain_ids, cascade)
    selected = {step.id: locked[step.id] for step in steps if step.id in locked}
    existing = {step.chain for step in selected.values()}
    return [id for id in chains if id in existing], selected


def read_chains(chain_ids: Sequence[str], cascade: bool) -> tuple[list[str], list[Step]]:
    """Read the works of these chains, and with ``cascade`` those of the chains that block them, in turn."""
    chains, frontier = dict.fromkeys(chain_ids), list(chain_ids)
    steps: list[Step] = []
    while frontier:
        found = deletion.steps_among(frontier)
        steps += found
        blockers = deletion.blocking([step.id for step in found]) if cascade else []
        frontier = [id for id in blockers if id not in chains]
        chains.update(dict.fromkeys(frontier))
    return list(chains), steps


def require_unreferenced(chain_ids: Sequence[str], steps: dict[str, Step]) -> None:
    """Raise BlockerReference when one of these chains blocks, or blocked, a work that stays."""
    references = deletion.references_to(chain_ids, steps)
    if not references:
        return
    named = ", ".join(f"{chain} blocks the work {work}" for chain, work in references[:NAMED])
    more = f" and {len(references) - NAMED} more" if len(references) > NAMED else ""
    raise BlockerReference(
        f"expected chains that block no other work, but {named}{more}; nothing was deleted. "
        "Name the chains of those works in the same call, or delete them first.",
        references=references,
    )
