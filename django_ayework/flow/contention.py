"""Settlements that meet rows which somebody else has locked: they wait, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django_ayework.flow.settle import Settlement
from django_ayework.models import Group, Waiter, Work
from django_ayework.store.edges import edges_between, watchers_of
from django_ayework.store.locks import locked_elsewhere


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
    locked = locked_elsewhere(Work, ids)
    groups = {settlement.row.group_id for settlement in settlements if settlement.row.group_id}
    watched = {*ids, *(settlement.row.chain for settlement in settlements)}
    waiters = locked_elsewhere(Waiter, watchers_of(watched))
    if waiters:
        theirs = {edge.watched_id for edge in edges_between(waiters, watched)}
        locked |= {
            settlement.row.id
            for settlement in settlements
            if not theirs.isdisjoint((settlement.row.id, settlement.row.chain))
        }
    return Locked(locked, locked_elsewhere(Group, groups))
