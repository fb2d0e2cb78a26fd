"""Settling: the outcomes of attempts, and all that follows from them, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import InterfaceError, OperationalError

from django_ayework.define.events import Kind
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.effects import Effects
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.recheck import flush
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.models import Group, Waiter, Work
from django_ayework.rules.conditions import Contribution
from django_ayework.rules.decisions import AttemptDecision
from django_ayework.rules.states import Outcome, Reason, Status, Transition
from django_ayework.store import transitions
from django_ayework.store.attempts import AttemptRow, recorded
from django_ayework.store.clock import clock
from django_ayework.store.database import atomic, in_own_transaction
from django_ayework.store.dependencies import edges_between, watchers_of
from django_ayework.store.locks import locked_by_others
from django_ayework.store.rows import End, WorkRow, ends_of, find_row, lock_free_rows
from django_ayework.store.sessions import bound_transaction
from django_ayework.store.transitions import Won

# --- settle ---
# Settling: the outcomes of attempts, and all that follows from them, in one transaction.


class Success(NamedTuple):
    """What a successful attempt brings; texts are encoded."""

    result: str | None = None
    contributions: tuple[Contribution, ...] = ()
    new_works: tuple[NewWork, ...] = ()  # a continuation comes last
    outputs: tuple[NewWork, ...] = ()  # works of the type that its own names with then=
    needs_group: bool = False  # the group's value differs from the work's own result


class Settlement(NamedTuple):
    """The end of one attempt: the row as it was claimed, and how it went."""

    row: WorkRow
    ending: Success | AttemptDecision
    traceback: str = ""


@dataclass(slots=True)
class Report:
    """What a settlement did: the ids it moved, and those that others had moved."""

    moved: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Unanswered:
    """A settlement whose commit got no answer: the database may have carried it out."""

    settlement: Settlement
    effects: Effects  # of its whole transaction


#: By work and delivery. What a transaction brings about is sent by this process or by none.
_unanswered: dict[tuple[str, int], Unanswered] = {}


def settle(settlements: Sequence[Settlement]) -> Report:
    """Write the outcomes of attempts that this process holds; late ones move nothing and are reported.

    One that is refused as an earlier try had settled it, whose commit got no answer, counts as moved.
    """
    tried: list[tuple[Report, Effects]] = []

    def attempt() -> Report:
        tried.clear()
        bound_transaction()
        tried.append(settled_within(settlements))
        return tried[-1][0]

    try:
        report = in_own_transaction(attempt)
    except (OperationalError, InterfaceError):
        for report, effects in tried:  # written, and perhaps committed
            winners = [each for each in latest_of(settlements).values() if each.row.id in report.moved]
            _unanswered.update((key_of(each), Unanswered(each, effects)) for each in winners)
        raise
    if _unanswered:
        settled = confirm([each for each in settlements if each.row.id in report.refused])
        report.moved |= settled
        report.refused = [id for id in report.refused if id not in settled]
        for each in settlements:
            _unanswered.pop(key_of(each), None)
    return report


def settle_here(settlements: Sequence[Settlement]) -> Report:
    """Settle within the transaction at hand."""
    return settled_within(settlements)[0]


def settled_within(settlements: Sequence[Settlement]) -> tuple[Report, Effects]:
    """Settle within the transaction at hand; return also what is carried out after its commit.

    Transitions come before everything else: they are the fence, and only winners get follow-ups.
    """
    unit_of_work = UnitOfWork(clock.now())
    latest = latest_of(settlements)
    moved = move(latest.values(), unit_of_work.now)
    record_all(unit_of_work, [settlement for id, settlement in latest.items() if id in moved])
    flush(unit_of_work)
    refused = [s.row.id for s in settlements if s.row.id not in moved or s is not latest[s.row.id]]
    return Report(moved, refused), unit_of_work.effects


def confirm(settlements: Sequence[Settlement]) -> set[str]:
    """Return which of these had been settled by a try whose commit got no answer, and carry out its effects.

    They were refused just now: so no such transaction is under way any more, as it would hold their rows.
    """
    tries = [lost for each in settlements if (lost := _unanswered.get(key_of(each))) is not None]
    settled = settled_already([lost.settlement for lost in tries])
    lost_effects = {id(lost.effects): lost.effects for lost in tries if lost.settlement.row.id in settled}
    for effects in lost_effects.values():
        effects.carry_out_once()
    return settled


def was_settled(settlement: Settlement) -> bool | None:
    """Tell whether a transaction whose commit got no answer has settled this; None while it may be under way.

    The lock comes first: what nobody has locked then is as the transaction has left it.
    """
    id = settlement.row.id
    with atomic():
        is_free = id in lock_free_rows([id])
    if settled_already([settlement]):
        return True
    return False if is_free or find_row(id) is None else None


def settled_already(settlements: Sequence[Settlement]) -> set[str]:
    """Return which of these the database has, from this very delivery to this very worker.

    An attempt that did not succeed is found by its record: its work may have moved on since.
    """
    if not settlements:
        return set()
    ids = [each.row.id for each in settlements]
    ends, attempts = ends_of(ids), recorded(ids)
    return {each.row.id for each in settlements if is_there(each, ends.get(each.row.id), attempts)}


def is_there(settlement: Settlement, end: End | None, attempts: Collection[tuple[Any, ...]]) -> bool:
    """Tell whether a work ended by this settlement, or its attempt is recorded as this has it."""
    row, ending = settlement.row, settlement.ending
    if isinstance(ending, AttemptDecision) and is_recorded(ending):
        return (row.id, row.worker, str(ending.outcome), row.started_at) in attempts
    status = Status.SUCCESS if isinstance(ending, Success) else ending.status
    return end == (status, row.delivery, row.worker)


def key_of(settlement: Settlement) -> tuple[str, int]:
    """Return what a settlement is known by."""
    return settlement.row.id, settlement.row.delivery


def latest_of(settlements: Sequence[Settlement]) -> dict[str, Settlement]:
    """Return one settlement per work: a worker that lost a work and got it again may bring two at once.

    That of the later delivery counts; the other would be refused if it came alone.
    """
    latest: dict[str, Settlement] = {}
    for settlement in settlements:
        known = latest.setdefault(settlement.row.id, settlement)
        if settlement.row.delivery > known.row.delivery:
            latest[settlement.row.id] = settlement
    return latest


def move(settlements: Iterable[Settlement], now: datetime) -> set[str]:
    """Carry out what attempts made of their works; return the ids that moved.

    Plain successes, which most are, need no transition each: they differ in their results only.
    """
    plain: dict[str | None, list[Won]] = defaultdict(list)
    others: list[Transition] = []
    for settlement in settlements:
        row, ending = settlement.row, settlement.ending
        if isinstance(ending, Success) and not founded_by(row, ending):
            plain[row.worker].append(Won(row.id, row.delivery, ending.result))
        else:
            others.append(transition_of(settlement, now))
    moved = transitions.apply(others)
    for worker, works in plain.items():
        moved |= transitions.succeed(works, worker, now)
    return moved


def transition_of(settlement: Settlement, now: datetime) -> Transition:
    """Return what an attempt's ending makes of the work."""
    if isinstance(settlement.ending, Success):
        return success_of(settlement.row, settlement.ending, now)
    return transition_by(settlement.row, settlement.ending, now)


