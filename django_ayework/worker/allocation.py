"""How a claim is divided: among queues, doers and types, within their limits."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from django_ayework.define.registry import registry
from django_ayework.doers import Doer
from django_ayework.forking import after_fork_in_child
from django_ayework.rules.controls import Controls, allocated, capped
from django_ayework.store import claims
from django_ayework.store.controls import hold_type_controls, running_counts
from django_ayework.store.database import in_own_transaction
from django_ayework.store.lanes import Lane
from django_ayework.store.rows import WorkRow
from django_ayework.worker.dispatch import NO_ROOM, doer_of, slots_of, works_in

# --- shares ---
# Shares: what a worker divides its claims among, so that a flood here does not hold up works there.


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """Types of one queue that are served together: by priority and age, or if ``ranked`` by weight.

    A ``doer`` runs all of them, or else slots do.
    """

    queue: str
    types: tuple[str, ...]
    ranked: bool = False
    doer: Doer | None = field(default=None, compare=False, repr=False)

    def without(self, types: Collection[str]) -> ClaimGroup | None:
        """Return the share without some of its types, if any are left."""
        left = tuple(type for type in self.types if type not in types)
        return replace(self, types=left) if left else None


class KnownClaimGroups:
    """The shares of the lanes that were asked for last: at rest the same come again and again."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._controls: Controls | None = None
        self._version = -1
        self._claim_groups: list[ClaimGroup] = []

    def of(self, lanes: list[Lane], controls: Controls) -> list[ClaimGroup]:
        """Return what :func:`shares_of` does."""
        if lanes != self._lanes or controls is not self._controls or registry.version != self._version:
            self._lanes, self._controls, self._version = lanes, controls, registry.version
            self._claim_groups = claim_groups_of(lanes, controls)
        return self._claim_groups


def claim_groups_of(lanes: Iterable[Lane], controls: Controls) -> list[ClaimGroup]:
    """Return the shares of lanes that are not paused.

    A queue is one, and so is each of its types that is ordered by units or runs in batches. Where types have
    weights or priorities of their own, those decide among all types of the queue, those of each doer apart.

    >>> shares_of([Lane("mail", "shop.send"), Lane("mail", "shop.warn")], Controls())
    [Share(queue='mail', types=('shop.send', 'shop.warn'), ranked=False)]
    """
    served: dict[str, list[str]] = defaultdict(list)
    for queue, type in lanes:
        if controls.permits(queue, type):
            served[queue].append(type)
    return [
        claim_group
        for queue, types in served.items()
        for claim_group in claim_groups_of_queue(queue, types, controls)
    ]


def claim_groups_of_queue(queue: str, types: list[str], controls: Controls) -> list[ClaimGroup]:
    """Return the shares of one queue: types that different doers run are served apart."""
    doers = {type: doer_of(type) for type in types}
    sources: dict[int, list[str]] = defaultdict(list)
    for type, doer in doers.items():
        sources[id(doer)].append(type)
    return [
        claim_group
        for together in sources.values()
        for claim_group in claim_groups_of_source(queue, together, controls, doers[together[0]])
    ]


def claim_groups_of_source(
    queue: str, types: list[str], controls: Controls, doer: Doer | None
) -> list[ClaimGroup]:
    """Return the shares of types of a queue that one doer runs, or slots do."""
    if len(types) > 1 and any(controls.of(type).is_ranked for type in types):
        return [ClaimGroup(queue, tuple(types), ranked=True, doer=doer)]
    alone = [type for type in types if registry.order_of(type) == "unit" or registry.batch(type)]
    by_time = tuple(type for type in types if type not in alone)
    own = [ClaimGroup(queue, (type,), doer=doer) for type in alone]
    return [ClaimGroup(queue, by_time, doer=doer), *own] if by_time else own


