"""Resolving dependencies: waiters of ended works are decided, wave by wave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import Error

from django_ayework.define.events import Kind
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.gates import decode_releases, gate_timeout, stored_release_ids
from django_ayework.flow.new_works import Lineage, NewWork, build_new_works
from django_ayework.flow.requests import decode_options
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.models import Work
from django_ayework.rules.conditions import Decision, condition_from_plain, decide
from django_ayework.rules.decisions import error_text, resolve_deadline, waiting_status
from django_ayework.rules.states import Reason, Status, Transition
from django_ayework.store import transitions
from django_ayework.store.database import chunked, rows
from django_ayework.store.dependencies import News, WaiterRow, missed_by
from django_ayework.store.resolution import resolve_waiters
from django_ayework.store.rows import WorkRow, rows_of, statuses_of


def cascade(unit_of_work: UnitOfWork) -> None:
    """Decide every waiter the news concerns, and those that this concerns in turn."""
    while unit_of_work.outcomes or unit_of_work.chain_outcomes or unit_of_work.undecided:
        decide_wave(unit_of_work)


def decide_wave(unit_of_work: UnitOfWork) -> None:
    """Write this wave's outcomes on the edges and move the waiters they decide.

    Settle first, then look for edges, in a later statement: an edge committed before this look is seen, one
    committed after it belongs to a waiter that its maker looks at again.
    """
    news = News(unit_of_work.outcomes, unit_of_work.chain_outcomes)
    unit_of_work.outcomes, unit_of_work.chain_outcomes = {}, {}
    undecided, unit_of_work.undecided = unit_of_work.undecided, set()
    decide_waiters(unit_of_work, resolve_waiters(undecided, news), undone=news.undoes())


def decide_waiters(unit_of_work: UnitOfWork, waiters: Mapping[str, WaiterRow], undone: bool = False) -> None:
    """Move those of these locked waiters that their counts decide; ``undone`` if ends were undone."""
    decided = {id: decision_of(waiter) for id, waiter in waiters.items()}
    moving = [id for id, decision in decided.items() if undone or decision is not Decision.WAIT]
    moves = [move for row in read(moving) if (move := move_of(row, decided[row.id], unit_of_work.now))]
    moved = transitions.apply([move.transition for move in moves])
    for move in moves:
        if move.transition.id in moved:
            move.follow_up(unit_of_work, move)


def decision_of(waiter: WaiterRow) -> Decision:
    """Decide a waiter from its counts."""
    decision = decide(condition_from_plain(json.loads(waiter.condition)), waiter.tally)
    if decision is Decision.NEVER and waiter.on_unmet == "wait":
        return Decision.WAIT
    return decision


def read(ids: list[str]) -> list[WorkRow]:
    """Read the waiting works themselves."""
    return [row for some in chunked(ids) for row in rows_of(rows(Work).filter(id__in=some).order_by("id"))]


@dataclass(frozen=True, slots=True)
class Move:
    """A waiter's transition, and what to do once it is won."""

    row: WorkRow
    transition: Transition
    follow_up: Callable[[UnitOfWork, Move], None]
    new_works: tuple[NewWork, ...] = ()


def move_of(row: WorkRow, decision: Decision, now: datetime) -> Move | None:
    """Return what a decision makes of a waiting work, if anything."""
    if row.status == Status.BLOCKED and decision is Decision.FIRE:
        return fire(row, now) if row.type == GATE_TYPE else unblock(row, now)
    if row.status == Status.BLOCKED and decision is Decision.NEVER:
        return give_up(row, now)
    if row.reason == Reason.UNSATISFIABLE and decision is not Decision.NEVER:
        return revive(row, now)
    return None


def fire(row: WorkRow, now: datetime) -> Move:
    """A gate opens: it succeeds, and its works are queued into its group.

    No error of reading them may reach the settlement of the work it waited for.
    """
    try:
        new_works = build_new_works(
            decode_releases(row.input), Lineage(row.group, row.id, released=True), now
        )
    except Error:  # the database's own: the whole settlement is to be tried again
        raise
    except BaseException as error:  # of a codec of the project's own
        return Move(row, ending(row, now, Status.DEAD, Reason.BAD_INPUT, error_text(error)), close_unopened)
    group_id = row.group_id or (row.id if new_works else None)
    return Move(row, ending(row, now, Status.SUCCESS, group_id=group_id), release, tuple(new_works))