def success_of(row: WorkRow, success: Success, now: datetime) -> Transition:
    """Return the end of a work that succeeded."""
    return row.becoming(
        Status.SUCCESS,
        result=success.result,
        ended_at=now,
        completed_by=row.worker,
        **founded_by(row, success),
    )


def founded_by(row: WorkRow, success: Success) -> dict[str, Any]:
    """Return the columns to write of a group or chain that was this work alone, and goes on with others."""
    group_id = group_after(row, success)
    founded = {} if group_id == row.group_id else {"group_id": group_id}
    if success.new_works and row.chain_id is None and continues(success):
        founded["chain_id"] = row.id
    return founded


def group_after(row: WorkRow, success: Success) -> str | None:
    """Return the group of a work that succeeded; one that was alone and queues others founds its own."""
    if row.group_id is None and (success.new_works or success.outputs or success.needs_group):
        return row.id
    return row.group_id


def transition_by(row: WorkRow, decision: AttemptDecision, now: datetime) -> Transition:
    """Return what a verdict makes of a running work."""
    dead = decision.status is Status.DEAD
    renewed: dict[str, Any] = {} if decision.run_at is None else {"run_at": decision.run_at}
    if not decision.counts:
        renewed["attempt"] = row.attempt - 1
    return row.becoming(
        decision.status,
        reason=decision.reason or "",
        error=row.error if decision.outcome is Outcome.DEFERRED else decision.error,
        ended_at=now if dead else None,
        completed_by=row.worker if dead else None,
        **renewed,
    )


def record_all(unit_of_work: UnitOfWork, won: Sequence[Settlement]) -> None:
    """Note what follows from settlements that were won.

    Which chains go on comes first: a work that is queued here may wait for a chain whose step has just ended.
    """
    unit_of_work.continuing.update(settlement.row.chain for settlement in won if continues(settlement.ending))
    types = {settlement.row.type for settlement in won}
    heard = {type for type in types if unit_of_work.effects.have_receivers(Kind.SUCCEEDED, type)}
    quiet: list[WorkRow] = []
    for settlement in won:
        row, ending = settlement.row, settlement.ending
        if not isinstance(ending, Success):
            record_decision(unit_of_work, settlement, ending)
        elif row.type in heard or brings_more(row, ending):
            record_success(unit_of_work, row, ending)
        else:
            quiet.append(row)
            if row.group_id is not None:
                unit_of_work.groups.contributed(row.group_id, row.id, ending.contributions)
    unit_of_work.all_succeeded(quiet)


