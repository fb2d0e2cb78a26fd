"""A worker that is moved by hand: between any two of its steps others may act."""

from __future__ import annotations

from collections.abc import Sequence

from django_ayework.errors import ChainNotFound, InvalidInstruction
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.outcomes import as_failure
from django_ayework.flow.settle import Settlement, settle
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.rules.durations import later
from django_ayework.rules.states import Status
from django_ayework.store import transitions
from django_ayework.store.database import clock
from django_ayework.store.leases import holders_of
from django_ayework.testing.running import do_duties, run_here
from django_ayework.worker.claimer import deliveries_of
from tests.races.rivals import claim

NAME = "by-hand"
LEASE = 60.0
UNWRITABLE = (ChainNotFound, ContributionFailed, InvalidInstruction)


class Worker:
    """Claims works, runs their handlers, and holds the outcomes until it is told to settle them."""

    def __init__(self) -> None:
        self.held: list[Settlement] = []

    def run_batch(self, limit: int) -> None:
        settle_together(self.outcomes(limit))

    def start(self, limit: int) -> None:
        self.held += self.outcomes(limit)

    def settle_held(self, limit: int) -> None:
        """Settle what was started first: if its lease has lapsed, somebody may be at it again."""
        ready, self.held = self.held[:limit], self.held[limit:]
        settle_together(ready)

    def release_held(self) -> None:
        transitions.release({settlement.row.id: settlement.row.delivery for settlement in self.held}, NAME)
        self.held = []

    def outcomes(self, limit: int) -> list[Settlement]:
        """Run what is due; works that settle in their own transaction have done so."""
        do_duties()
        now = clock.now()
        found = []
        for delivery in deliveries_of(claim(limit, NAME, now, later(now, LEASE))):
            [(_, settlement)] = run_here([delivery], EngineServices())
            if settlement is not None and not delivery.settled:
                found.append(settlement)
        return found


def settle_together(settlements: Sequence[Settlement]) -> None:
    """Settle in one transaction; when one of them cannot be written, each by itself."""
    ours = {settlement.row.id for settlement in settlements if is_ours(settlement)}
    try:
        moved = settle(settlements).moved
    except UNWRITABLE:
        for settlement in settlements:
            settle_alone(settlement)
    else:
        assert moved == ours, f"moved {moved}, held {ours}"


def settle_alone(settlement: Settlement) -> None:
    """Settle an attempt, as a failed one when its outcome cannot be written."""
    try:
        settle([settlement])
    except UNWRITABLE as error:
        settle([as_failure(settlement, error)])


def is_ours(settlement: Settlement) -> bool:
    """Whether the work is still where its attempt began."""
    row = settlement.row
    holder = holders_of([row.id]).get(row.id)
    return holder is not None and (holder.status, holder.delivery) == (Status.RUNNING, row.delivery)