def unblock(row: WorkRow, now: datetime) -> Move:
    """A work's blockers have succeeded: it is due, no earlier than its own time, and no older than now.

    One that was queued without a delay is due now, whatever the clock of the host said that queued it.
    """
    run_at = now if row.run_at <= row.queued_at else max(row.run_at, now)
    return Move(row, row.becoming(waiting_status(run_at, now), run_at=run_at, error=row.error), resume)


def resume(unit_of_work: UnitOfWork, move: Move) -> None:
    """Book a work that may start."""
    unit_of_work.effects.awaits_worker(move.row.after(move.transition))


def give_up(row: WorkRow, now: datetime) -> Move:
    """A waiter can never be met: it dies, and what it would have released counts as cancelled."""
    return Move(row, ending(row, now, Status.DEAD, Reason.UNSATISFIABLE, unmet_text(row.id)), close_unopened)


def unmet_text(waiter: str) -> str:
    """Say which works a waiter waited for in vain."""
    missed = [f"{id} is {outcome}" for id, outcome in missed_by(waiter, limit=3)]
    return f"what it waits for can no longer happen: {', '.join(missed)}; retry that work to carry on"


def revive(row: WorkRow, now: datetime) -> Move:
    """A waiter that had given up may still be met: it waits again, and its cascade is undone."""
    return Move(row, waiting_again(row, now), reopen)


def ending(
    row: WorkRow,
    now: datetime,
    status: Status,
    reason: Reason | str = "",
    error: str = "",
    group_id: str | None = None,
) -> Transition:
    """Return the end of a blocked work."""
    founds = {} if group_id is None else {"group_id": group_id}
    return row.becoming(status, reason=reason, error=error, ended_at=now, **founds)


def waiting_again(row: WorkRow, now: datetime) -> Transition:
    """Return the way back of an ended waiter; its time counts anew, an explicit deadline stays."""
    return row.becoming(Status.BLOCKED, attempt=0, deadline=deadline_anew(row, now))


def deadline_anew(row: WorkRow, now: datetime) -> datetime | None:
    """Return when a waiter expires that starts to wait now."""
    options = decode_options(row.options)
    timeout = gate_timeout(row.input) if row.type == GATE_TYPE else None
    if timeout is None and options.explicit_deadline:
        return row.deadline
    return resolve_deadline(now, options.expires if timeout is None else timeout, None)


def release(unit_of_work: UnitOfWork, move: Move) -> None:
    """Book a gate that opened."""
    if move.row.group_id is None and move.new_works:
        unit_of_work.groups.founded(move.row.id)
    unit_of_work.unresolved |= unit_of_work.insert(move.new_works, released=True)
    after = move.row.after(move.transition)
    unit_of_work.ended(after, move.transition.status)
    unit_of_work.effects.happened(Kind.SUCCEEDED, after)


def close_unopened(unit_of_work: UnitOfWork, move: Move) -> None:
    """Book a waiter that died: the works it would have released count as cancelled for their watchers."""
    after = move.row.after(move.transition)
    unit_of_work.ended(after, move.transition.status)
    unit_of_work.outcomes.update(dict.fromkeys(unreleased_ids(move.row), Status.CANCELLED))
    kind = Kind.EXPIRED if after.reason == Reason.EXPIRED else Kind.FAILED
    extra = {} if kind is Kind.EXPIRED else {"error": after.error, "will_retry": False}
    unit_of_work.effects.happened(kind, after, **extra)


def reopen(unit_of_work: UnitOfWork, move: Move) -> None:
    """Book a waiter that waits again; what counted as cancelled because of it no longer does."""
    unit_of_work.reopened(move.row.after(move.transition), was_dead=move.row.status == Status.DEAD)
    unit_of_work.outcomes.update(dict.fromkeys(unreleased_ids(move.row)))
    unit_of_work.undecided.add(move.row.id)


def unreleased_ids(*works: WorkRow) -> Iterable[str]:
    """Return the ids of the works that gates have not released, those of nested gates included.

    One that somebody else has queued lives a life of its own.
    """
    releases = [id for row in works if row.type == GATE_TYPE for id in stored_release_ids(row.input)]
    queued = statuses_of(releases)
    return [id for id in releases if id not in queued]
