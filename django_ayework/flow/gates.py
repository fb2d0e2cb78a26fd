"""Gates and blocked works: deciding the waiters of ended works, opening gates, and rechecking new waiters.

A settlement decides the waiters of the works that it ends, wave by wave: a gate that opens has ended, too.

A waiter can be inserted while another transaction settles watched works, each unseen by the other. To lock
the watched works in the caller's transaction would prevent that, but a slow request would then stall the
workers, and could be chosen as the victim of a deadlock. Instead the waiter is rechecked after the commit. A
recheck locks nothing for longer than a moment, and skips what others have locked: a worker rechecks that
later. The waiter's ``recheck`` flag is durable, and stays until nothing was skipped.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from django_ayework.define.handles import Kind
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.isolation import isolated
from django_ayework.flow.new_works import Lineage, NewWork, build_new_works
from django_ayework.flow.payloads import (
    decode_options,
    decode_releases,
    gate_timeout,
    headers_of,
    stored_release_ids,
)
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.rules.conditions import Decision, condition_from_plain, decide
from django_ayework.rules.formatting import error_text
from django_ayework.rules.retry import resolve_deadline, waiting_status
from django_ayework.rules.states import Reason, Status, Transition, is_terminal
from django_ayework.store import transitions
from django_ayework.store.attempts import insert_attempts
from django_ayework.store.database import briefly, chunked, clock
from django_ayework.store.dependencies import (
    EdgeRow,
    Outcomes,
    WaiterRow,
    clear_recheck,
    edges_by_id,
    ends_of_blockers,
    flag_for_recheck,
    lock_waiters,
    missed_by,
    open_edges,
    open_watchers,
    record_outcomes,
    resolve_waiters,
    settled_chains,
    settled_statuses,
    waiters_to_recheck,
)
from django_ayework.store.rows import WorkRow, find_rows, statuses_of

#: Waiters in one transaction.
PAGE = 500
#: Edges that are remembered of an unresolved waiter, and waiters that are remembered. The rest is read anew.
MOST_EDGES = 1000
MOST_WAITERS = 10_000


def flush(unit_of_work: UnitOfWork) -> None:
    """Queue outputs, decide waiters, write groups and attempts; effects are carried out after the commit."""
    unit_of_work.insert_outputs()
    while unit_of_work.outcomes or unit_of_work.chain_outcomes or unit_of_work.undecided:
        decide_wave(unit_of_work)
    unit_of_work.groups.close(unit_of_work.effects)
    insert_attempts(unit_of_work.attempts)
    if unit_of_work.rechecks:
        unit_of_work.effects.after.append(partial(recheck, unit_of_work.rechecks))
    if unit_of_work.unresolved:
        unit_of_work.effects.after.append(partial(recheck_watchers, sorted(unit_of_work.unresolved)))
    unit_of_work.effects.release_on_commit()


def decide_wave(unit_of_work: UnitOfWork) -> None:
    """Write this wave's outcomes on the edges and move the waiters that they decide.

    The transitions come first and the edges are read in a later statement: an edge that was committed before
    is seen, and one that is committed after it belongs to a waiter that is rechecked.
    """
    outcomes = Outcomes(unit_of_work.outcomes, unit_of_work.chain_outcomes)
    unit_of_work.outcomes, unit_of_work.chain_outcomes = {}, {}
    undecided, unit_of_work.undecided = unit_of_work.undecided, set()
    if waiters := resolve_waiters(undecided, outcomes):
        decide_waiters(unit_of_work, waiters, undone=outcomes.undoes())


def decide_waiters(unit_of_work: UnitOfWork, waiters: Mapping[str, WaiterRow], undone: bool = False) -> None:
    """Move those of these locked waiters that their counts decide; ``undone`` if ends were undone."""
    decided = {id: decision_of(waiter) for id, waiter in waiters.items()}
    moving = [id for id, decision in decided.items() if undone or decision is not Decision.WAIT]
    rows = find_rows(moving)
    ordered = [rows[id] for id in sorted(rows)]
    make_moves(
        unit_of_work,
        [move for row in ordered if (move := move_of(row, decided[row.id], unit_of_work.now))],
    )


def decision_of(waiter: WaiterRow) -> Decision:
    """Decide a waiter from its counts."""
    decision = decide(condition_from_plain(json.loads(waiter.condition)), waiter.tally)
    if decision is Decision.NEVER and waiter.on_unmet == "wait":
        return Decision.WAIT
    return decision


@dataclass(frozen=True, slots=True)
class Move:
    """The transition of a waiter, and what is recorded once the transition is won."""

    row: WorkRow
    transition: Transition
    follow_up: Callable[[UnitOfWork, Move], None]
    new_works: tuple[NewWork, ...] = ()


def make_moves(unit_of_work: UnitOfWork, moves: Sequence[Move]) -> set[str]:
    """Write the transitions of waiters, and record what follows from those that are won; return their ids."""
    moved = transitions.apply([move.transition for move in moves])
    for move in moves:
        if move.row.id in moved:
            move.follow_up(unit_of_work, move)
    return moved


def move_of(row: WorkRow, decision: Decision, now: datetime) -> Move | None:
    """Return the move of a waiting work that follows from a decision, if there is one.

    A waiter that can never be met dies, and the works that it would have released count as cancelled. One
    that died so, and may be met again, goes back to waiting.
    """
    if row.status == Status.BLOCKED and decision is Decision.MET:
        return open_gate(row, now) if row.type == GATE_TYPE else unblock(row, now)
    if row.status == Status.BLOCKED and decision is Decision.NEVER:
        return dying(row, now, Reason.UNSATISFIABLE, unmet_text(row.id))
    if row.reason == Reason.UNSATISFIABLE and decision is not Decision.NEVER:
        return Move(row, waiting_again(row, now), reopen)
    return None


def open_gate(row: WorkRow, now: datetime) -> Move:
    """Open a gate: it succeeds, and its works are queued into its group, with its headers.

    The works were encoded when the gate was queued, so no code of the project is called here. A gate whose
    works cannot be read dies: the error must not fail the settlement of the work that it watched.
    """
    try:
        lineage = Lineage(row.group, row.id, released=True, headers=headers_of(row.options))
        new_works = build_new_works(decode_releases(row.input), lineage, now)
    except Exception as error:
        return dying(row, now, Reason.BAD_INPUT, error_text(error))
    group_id = row.group_id or (row.id if new_works else None)
    founds = {} if group_id is None else {"group_id": group_id}
    return Move(row, row.becoming(Status.SUCCESS, ended_at=now, **founds), release, tuple(new_works))


def unblock(row: WorkRow, now: datetime) -> Move:
    """Let a work run whose blockers have succeeded: now, or at its own later time.

    A work that was queued without a delay is due now, whatever the clock of the enqueuing host said.
    """
    run_at = now if row.run_at <= row.queued_at else max(row.run_at, now)
    return Move(row, row.becoming(waiting_status(run_at, now), run_at=run_at, error=row.error), resume)


def resume(unit_of_work: UnitOfWork, move: Move) -> None:
    """Record a work that may start."""
    after = move.row.after(move.transition)
    unit_of_work.effects.awaits_worker(after)
    unit_of_work.effects.happened(Kind.UNBLOCKED, after)


def unmet_text(waiter: str) -> str:
    """Return the error of a waiter that can never be met; it names works without success."""
    missed = [f"{id} is {outcome}" for id, outcome in missed_by(waiter, limit=3)]
    return f"its condition can no longer be met: {', '.join(missed)}"


def dying(row: WorkRow, now: datetime, reason: Reason, error: str) -> Move:
    """Return the move of a waiter that dies."""
    end = row.becoming(Status.DEAD, reason=reason, error=error, ended_at=now)
    return Move(row, end, close_unopened)


def waiting_again(row: WorkRow, now: datetime) -> Transition:
    """Return the transition of an ended waiter that waits again, with a new deadline."""
    return row.becoming(Status.BLOCKED, attempt=0, deadline=deadline_anew(row, now))


def deadline_anew(row: WorkRow, now: datetime) -> datetime | None:
    """Return when a waiter expires that starts to wait now; an explicit deadline stays as it is."""
    options = decode_options(row.options)
    timeout = gate_timeout(row.input) if row.type == GATE_TYPE else None
    if timeout is None and options.explicit_deadline:
        return row.deadline
    return resolve_deadline(now, options.expires if timeout is None else timeout, None)


def release(unit_of_work: UnitOfWork, move: Move) -> None:
    """Record a gate that opened, and queue its works."""
    if move.row.group_id is None and move.new_works:
        unit_of_work.groups.founded(move.row.id)
    unit_of_work.unresolved |= unit_of_work.insert(move.new_works, released=True)
    after = move.row.after(move.transition)
    unit_of_work.ended(after, move.transition.status)
    unit_of_work.effects.happened(Kind.SUCCEEDED, after)


def close_unopened(unit_of_work: UnitOfWork, move: Move) -> None:
    """Record a waiter that died: the works that it would have released count as cancelled."""
    after = move.row.after(move.transition)
    unit_of_work.ended(after, move.transition.status)
    unit_of_work.outcomes.update(dict.fromkeys(unreleased_ids(move.row), Status.CANCELLED))
    kind = Kind.EXPIRED if after.reason == Reason.EXPIRED else Kind.FAILED
    extra = {} if kind is Kind.EXPIRED else {"error": after.error, "will_retry": False}
    unit_of_work.effects.happened(kind, after, extra=extra)


def reopen(unit_of_work: UnitOfWork, move: Move) -> None:
    """Record a waiter that waits again: the works that it may release no longer count as cancelled."""
    unit_of_work.reopened(move.row.after(move.transition), was_dead=move.row.status == Status.DEAD)
    unit_of_work.outcomes.update(dict.fromkeys(unreleased_ids(move.row)))
    unit_of_work.undecided.add(move.row.id)


def unreleased_ids(*works: WorkRow) -> Iterable[str]:
    """Return the ids of the works that gates have not released, nested gates included.

    Works that exist are left out: they were queued in another way.
    """
    releases = [id for row in works if row.type == GATE_TYPE for id in stored_release_ids(row.input)]
    queued = statuses_of(releases)
    return [id for id in releases if id not in queued]


class Recheck(NamedTuple):
    """The waiters that a recheck has locked; ``stranded`` are those that missed an end and had no flag."""

    locked: set[str]
    stranded: list[str]


class Unresolved:
    """Open edges by waiter, of waiters whose recheck had to skip locked works.

    These are the edges to the locked works. The recheck has decided all other edges of the waiter, and a
    settlement that begins later finds the edges to its works. So a gate over very many works is read once,
    and not at every recheck, while one work is locked for long. Ids of edges are never used twice, so a new
    waiter under an old id is not taken for the old one.
    """

    def __init__(self) -> None:
        self._edges: dict[str, list[int]] = {}

    def edges_of(self, waiters: Sequence[str]) -> list[EdgeRow]:
        """Return the edges to recheck, and forget the open edges of these waiters."""
        remembered = [id for waiter in waiters for id in self._edges.pop(waiter, ())]
        known = edges_by_id(remembered)
        partly = {edge.waiter_id for edge in known}
        edges = [edge for edge in known if not edge.outcome]
        return edges + open_edges([waiter for waiter in waiters if waiter not in partly])

    def remember(self, edges: Sequence[EdgeRow], waiters: Collection[str]) -> None:
        """Remember these edges, of waiters all of whose others were dealt with."""
        found: dict[str, list[int]] = defaultdict(list)
        for edge in edges:
            if edge.waiter_id in waiters:
                found[edge.waiter_id].append(edge.id)
        if len(self._edges) + len(found) > MOST_WAITERS:
            self._edges.clear()
        self._edges.update((waiter, ids) for waiter, ids in found.items() if len(ids) <= MOST_EDGES)


unresolved = Unresolved()


def recheck(waiters: Sequence[str]) -> None:
    """Write the outcomes that waiters may have missed before their edges were visible, and decide them.

    This runs in the thread that has queued them. It does not wait for locks on watched works, and hardly for
    those on waiters and on groups behind them: after a moment the rest, with its flags, is left to a worker.
    """
    for page in chunked(waiters, PAGE):
        if recheck_page(page) is None:
            return


def recheck_watchers(ids: Sequence[str]) -> None:
    """Recheck the waiters with open edges to these works, which existed before the works did.

    They have no flag; those that cannot be rechecked now are given one.
    """
    for page in chunked(open_watchers(ids), PAGE):
        done = recheck_page(page)
        left = set(page) - (done.locked if done else set())
        if left:
            briefly(partial(flag_for_recheck, sorted(left)))


def recheck_page(waiters: Sequence[str]) -> Recheck | None:
    """Recheck waiters in one transaction; None if that would have to wait for locks."""
    edges = unresolved.edges_of(waiters)
    works = settled_statuses({edge.watched_id for edge in edges if not edge.chain})
    chains = settled_chains({edge.watched_id for edge in edges if edge.chain})
    skipped = [edge for edge in edges if edge.watched_id in (chains if edge.chain else works).locked]
    ended = Outcomes(works.ended, chains.ended)
    done = briefly(partial(record_ends, waiters, ended, {edge.waiter_id for edge in skipped}))
    if done is not None:
        unresolved.remember(skipped, done.locked)
    return done


def record_ends(waiters: Sequence[str], ended: Outcomes, incomplete: Collection[str]) -> Recheck:
    """Write outcomes to waiters, and decide the waiters, under their locks; locked waiters are passed over.

    One statement locks all of these waiters, in id order, and no other waiters of the same works: settlements
    and rechecks of their own resolve those. What had ended without success may have been retried since it was
    read; so it is read anew under the locks, for which a retry must wait from here on.
    """
    unit_of_work = UnitOfWork(clock.now())
    locked = lock_waiters(waiters, skip_locked=True)
    outcomes = Outcomes(still_ended(ended.works, statuses_of), still_ended(ended.chains, ends_of_blockers))
    resolved = record_outcomes(locked, outcomes)
    clear_recheck(id for id, waiter in locked.items() if waiter.recheck and id not in incomplete)
    decide_waiters(unit_of_work, resolved)
    flush(unit_of_work)
    stranded = [id for id, waiter in locked.items() if not waiter.recheck and resolved[id] != waiter]
    return Recheck(set(locked), stranded)


def still_ended(
    ended: Mapping[str, Status | None], read: Callable[[Iterable[str]], dict[str, Status]]
) -> dict[str, Status]:
    """Return the outcomes of ended works; outcomes without success are read again."""
    succeeded = {id: status for id, status in ended.items() if status is Status.SUCCESS}
    missed = read(id for id in ended if id not in succeeded)
    return {**succeeded, **{id: status for id, status in missed.items() if is_terminal(status)}}


class Leftovers:
    """Rechecks flagged waiters page by page, each behind the last: locked ones do not starve others."""

    def __init__(self) -> None:
        self._last = ""

    def recheck(self, limit: int = 100) -> int:
        """Recheck the next page of waiters that still have their flag; return how many waiters it has."""
        waiters = waiters_to_recheck(limit, self._last)
        self._last = waiters[-1] if waiters else ""
        isolated(recheck_page, waiters, "rechecked")
        return len(waiters)


recheck_leftovers = Leftovers().recheck
