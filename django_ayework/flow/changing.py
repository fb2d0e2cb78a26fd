"""Changing works that wait: due now, of another priority, in another queue. One transaction per call.

A work that takes turns gets a new turn where it goes. Scheduled and blocked works get theirs once they become
pending, so only pending ones are given one here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from django_ayework.define.handles import WorkState
from django_ayework.define.options import check_priority, check_queue
from django_ayework.errors import AyeworkError, NotTriggerable, NotWaiting, WorkNotFound
from django_ayework.flow.gates import flush
from django_ayework.flow.states import state_of
from django_ayework.flow.termination import not_found
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.rules.identity import require_text
from django_ayework.rules.states import WAITING, Status
from django_ayework.store import transitions
from django_ayework.store.database import clock, own_transaction
from django_ayework.store.rows import WorkRow, lock_rows, statuses_of

P = ParamSpec("P")


@dataclass(slots=True)
class ChangeReport:
    """The works that a call changed, before and after; and the refusals by id."""

    changed: list[tuple[WorkRow, WorkRow]] = field(default_factory=list)
    refusals: dict[str, AyeworkError] = field(default_factory=dict)

    def states(self) -> list[WorkState]:
        """Return the works as they are now. Raises the first refusal."""
        for refusal in self.refusals.values():
            raise refusal
        return [state_of(after) for _, after in self.changed]


def lock_waiting(ids: Iterable[str]) -> dict[str, WorkRow]:
    """Lock those of these works that wait, and return them.

    A settlement locks the works that it ends before the blocked works that wait for them. So blocked works
    come last here, too, or the two could wait for each other.
    """
    waiting = {id: status for id, status in statuses_of(ids).items() if status in WAITING}
    blocked = {id for id, status in waiting.items() if status is Status.BLOCKED}
    locked = {**lock_rows(waiting.keys() - blocked), **lock_rows(blocked)}
    return {id: row for id, row in locked.items() if row.status in WAITING}


def refusal_of(id: str, status: str | None, act: str) -> AyeworkError:
    """Return the error for a work that does not wait, or is not there."""
    if status is None:
        return not_found(id, act)
    text = (
        f"expected the work {id} to be blocked, scheduled or pending, but it is {status}; it was not {act}."
    )
    return NotWaiting(text, id=id)


@own_transaction
def change_each(ids: Sequence[str], act: str, columns: dict[str, Any]) -> ChangeReport:
    """Give works that wait another priority or queue; ``act`` is the word for that in refusals."""
    ids = list(dict.fromkeys(map(require_text, ids)))
    report = ChangeReport()
    locked = lock_waiting(ids)
    others = statuses_of(id for id in ids if id not in locked)
    for id in ids:
        if id in locked:
            report.changed.append((locked[id], locked[id]._replace(**columns)))
        else:
            report.refusals[id] = refusal_of(id, others.get(id), act)
    unit_of_work = UnitOfWork(clock.read())
    transitions.relocate(report.changed, unit_of_work.now)
    for _, after in report.changed:
        unit_of_work.effects.awaits_worker(after)
    flush(unit_of_work)
    return report


@own_transaction
def all_or_none(change: Callable[P, ChangeReport], /, *args: P.args, **kwargs: P.kwargs) -> list[WorkState]:
    """Change all works that a call names, or none; return their states in the order given, each once.

    Raises the error of the first work that cannot be changed.
    """
    return change(*args, **kwargs).states()


def change_priority(ids: Sequence[str], priority: int) -> ChangeReport:
    """Give those of these works that wait another priority. Raises InvalidOption."""
    return change_each(ids, "changed", {"priority": check_priority(priority, "priority")})


def change_queue(ids: Sequence[str], queue: str) -> ChangeReport:
    """Move those of these works that wait to another queue. Raises InvalidOption."""
    return change_each(ids, "moved", {"queue": check_queue(queue, "queue")})


@own_transaction
def trigger(ids: Sequence[str]) -> ChangeReport:
    """Make those of these works due now that are scheduled. A missing work is refused first."""
    ids = list(dict.fromkeys(map(require_text, ids)))
    locked = lock_rows(ids)
    report = ChangeReport()
    for id in ids:
        if id not in locked:
            report.refusals[id] = WorkNotFound(f"no work has the id {id!r}, so none was triggered.", id=id)
    scheduled = []
    for row in (locked[id] for id in ids if id in locked):
        if row.status == Status.SCHEDULED:
            scheduled.append(row)
        else:
            text = f"expected the work {row.id} to be scheduled, but it is {row.status}; none was triggered."
            report.refusals[row.id] = NotTriggerable(text, id=row.id)
    unit_of_work = UnitOfWork(clock.read())
    moves = [row.becoming(Status.PENDING, run_at=unit_of_work.now, error=row.error) for row in scheduled]
    transitions.apply(moves)
    report.changed = [(row, row.after(move)) for row, move in zip(scheduled, moves, strict=True)]
    for _, after in report.changed:
        unit_of_work.effects.awaits_worker(after)
    flush(unit_of_work)
    return report
