"""Taking hold of one work, to act on it by hand."""

from __future__ import annotations

from django_ayework.errors import AlreadyCompleted, WorkNotFound
from django_ayework.rules.states import is_terminal
from django_ayework.store.chains import last_step
from django_ayework.store.rows import WorkRow, lock_rows
from django_ayework.store.waiters import WaiterRow, lock_waiters


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
