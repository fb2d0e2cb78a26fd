"""Settling: the outcomes of attempts, and all that follows from them, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from django_ayework.define.events import Kind
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.births import Birth
from django_ayework.flow.closing import close
from django_ayework.flow.ledger import Ledger
from django_ayework.rules.folding import Contribution
from django_ayework.rules.states import Outcome, Reason, Status
from django_ayework.rules.transitions import Transition
from django_ayework.rules.verdicts import Verdict
from django_ayework.store import transitions
from django_ayework.store.attempts import AttemptRow
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import WorkRow


@dataclass(frozen=True, slots=True)
class Success:
    """What a successful attempt brings; texts are encoded."""

    result: str | None = None
    contributions: tuple[Contribution, ...] = ()
    births: tuple[Birth, ...] = ()
    outputs: tuple[Birth, ...] = ()  # works of the type that its own names with then=
    needs_group: bool = False  # the group's value differs from the work's own result


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of one attempt: the row as it was claimed, and how it went."""

    row: WorkRow
    ending: Success | Verdict
    traceback: str = ""


@dataclass(slots=True)
class Report:
    """What a settlement did: the ids it moved, and those that others had moved."""

    moved: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)


def settle(settlements: Sequence[Settlement]) -> Report:
    """Write the outcomes of attempts that this process holds; late ones move nothing and are reported."""
    return in_own_transaction(partial(settle_here, settlements))


def settle_here(settlements: Sequence[Settlement]) -> Report:
    """Settle within the transaction at hand.

    Transitions come before everything else: they are the fence, and only winners get follow-ups.
    """
    ledger = Ledger(clock.now())
    latest = latest_of(settlements)
    planned = [(s, transition_of(s, ledger.now)) for s in latest.values()]
    moved = transitions.apply([transition for _, transition in planned])
    book_all(ledger, [(s, transition) for s, transition in planned if transition.id in moved])
    close(ledger)
    refused = [s.row.id for s in settlements if s.row.id not in moved or s is not latest[s.row.id]]
    return Report(moved, refused)


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


def transition_of(settlement: Settlement, now: datetime) -> Transition:
    """Return what an attempt's ending makes of the work."""
    if isinstance(settlement.ending, Success):
        return success_of(settlement.row, settlement.ending, now)
    return transition_by(settlement.row, settlement.ending, now)


def success_of(row: WorkRow, success: Success, now: datetime) -> Transition:
    """Return the end of a work that succeeded; one that queues others founds its group."""
    founds = bool(success.births or success.outputs) or success.needs_group
    return row.becoming(
        Status.SUCCESS,
        group_id=row.group_id or (row.id if founds else None),
        result=success.result,
        ended_at=now,
        completed_by=row.worker,
    )


def transition_by(row: WorkRow, verdict: Verdict, now: datetime) -> Transition:
    """Return what a verdict makes of a running work."""
    dead = verdict.status is Status.DEAD
    return row.becoming(
        verdict.status,
        attempt=row.attempt if verdict.counts else row.attempt - 1,
        run_at=verdict.run_at or row.run_at,
        reason=verdict.reason or "",
        error=row.error if verdict.outcome is Outcome.DEFERRED else verdict.error,
        ended_at=now if dead else None,
        completed_by=row.worker if dead else None,
    )


def book_all(ledger: Ledger, won: Sequence[tuple[Settlement, Transition]]) -> None:
    """Note what follows from transitions that were won.

    Which chains go on comes first: a work that is queued here may wait for a chain whose step has just ended.
    """
    ledger.continuing.update(settlement.row.chain for settlement, _ in won if continues(settlement.ending))
    for settlement, transition in won:
        book(ledger, settlement, transition)


def continues(ending: Success | Verdict) -> bool:
    """Tell whether the work's chain goes on."""
    return isinstance(ending, Success) and any(birth.row.chain_id is not None for birth in ending.births)


def book(ledger: Ledger, settlement: Settlement, transition: Transition) -> None:
    """Note what follows from a transition that was won."""
    after = settlement.row.after(transition)
    if isinstance(settlement.ending, Success):
        book_success(ledger, settlement, settlement.ending, after)
    else:
        book_verdict(ledger, settlement, settlement.ending, after)


def book_success(ledger: Ledger, settlement: Settlement, success: Success, after: WorkRow) -> None:
    """Children are booked before their parent's end, so that the group cannot close in between."""
    if after.group_id is not None:
        if settlement.row.group_id is None:
            ledger.groups.founded(after.group_id)
        ledger.groups.contributed(after.group_id, after.id, success.contributions)
    require_new_steps(success, ledger.bear(success.births))
    ledger.outputs += success.outputs
    ledger.effects.happened(Kind.SUCCEEDED, after)
    ledger.ended(after, continues(success))


def require_new_steps(success: Success, taken: set[str]) -> None:
    """Raise when the continuation was queued before: the chain would end here, and nobody has said so."""
    for birth in success.births:
        if birth.row.chain_id is not None and birth.row.id in taken:
            raise InvalidInstruction(
                f"expected ctx.continue_with(…) to have a new work, but {birth.row.id} was queued before; "
                "build another by calling its type.",
                id=birth.row.id,
            )


def book_verdict(ledger: Ledger, settlement: Settlement, verdict: Verdict, after: WorkRow) -> None:
    """Keep the attempt's story; a dead work has ended, any other comes back."""
    if verdict.counts or verdict.outcome is Outcome.DEFERRED:
        ledger.attempts.append(attempt_row(settlement, verdict, ledger.now))
    if verdict.outcome is Outcome.DEFERRED:
        ledger.effects.happened(Kind.DEFERRED, after, run_at=verdict.run_at)
    elif verdict.reason is Reason.EXPIRED:
        ledger.effects.happened(Kind.EXPIRED, after)
    else:
        ledger.effects.happened(Kind.FAILED, after, error=verdict.error, will_retry=verdict.will_retry)
    if verdict.status is Status.DEAD:
        ledger.ended(after)
    elif verdict.status is Status.PENDING:
        ledger.effects.wakes = True


def attempt_row(settlement: Settlement, verdict: Verdict, now: datetime) -> AttemptRow:
    """Return what is kept of an attempt that did not succeed."""
    row = settlement.row
    return AttemptRow(
        work_id=row.id,
        number=row.attempt,
        worker=row.worker or "",
        outcome=str(verdict.outcome),
        error=verdict.error,
        traceback=settlement.traceback,
        started_at=row.started_at,
        ended_at=now,
    )
