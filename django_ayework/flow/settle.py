"""Settling: the outcomes of attempts, and all that follows from them, in one transaction.

Rows are locked in one order: the works whose attempts have ended, then waiters wave by wave, then groups.
Each statement locks in id order. Transitions come before everything else. They are the fence: only for works
that moved anything else is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, cast

from django.db import InterfaceError, OperationalError

from django_ayework.define.handles import Kind, WorkEvent
from django_ayework.define.types import registry
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.events import (
    Effects,
    EventBatch,
    group_done_has_receivers,
    has_receivers,
    work_event,
)
from django_ayework.flow.gates import flush
from django_ayework.flow.identity import Pair, unit_of
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.models import Attempt, Group, Waiter, Work
from django_ayework.rules.conditions import Contribution
from django_ayework.rules.retry import AttemptDecision
from django_ayework.rules.states import Outcome, Reason, Status, Transition
from django_ayework.store import transitions
from django_ayework.store.attempts import recorded
from django_ayework.store.database import clock, in_own_transaction
from django_ayework.store.dependencies import edges_to
from django_ayework.store.rows import End, WorkRow, ends_of, locked_by_others
from django_ayework.store.sessions import bound_transaction


class Success(NamedTuple):
    """The outcome of a successful attempt; texts are encoded."""

    result: str | None = None
    contributions: tuple[Contribution, ...] = ()
    new_works: tuple[NewWork, ...] = ()  # a continuation comes last
    outputs: tuple[NewWork, ...] = ()  # works of the type that the work's type names with then=
    needs_group: bool = False  # the group's value differs from the work's own result


class Settlement(NamedTuple):
    """The end of one attempt: the row as it was claimed, and the outcome."""

    row: WorkRow
    ending: Success | AttemptDecision
    traceback: str = ""
    exception: str = ""  # the class of the exception, as module and name
    seconds: float | None = None  # how long the handler ran; None if it did not

    @property
    def will_retry(self) -> bool:
        """Whether another attempt follows."""
        return isinstance(self.ending, AttemptDecision) and self.ending.will_retry

    @property
    def key(self) -> tuple[str, int]:
        """The work and its delivery."""
        return self.row.id, self.row.delivery


@dataclass(slots=True)
class Report:
    """The result of settling: the ids that moved, and those that other transactions had moved before."""

    moved: set[str]
    refused: list[str]
    effects: Effects = field(compare=False, repr=False)  # carried out after the commit


#: Settlements whose commit got no answer, and that the database may have carried out, by work and delivery;
#: each with the effects of its transaction. Those are carried out by this process or by none.
_unanswered: dict[tuple[str, int], tuple[Settlement, Effects]] = {}


def settle(settlements: Sequence[Settlement]) -> Report:
    """Write the outcomes of attempts that this process holds.

    An outcome whose work was taken by another worker changes nothing; its id is among ``refused``.

    A settlement that is refused because an earlier try has carried it out, whose commit got no answer, counts
    as moved.
    """
    tried: list[Report] = []

    def attempt() -> Report:
        tried.clear()
        bound_transaction()
        tried.append(settle_here(settlements))
        return tried[0]

    try:
        report = in_own_transaction(attempt)
    except (OperationalError, InterfaceError):
        for report in tried:  # written, and perhaps committed
            winners = [each for each in latest_of(settlements).values() if each.row.id in report.moved]
            _unanswered.update((each.key, (each, report.effects)) for each in winners)
        raise
    if _unanswered:
        settled = confirm([each for each in settlements if each.row.id in report.refused])
        report.moved |= settled
        report.refused = [id for id in report.refused if id not in settled]
        for each in settlements:
            _unanswered.pop(each.key, None)
    return report


def settle_here(settlements: Sequence[Settlement]) -> Report:
    """Settle within the transaction at hand."""
    unit_of_work = UnitOfWork(clock.now())
    latest = latest_of(settlements)
    moved = move(latest.values(), unit_of_work.now)
    record_all(unit_of_work, [settlement for id, settlement in latest.items() if id in moved])
    flush(unit_of_work)
    refused = [s.row.id for s in settlements if s.row.id not in moved or s is not latest[s.row.id]]
    return Report(moved, refused, unit_of_work.effects)


def latest_of(settlements: Sequence[Settlement]) -> dict[str, Settlement]:
    """Return one settlement per work: a worker that lost a work and claimed it again may bring two at once.

    The one of the later delivery counts; the other would be refused if it came alone.
    """
    latest: dict[str, Settlement] = {}
    for settlement in settlements:
        known = latest.setdefault(settlement.row.id, settlement)
        if settlement.row.delivery > known.row.delivery:
            latest[settlement.row.id] = settlement
    return latest


def move(settlements: Iterable[Settlement], now: datetime) -> set[str]:
    """Write the transitions of works whose attempts have ended; return the ids that moved.

    Successes, which most are, differ in a few columns only and are written by column.
    """
    successes: dict[str | None, list[transitions.Succeeded]] = defaultdict(list)
    others: list[Transition] = []
    for row, ending, *_ in settlements:
        if isinstance(ending, Success):
            founded = founded_by(row, ending)
            successes[row.worker].append(transitions.Succeeded(row.id, row.delivery, ending.result, founded))
        else:
            others.append(transition_by(row, ending, now))
    moved = transitions.apply(others)
    for worker, works in successes.items():
        moved |= transitions.succeed(works, worker, now)
    return moved


def success_of(row: WorkRow, success: Success, now: datetime) -> Transition:
    """Return the end of a work that succeeded."""
    return row.becoming(
        Status.SUCCESS,
        result=success.result,
        ended_at=now,
        completed_by=row.worker,
        **founded_by(row, success),
    )


def founded_by(row: WorkRow, success: Success) -> dict[str, str]:
    """Return the ids of a group and a chain that this work founds: so far it was alone in them."""
    founded = {}
    if row.group_id is None and (success.new_works or success.outputs or success.needs_group):
        founded["group_id"] = row.id
    if row.chain_id is None and continues(success):
        founded["chain_id"] = row.id
    return founded


def transition_by(row: WorkRow, decision: AttemptDecision, now: datetime) -> Transition:
    """Return the transition of a running work by this decision."""
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
    """Record what follows from settlements whose works have moved.

    Continuing chains come first: a work that is queued here may wait for a chain whose step has just ended.
    """
    unit_of_work.continuing.update(settlement.row.chain for settlement in won if continues(settlement.ending))
    keeping = {type for type in {settlement.row.type for settlement in won} if keeps_attempts(type)}
    tells_groups = group_done_has_receivers()  # a work without a group counts as a group of one
    plain: list[Settlement] = []
    for settlement in won:
        row, ending = settlement.row, settlement.ending
        if row.type in keeping and isinstance(ending, Success):
            unit_of_work.attempts.append(attempt_row(row, Outcome.SUCCESS, unit_of_work.now))
        if not isinstance(ending, Success):
            record_decision(unit_of_work, settlement, ending)
        elif tells_groups or ending.new_works or ending.outputs or ending.needs_group:
            record_success(unit_of_work, row, ending)
        else:
            plain.append(settlement)
            if row.group_id is not None:
                unit_of_work.groups.contributed(row.group_id, row.id, ending.contributions)
    if plain:  # nothing follows from them but the ends of their groups and chains
        unit_of_work.all_succeeded([settlement.row for settlement in plain])
    successes = [settlement for settlement in won if isinstance(settlement.ending, Success)]
    if any(has_receivers(Kind.SUCCEEDED, type) for type in {settlement.row.type for settlement in successes}):
        unit_of_work.effects.batches.append(Successes(Kind.SUCCEEDED, unit_of_work.now, successes))


class Successes(EventBatch[Settlement]):
    """Works that succeeded; nothing is computed of one that no receiver asks about."""

    __slots__ = ()

    def event_of(self, item: Settlement) -> WorkEvent:
        """Return the success of a work as an event."""
        after = item.row.after(success_of(item.row, cast(Success, item.ending), self.at))
        return work_event(self.kind, after, self.at)


def continues(ending: Success | AttemptDecision) -> bool:
    """Tell whether the work's chain goes on."""
    if not isinstance(ending, Success) or not ending.new_works:
        return False
    return ending.new_works[-1].row.chain_id is not None  # a continuation comes last