def brings_more(row: WorkRow, success: Success) -> bool:
    """Tell whether a success brings more than the end of its work, and a word on the group it is in."""
    return bool(success.new_works or success.outputs) or group_after(row, success) != row.group_id


def continues(ending: Success | AttemptDecision) -> bool:
    """Tell whether the work's chain goes on."""
    if not isinstance(ending, Success) or not ending.new_works:
        return False
    return ending.new_works[-1].row.chain_id is not None  # a continuation comes last


def record_success(unit_of_work: UnitOfWork, row: WorkRow, success: Success) -> None:
    """Note what follows from a success; ``row`` is as the worker has read it.

    Children are booked before their parent's end, so that the group cannot close in between.
    """
    group_id = group_after(row, success)
    if group_id is not None:
        if row.group_id is None:
            unit_of_work.groups.founded(group_id)
        unit_of_work.groups.contributed(group_id, row.id, success.contributions)
    if success.new_works:
        require_new_steps(success, unit_of_work.insert(success.new_works))
    unit_of_work.outputs += success.outputs
    if unit_of_work.effects.have_receivers(Kind.SUCCEEDED, row.type):
        row = row.after(success_of(row, success, unit_of_work.now))
        unit_of_work.effects.happened(Kind.SUCCEEDED, row)
    elif group_id != row.group_id:
        row = row._replace(group_id=group_id)
    unit_of_work.ended(row, Status.SUCCESS, continues(success))


def require_new_steps(success: Success, taken: set[str]) -> None:
    """Raise when the continuation was queued before: the chain would end here, and nobody has said so."""
    for new_work in success.new_works:
        if new_work.row.chain_id is not None and new_work.row.id in taken:
            raise InvalidInstruction(
                f"expected ctx.continue_with(…) to have a new work, but {new_work.row.id} was queued before; "
                "build another by calling its type.",
                id=new_work.row.id,
            )


def record_decision(unit_of_work: UnitOfWork, settlement: Settlement, decision: AttemptDecision) -> None:
    """Keep the attempt's story; a dead work has ended, any other comes back."""
    after = settlement.row.after(transition_by(settlement.row, decision, unit_of_work.now))
    if is_recorded(decision):
        unit_of_work.attempts.append(attempt_row(settlement, decision, unit_of_work.now))
    if decision.outcome is Outcome.DEFERRED:
        unit_of_work.effects.happened(Kind.DEFERRED, after, run_at=decision.run_at)
    elif decision.reason is Reason.EXPIRED:
        unit_of_work.effects.happened(Kind.EXPIRED, after)
    else:
        unit_of_work.effects.happened(
            Kind.FAILED, after, error=decision.error, will_retry=decision.will_retry
        )
    if decision.status is Status.DEAD:
        unit_of_work.ended(after, Status.DEAD)
    else:
        unit_of_work.effects.awaits_worker(after)


def is_recorded(decision: AttemptDecision) -> bool:
    """Tell whether the attempt is kept: it is over, or was deferred."""
    return decision.counts or decision.outcome is Outcome.DEFERRED


def attempt_row(settlement: Settlement, decision: AttemptDecision, now: datetime) -> AttemptRow:
    """Return what is kept of an attempt that did not succeed."""
    row = settlement.row
    return AttemptRow(
        work_id=row.id,
        number=row.attempt,
        worker=row.worker or "",
        outcome=str(decision.outcome),
        error=decision.error,
        traceback=settlement.traceback,
        started_at=row.started_at,
        ended_at=now,
    )


# --- contention ---
# Settlements that meet rows which somebody else has locked: they wait, and nothing else does.


@dataclass(slots=True)
class Locked:
    """Works and groups whose rows are locked by others, and works whose watchers' rows are."""

    works: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.works or self.groups)

    def keeps(self, settlement: Settlement) -> bool:
        """Tell whether this settlement would have to wait."""
        return settlement.row.id in self.works or settlement.row.group_id in self.groups


def locked_for(settlements: Sequence[Settlement]) -> Locked:
    """Return what keeps these settlements from being written now.

    Each kind of row is asked about in the order in which a settlement locks them. Locks are skipped and let
    go at once, so that nobody waits for this.
    """
    ids = {settlement.row.id for settlement in settlements}
    locked = locked_by_others(Work, ids)
    groups = {settlement.row.group_id for settlement in settlements if settlement.row.group_id}
    watched = {*ids, *(settlement.row.chain for settlement in settlements)}
    waiters = locked_by_others(Waiter, watchers_of(watched))
    if waiters:
        theirs = {edge.watched_id for edge in edges_between(waiters, watched)}
        locked |= {
            settlement.row.id
            for settlement in settlements
            if not theirs.isdisjoint((settlement.row.id, settlement.row.chain))
        }
    return Locked(locked, locked_by_others(Group, groups))
