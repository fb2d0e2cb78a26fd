"""Claiming of one share, within the limits of its types."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from django_ayework.forking import after_fork_in_child
from django_ayework.rules.controls import Controls
from django_ayework.rules.rationing import capped, rationed
from django_ayework.store import transitions
from django_ayework.store.controls import hold_type_controls, running_counts
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import WorkRow
from django_ayework.worker.batches.sizes import NO_ROOM, slots_of, works_in
from django_ayework.worker.claiming.shares import Share

#: Which type is next is a matter of chance; weights are, in the long run, its proportions.
chance = random.Random()  # noqa: S311
after_fork_in_child(chance.seed)  # or all children would draw alike


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim took: ``full`` are types at their limit, ``empty`` those with fewer works than wanted.

    ``contended`` are limited types whose control another transaction holds.
    """

    rows: list[WorkRow]
    full: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    contended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker that asks for the works of a share that so many slots take, ``most`` of them if that is said.

    ``room`` is what batches that gather take besides, by type.
    """

    share: Share
    slots: int
    worker: str
    now: datetime
    leased_until: datetime
    room: Mapping[str, int] = field(default_factory=dict)
    most: int | None = None

    def wishes(self) -> dict[str, int]:
        """Return how many works of each type are wanted at most."""
        wishes = {type: works_in(type, self.slots, self.room) for type in self.share.types}
        return {type: works for type, works in wishes.items() if works > 0 and self.most != 0}

    def limit(self, caps: Mapping[str, int]) -> int:
        """Return how many works are wanted in all."""
        together = self.slots if not self.share.ranked and len(caps) > 1 else sum(caps.values())
        return together if self.most is None else min(together, self.most)


def claim_of(claim: Claim, controls: Controls) -> Claimed:
    """Lease works of a share; a plain one is a single statement, limits are counted in a transaction."""
    wishes = claim.wishes()
    if not wishes:
        return Claimed([])
    limited = [type for type in claim.share.types if controls.of(type).max_running]
    if limited:
        return in_own_transaction(partial(claim_limited, claim, wishes, controls, limited))
    running = running_counts(claim.share.types) if claim.share.ranked else {}
    return taken(claim, wishes, controls, running)


def claim_limited(claim: Claim, wishes: Mapping[str, int], controls: Controls, limited: list[str]) -> Claimed:
    """Lock the limited types' rows, then count what runs, then claim.

    A claim of these types holds their rows until it has committed, so the count, in a later statement, misses
    no claim; works that end meanwhile only make room. A type whose row is locked elsewhere is left out.
    """
    contended = frozenset(limited).difference(hold_type_controls(limited, claim.now))
    wishes = {type: works for type, works in wishes.items() if type not in contended}
    if not wishes:
        return Claimed([], contended=contended)
    return replace(taken(claim, wishes, controls, running_counts(claim.share.types)), contended=contended)


def taken(claim: Claim, wishes: Mapping[str, int], controls: Controls, running: dict[str, int]) -> Claimed:
    """Claim what limits, and then weights, allow."""
    share = claim.share
    caps = capped(wishes, controls, running)
    full = frozenset(type for type, cap in caps.items() if cap == 0)
    if share.ranked:
        caps = rationed_slots(claim, caps, controls, running)
    limit = claim.limit(caps)
    rows = transitions.claim(share.queue, caps, limit, claim.worker, claim.now, claim.leased_until)
    if len(rows) == limit:
        return Claimed(rows, full)
    got = Counter(row.type for row in rows) if len(caps) > 1 else dict.fromkeys(caps, len(rows))
    empty = frozenset(type for type, cap in caps.items() if got[type] < cap)
    return Claimed(rows, full, empty)


def rationed_slots(
    claim: Claim, caps: Mapping[str, int], controls: Controls, running: Mapping[str, int]
) -> dict[str, int]:
    """Divide the slots among the types; return how many works of each these take, within the caps."""
    wanted = {type: slots_of(type, cap, claim.room) for type, cap in caps.items()}
    taken = {type: slots_of(type, works, NO_ROOM) for type, works in running.items()}
    slots = rationed(wanted, claim.slots, controls, taken, chance)
    works = {type: works_in(type, slots.get(type, 0), claim.room) for type in caps}
    return {type: min(caps[type], number) for type, number in works.items() if number > 0}