def record_success(unit_of_work: UnitOfWork, row: WorkRow, success: Success) -> None:
    """Record what follows from a success; ``row`` is as the worker has read it.

    Children are recorded before the end of their parent, so that the group does not settle in between.
    """
    after = row.after(success_of(row, success, unit_of_work.now))
    if after.group_id is not None:
        if row.group_id is None:
            unit_of_work.groups.founded(after.group_id)
        unit_of_work.groups.contributed(after.group_id, row.id, success.contributions)
    if success.new_works:
        require_new_steps(success, unit_of_work.insert(success.new_works))
    unit_of_work.outputs += success.outputs
    unit_of_work.ended(after, Status.SUCCESS, continues(success))


def require_new_steps(success: Success, taken: set[str]) -> None:
    """Raise when the continuation was queued before: the chain would end here unnoticed."""
    for new_work in success.new_works:
        if new_work.row.chain_id is not None and new_work.row.id in taken:
            raise InvalidInstruction(
                f"expected ctx.continue_with(…) to have a new work, but {new_work.row.id} was queued before; "
                "build another by calling its type.",
                id=new_work.row.id,
                code="continuation-queued-before",
            )


def record_decision(unit_of_work: UnitOfWork, settlement: Settlement, decision: AttemptDecision) -> None:
    """Record an attempt that did not succeed; a dead work has ended, any other waits for a worker."""
    after = settlement.row.after(transition_by(settlement.row, decision, unit_of_work.now))
    if is_recorded(decision):
        attempt = attempt_row(settlement.row, decision.outcome, unit_of_work.now, decision.error)
        attempt.traceback, attempt.exception = settlement.traceback, settlement.exception
        unit_of_work.attempts.append(attempt)
    if decision.outcome is Outcome.DEFERRED:
        moment = {"run_at": decision.run_at}
        unit_of_work.effects.happened(Kind.DEFERRED, after, settlement.seconds, extra=moment)
    elif decision.reason is Reason.EXPIRED:
        unit_of_work.effects.happened(Kind.EXPIRED, after)
    elif decision.counts or decision.status is Status.DEAD:
        failure = {"error": decision.error, "will_retry": decision.will_retry}
        unit_of_work.effects.happened(Kind.FAILED, after, settlement.seconds, decision.outcome, failure)
    if decision.status is Status.DEAD:
        unit_of_work.ended(after, Status.DEAD)
    else:
        unit_of_work.effects.awaits_worker(after)


