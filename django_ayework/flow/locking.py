"""Taking hold of one work, to act on it by hand."""

from __future__ import annotations

from django_ayework.errors import AlreadyCompleted, WorkNotFound
from django_ayework.rules.states import is_terminal
from django_ayework.store.rows import WorkRow, lock_rows
from django_ayework.store.waiters import WaiterRow, lock_waiters


def lock_work(id: str, act: str) -> tuple[WorkRow, WaiterRow | None]:
    """Lock a work that is to be, say, "retried"; return its row, and what it waits for if it is a waiter.

    A waiter's own lock comes before its work's, as in every settlement, so that the two cannot wait for each
    other; a plain work has no such lock. The waiters that watch the work are locked later, when its end is
    written: before the work's row they would meet a settlement of that work in the opposite order. Raises
    WorkNotFound.
    """
    waiter = lock_waiters([id]).get(id)
    row = lock_rows([id]).get(id)
    if row is None:
        raise WorkNotFound(f"no work has the id {id!r}, so it cannot be {act}.", id=id)
    return row, waiter


def lock_live_work(id: str, act: str) -> WorkRow:
    """Lock a work that has not ended. Raises WorkNotFound and AlreadyCompleted."""
    row, _ = lock_work(id, act)
    if is_terminal(row.status):
        raise AlreadyCompleted(
            f"the work {id} ({row.type}) has ended already: it is {row.status}, so it cannot be {act}.", id=id
        )
    return row
