"""Acts on several works: they are made due, or get another priority or queue; and acts by name.

An act by name is for the admin's buttons, its selections and its bulk actions. It takes ids and its
parameters, and acts on each work by itself: a refusal does not undo the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from django.db import Error

from django_ayework.define.handles import WorkState
from django_ayework.define.options import check_priority, check_queue
from django_ayework.errors import (
    AyeworkError,
    BlockerReference,
    NotRetryable,
    NotTriggerable,
    NotWaiting,
    WorkNotFound,
)
from django_ayework.flow.gates import flush
from django_ayework.flow.retry import retry
from django_ayework.flow.states import state_of
from django_ayework.flow.termination import (
    cancel_works,
    complete_work,
    delete_chains,
    not_found,
    require_group,
)
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.models import Work
from django_ayework.rules.formatting import sentence
from django_ayework.rules.identity import require_text
from django_ayework.rules.states import LIVE, RETRYABLE, WAITING, Status
from django_ayework.store import transitions
from django_ayework.store.database import chunked, clock, in_transaction, own_transaction, rows
from django_ayework.store.deletion import steps_in_group
from django_ayework.store.dependencies import read_waiters
from django_ayework.store.rows import WorkRow, chains_of, lock_rows, statuses_of

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


# Acts by name.


@dataclass(frozen=True, slots=True)
class ActReport:
    """The ids of the works that an act changed, and a sentence for each work that it refused, by id.

    ``revived`` are works that wait again because of the act. ``made`` are the new works that the act queued,
    by the id of the old one. ``before`` are the columns that the act replaced, by id.
    """

    done: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    revived: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    before: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Act:
    """An act: what carries it out, and the statuses of the works that it acts on.

    ``waiters_first`` is for acts after which a gate may open: it must not open if it is acted on, too.
    ``parameters`` has the parameters by name, each with its check; one without a check may be left out.
    """

    run: Callable[[Sequence[str], Mapping[str, Any]], ActReport]
    statuses: frozenset[Status]
    waiters_first: bool = False
    parameters: Mapping[str, Callable[[Any, str], object] | None] = field(default_factory=dict)


def run_again(ids: Sequence[str], parameters: Mapping[str, Any]) -> ActReport:
    """Run successes again, each as a new work."""
    statuses, report = statuses_of(ids), ActReport()

    def again(id: str) -> None:
        if statuses.get(id) in RETRYABLE:
            raise NotRetryable(f"expected the work {id} to be a success, but it is {statuses[id]}; retry it.")
        report.made[id] = retry(id, again=True).id

    return each(ids, again, report)


def delete(ids: Sequence[str], parameters: Mapping[str, Any]) -> ActReport:
    """Delete works with their chains. A chain that blocks a work that stays is refused, with a sentence."""
    chains = chains_of(ids)
    refused: dict[str, str] = {}
    while wanted := [chain for chain in dict.fromkeys(chains.values()) if chain not in refused]:
        try:
            gone = set(delete_chains(wanted))
        except BlockerReference as error:
            refused |= {chain: kept_for(chain, waiter) for chain, waiter in error.references}
        else:
            done = [id for id in ids if chains.get(id) in gone]
            return ActReport(done, {id: refused[c] for id, c in chains.items() if c in refused})
    return ActReport(refused={id: refused[chain] for id, chain in chains.items()})


def kept_for(chain: str, waiter: str) -> str:
    """Return the sentence for a chain that blocks a work."""
    return (
        f"expected chains that block no other work, but {chain} blocks the work {waiter}; it was not "
        "deleted. Choose that work too, or delete it first."
    )


def report_of(report: ChangeReport, column: str) -> ActReport:
    """Return the report of a change as that of an act, with the old values of one column."""
    return ActReport(
        done=[before.id for before, _ in report.changed],
        refused={id: str(error) for id, error in report.refusals.items()},
        before={before.id: {column: getattr(before, column)} for before, _ in report.changed},
    )


def each(ids: Sequence[str], act: Callable[[str], object], report: ActReport | None = None) -> ActReport:
    """Act on each work in a transaction of its own; return which were done, and the refusals.

    A work on which ``act`` returns False is not done. When the database refuses a statement after works were
    done, it is the refusal of all works that are left.
    """
    report = report or ActReport()
    chosen = list(dict.fromkeys(ids))
    for number, id in enumerate(chosen):
        try:
            if act(id) is not False:
                report.done.append(id)
        except AyeworkError as refusal:
            report.refused[id] = str(refusal)
        except Error as error:
            if in_transaction() or not report.done:
                raise
            text = f"and it has refused a statement: {sentence(' '.join(str(error).split()))}"
            for left in chosen[number:]:
                report.refused[left] = f"expected the database to take the act on {left}, {text}"
            break
    return report


# Retrying several works.


def retry_each(ids: Sequence[str], again: bool = False) -> ActReport:
    """Retry works one by one, each in a transaction of its own: a refusal does not undo the others.

    Waiters come last, the oldest first, as a retry of the works that they wait for revives them.
    """
    report = ActReport()
    waiters = {id for some in chunked(ids) for id in read_waiters(some)}
    ended = {id for id, status in statuses_of(waiters).items() if status in RETRYABLE}

    def retry_one(id: str) -> bool:
        is_revived = id in ended and statuses_of([id]).get(id) in LIVE
        if is_revived:
            report.revived.append(id)
        else:
            retry(id, again=again)
        return not is_revived

    return each([*(id for id in ids if id not in waiters), *sorted(waiters)], retry_one, report)


def retry_group(group_id: str) -> list[str]:
    """Retry the dead and cancelled works of a group; return the ids of those that start over or wait again.

    Raises WorkNotFound, and NotRetryable once the others were retried, for those that could not be.
    """
    report = retry_each(retryable_in(group_id))
    done = [*report.done, *report.revived]
    if report.refused:
        first = next(iter(report.refused.values()))
        raise NotRetryable(
            f"expected to retry all dead and cancelled works of the group {group_id}; {len(done)} were, and "
            f"{len(report.refused)} could not be, the first because: {first}",
            id=group_id,
            members=list(report.refused),
            code="group-partly-retried",
        )
    return done


def retryable_in(group_id: str) -> list[str]:
    """Return the ids of the dead and cancelled works of a group. Raises WorkNotFound."""
    ids = [step.id for step in steps_in_group(group_id, RETRYABLE)]
    if not ids:
        require_group(group_id, "retried")
    return ids


def dead_ids(type: str | None, reason: str | None) -> list[str]:
    """Return the ids of dead works, the longest dead first, so that the first to die is retried first."""
    wanted = {name: value for name, value in (("type", type), ("reason", reason)) if value}
    dead = rows(Work).filter(status=Status.DEAD, **wanted).order_by("ended_at", "id")
    return list(dead.values_list("id", flat=True))


#: The acts by name. Bulk actions store the name, and the parameters: a ``result``, ``priority`` or ``queue``.
ACTS: Mapping[str, Act] = {
    "retry": Act(lambda ids, given: retry_each(ids), RETRYABLE),
    "run_again": Act(run_again, frozenset({Status.SUCCESS})),
    "cancel": Act(lambda ids, given: ActReport(cancel_works(ids)), LIVE, waiters_first=True),
    "run_now": Act(lambda ids, given: report_of(trigger(ids), "run_at"), frozenset({Status.SCHEDULED})),
    "complete": Act(
        lambda ids, given: each(ids, lambda id: complete_work(id, given.get("result"))),
        LIVE,
        parameters={"result": None},
    ),
    "delete": Act(delete, frozenset(Status), waiters_first=True),
    "change_priority": Act(
        lambda ids, given: report_of(change_priority(ids, given["priority"]), "priority"),
        WAITING,
        parameters={"priority": check_priority},
    ),
    "change_queue": Act(
        lambda ids, given: report_of(change_queue(ids, given["queue"]), "queue"),
        WAITING,
        parameters={"queue": check_queue},
    ),
}