def is_recorded(decision: AttemptDecision) -> bool:
    """Tell whether the attempt gets a row: it counts, or was deferred."""
    return decision.counts or decision.outcome is Outcome.DEFERRED


def keeps_attempts(type: str) -> bool:
    """Tell whether a type wants the attempts that succeed to be kept, too."""
    work_type = registry.find(type)
    return work_type is not None and work_type.settings.keep_attempts


def attempt_row(row: WorkRow, outcome: Outcome, now: datetime, error: str = "") -> Attempt:
    """Return the record of the attempt that a running work is at, which ends now."""
    return Attempt(
        work_id=row.id,
        number=row.attempt,
        worker=row.worker or "",
        outcome=str(outcome),
        error=error,
        started_at=row.started_at,
        ended_at=now,
    )


def confirm(settlements: Sequence[Settlement]) -> set[str]:
    """Return which of these were settled by a try whose commit got no answer, and carry out its effects.

    Their refusal has locked their rows, so the transaction of the earlier try is over.
    """
    tries = [_unanswered[each.key] for each in settlements if each.key in _unanswered]
    settled = settled_already([settlement for settlement, _ in tries])
    for effects in {id(effects): effects for each, effects in tries if each.row.id in settled}.values():
        effects.carry_out_once()
    return settled


def was_settled(settlement: Settlement) -> bool | None:
    """Tell whether a transaction whose commit got no answer has settled this; None while it may be under way.

    The lock is asked about first: a row that is not locked then is as the transaction has left it.
    """
    is_locked = bool(locked_by_others(Work, [settlement.row.id]))
    if settled_already([settlement]):
        return True
    return None if is_locked else False


def settled_already(settlements: Sequence[Settlement]) -> set[str]:
    """Return which of these the database has, from this delivery to this worker.

    An attempt that did not succeed is found by its row: its work may have moved on since.
    """
    ids = [each.row.id for each in settlements]
    ends, attempts = ends_of(ids), recorded(ids)
    return {each.row.id for each in settlements if is_there(each, ends.get(each.row.id), attempts)}


def is_there(settlement: Settlement, end: End | None, attempts: Collection[tuple[Any, ...]]) -> bool:
    """Tell whether a work ended by this settlement, or its attempt is recorded so."""
    row, ending = settlement.row, settlement.ending
    if isinstance(ending, AttemptDecision) and is_recorded(ending):
        return (row.id, row.worker, str(ending.outcome), row.started_at) in attempts
    status = Status.SUCCESS if isinstance(ending, Success) else ending.status
    return end == (status, row.delivery, row.worker)


@dataclass(slots=True)
class Locked:
    """Works and groups whose rows are locked by others, works whose waiters' rows are, and units.

    The lock of a unit may be a row that is not committed yet, which nobody else can see: so units are locked
    if an outcome has waited for them in vain.
    """

    works: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    units: set[Pair] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.works or self.groups or self.units)

    def keeps(self, settlement: Settlement) -> bool:
        """Tell whether this settlement would have to wait."""
        is_kept = settlement.row.id in self.works or settlement.row.group_id in self.groups
        return is_kept or not self.units.isdisjoint(units_of_outputs(settlement))


def units_of_outputs(settlement: Settlement) -> set[Pair]:
    """Return the units that a settlement locks, as its outputs have them."""
    outputs = settlement.ending.outputs if isinstance(settlement.ending, Success) else ()
    return {unit_of(output.row) for output in outputs if output.row.unit is not None}


def locked_for(settlements: Sequence[Settlement]) -> Locked:
    """Return the rows that keep these settlements from being written now.

    Each kind of row is asked about in the order in which a settlement locks them. Locks are skipped and
    released at once, so that nothing waits for this.
    """
    rows = [settlement.row for settlement in settlements]
    works = locked_by_others(Work, {row.id for row in rows})
    edges = edges_to({*(row.id for row in rows), *(row.chain for row in rows)})
    waiters = locked_by_others(Waiter, {edge.waiter_id for edge in edges})
    watched = {edge.watched_id for edge in edges if edge.waiter_id in waiters}
    works |= {row.id for row in rows if row.id in watched or row.chain in watched}
    return Locked(works, locked_by_others(Group, {row.group_id for row in rows if row.group_id}))
