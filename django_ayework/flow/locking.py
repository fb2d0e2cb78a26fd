"""Taking hold of works, to act on them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AlreadyCompleted, WorkNotFound
from django_ayework.flow.cascade import read
from django_ayework.flow.gate_payload import promised_in
from django_ayework.models import Work
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.chains import last_step
from django_ayework.store.database import rows
from django_ayework.store.deletion import Step, lock_steps
from django_ayework.store.edges import watchers_of
from django_ayework.store.rows import WorkRow, find_row, lock_rows
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


def lock_all(steps: Sequence[Step]) -> list[Step]:
    """Lock works, with what decides those that wait; return them as they now are.

    A settlement locks a work before the waiters that watch it, and a waiter before its own work. So works
    that do not wait come first, then waiters, then works that wait. The waiters are those of these works and
    all that watch what never ends now, in one statement: in two they would not be in id order.
    """
    waiting = {step.id for step in steps if step.status == Status.BLOCKED}
    live = [step for step in steps if not is_terminal(step.status)]
    promised = [id for gate in gates_among(live) for id in promised_in(gate.input)]
    held = lock_steps(step.id for step in steps if step.id not in waiting)
    lock_waiters({*(step.id for step in steps), *watchers_of([*(step.id for step in live), *promised])})
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
