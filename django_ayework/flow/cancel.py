"""Cancelling: works that have not ended end at once, without success."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from django_ayework.define.events import Kind
from django_ayework.define.signal import AbortReason
from django_ayework.flow.cascade import unreleased_ids
from django_ayework.flow.closing import close
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.locking import lock_all, lock_live_work, require_group
from django_ayework.rules.states import LIVE, Status, is_terminal
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import chunked, in_own_transaction
from django_ayework.store.deletion import Step, live_steps, steps_in_group, steps_with_ids
from django_ayework.store.rows import WorkRow, lock_rows

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
    ledger = Ledger(clock.now())
    moves = [row.becoming(Status.CANCELLED, error=row.error, ended_at=ledger.now) for row in works]
    transitions.apply(moves)
    for row, move in zip(works, moves, strict=True):
        after = row.after(move)
        ledger.ended(after, Status.CANCELLED)
        ledger.effects.happened(Kind.CANCELLED, after)
        ledger.effects.revoked[row.id] = AbortReason.CANCELLED
    ledger.outcomes.update(dict.fromkeys(unreleased_ids(*works), Status.CANCELLED))
    close(ledger)