# --- rations ---
# Claiming of one share, within the limits of its types.

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

    claim_group: ClaimGroup
    slots: int
    worker: str
    now: datetime
    leased_until: datetime
    room: Mapping[str, int] = field(default_factory=dict)
    most: int | None = None

    def wishes(self) -> dict[str, int]:
        """Return how many works of each type are wanted at most."""
        wishes = {type: works_in(type, self.slots, self.room) for type in self.claim_group.types}
        return {type: works for type, works in wishes.items() if works > 0 and self.most != 0}

    def limit(self, caps: Mapping[str, int]) -> int:
        """Return how many works are wanted in all."""
        together = self.slots if not self.claim_group.ranked and len(caps) > 1 else sum(caps.values())
        return together if self.most is None else min(together, self.most)


def claim_of(claim: Claim, controls: Controls) -> Claimed:
    """Lease works of a share; a plain one is a single statement, limits are counted in a transaction."""
    wishes = claim.wishes()
    if not wishes:
        return Claimed([])
    limited = [type for type in claim.claim_group.types if controls.of(type).max_running]
    if limited:
        return in_own_transaction(partial(claim_limited, claim, wishes, controls, limited))
    running = running_counts(claim.claim_group.types) if claim.claim_group.ranked else {}
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
    return replace(
        taken(claim, wishes, controls, running_counts(claim.claim_group.types)), contended=contended
    )


def taken(claim: Claim, wishes: Mapping[str, int], controls: Controls, running: dict[str, int]) -> Claimed:
    """Claim what limits, and then weights, allow."""
    claim_group = claim.claim_group
    caps = capped(wishes, controls, running)
    full = frozenset(type for type, cap in caps.items() if cap == 0)
    if claim_group.ranked:
        caps = allocated_slots(claim, caps, controls, running)
    limit = claim.limit(caps)
    rows = claims.claim(claim_group.queue, caps, limit, claim.worker, claim.now, claim.leased_until)
    if len(rows) == limit:
        return Claimed(rows, full)
    got = Counter(row.type for row in rows) if len(caps) > 1 else dict.fromkeys(caps, len(rows))
    empty = frozenset(type for type, cap in caps.items() if got[type] < cap)
    return Claimed(rows, full, empty)


def allocated_slots(
    claim: Claim, caps: Mapping[str, int], controls: Controls, running: Mapping[str, int]
) -> dict[str, int]:
    """Divide the slots among the types; return how many works of each these take, within the caps."""
    wanted = {type: slots_of(type, cap, claim.room) for type, cap in caps.items()}
    taken = {type: slots_of(type, works, NO_ROOM) for type, works in running.items()}
    slots = allocated(wanted, claim.slots, controls, taken, chance)
    works = {type: works_in(type, slots.get(type, 0), claim.room) for type in caps}
    return {type: min(caps[type], number) for type, number in works.items() if number > 0}


# --- places ---
# Places: how many works of each share one turn of claiming may take.

#: Tells how many more works a doer may be given.
Room = Callable[[Doer], int]


def no_room(doer: Doer) -> int:
    """Give no work to any doer."""
    return 0


class Capacity:
    """Free slots, and the room of each doer, divided evenly among the shares that want them."""

    def __init__(self, slots: int, room: Room = no_room) -> None:
        self._slots = slots
        self._room = room
        self._all: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def of(self, claim_group: ClaimGroup, rivals: Iterable[ClaimGroup]) -> int:
        """Return how many a share may take now, which leaves as many to each rival with the same doer."""
        source = id(claim_group.doer)
        if source not in self._all:
            self._all[source] = self._slots if claim_group.doer is None else self._room(claim_group.doer)
            self._left[source] = self._all[source]
        sharers = sum(rival.doer is claim_group.doer for rival in rivals)
        return max(0, min(self._left[source], -(-self._all[source] // max(1, sharers))))

    def take(self, claim_group: ClaimGroup, places: int) -> None:
        """Note that a share, which was asked for, has taken so many."""
        self._left[id(claim_group.doer)] -= places
