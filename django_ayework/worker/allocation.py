"""How a claim is divided: among queues, doers and types, within their limits.

A worker divides its claims among claim groups, so that a flood in one does not hold up works of another.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.doers import Doer
from django_ayework.rules.controls import Controls, allocated, capped
from django_ayework.store import claims
from django_ayework.store.controls import hold_type_controls, running_counts
from django_ayework.store.database import in_own_transaction
from django_ayework.store.lanes import Lane
from django_ayework.store.rows import WorkRow

# --- works and slots --------------------------------------------------------------------------------------

#: Works of a type in one claim, unless a single batch is larger.
MOST_AT_ONCE = 1000
#: By type, how many more works the batch takes that gathers at the moment; it has its slot. Here: none.
NO_ROOM: Mapping[str, int] = {}


def size_of(type: str) -> int:
    """Return how many works of a type one slot takes: of a batch type as many as a batch has, else one."""
    batch_type = registry.batch(type)
    return batch_type.size if batch_type else 1


def works_in(type: str, slots: int, room: Mapping[str, int]) -> int:
    """Return how many works of a type so many slots take, and ``room``."""
    size = size_of(type)
    return min(slots * size, max(size, MOST_AT_ONCE)) + room.get(type, 0)


def slots_of(type: str, works: int, room: Mapping[str, int]) -> int:
    """Return how many slots so many works of a type take besides ``room``."""
    return -(-max(0, works - room.get(type, 0)) // size_of(type))


def slots_for(types: Iterable[str], room: Mapping[str, int]) -> int:
    """Return how many slots works of these types take."""
    return sum(slots_of(type, works, room) for type, works in Counter(types).items())


# --- claim groups -----------------------------------------------------------------------------------------


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
        """Return the claim group without some of its types, if any are left."""
        left = tuple(type for type in self.types if type not in types)
        return replace(self, types=left) if left else None


def doer_of(type: str) -> Doer | None:
    """Return the doer that runs the works of a type: its own, or that of the settings; None for slots.

    The settings' doer runs no batches.
    """
    work_type = registry.find(type)
    if work_type is None:
        return None
    doer: Doer | None = work_type.settings.doer
    return doer if registry.batch(type) else doer or get_settings().doer


def claim_groups_of(lanes: Iterable[Lane], controls: Controls) -> list[ClaimGroup]:
    """Return the claim groups of lanes that are not paused.

    A queue is one, and so is each of its types that is ordered by units or runs in batches. Where types have
    weights or priorities of their own, those decide among all types of the queue, those of each doer apart.

    >>> claim_groups_of([Lane("mail", "shop.send"), Lane("mail", "shop.warn")], Controls())
    [ClaimGroup(queue='mail', types=('shop.send', 'shop.warn'), ranked=False)]
    """
    served: dict[tuple[str, int], tuple[Doer | None, list[str]]] = {}
    for queue, type in lanes:
        if controls.permits(queue, type):
            doer = doer_of(type)
            served.setdefault((queue, id(doer)), (doer, []))[1].append(type)
    return [
        claim_group
        for (queue, _), (doer, types) in served.items()
        for claim_group in claim_groups_of_doer(queue, types, controls, doer)
    ]


def claim_groups_of_doer(
    queue: str, types: list[str], controls: Controls, doer: Doer | None
) -> list[ClaimGroup]:
    """Return the claim groups of types of a queue that one doer runs, or slots do."""
    if len(types) > 1 and any(controls.of(type).is_ranked for type in types):
        return [ClaimGroup(queue, tuple(types), ranked=True, doer=doer)]
    alone = [type for type in types if registry.order_of(type) == "unit" or registry.batch(type)]
    by_time = tuple(type for type in types if type not in alone)
    own = [ClaimGroup(queue, (type,), doer=doer) for type in alone]
    return [ClaimGroup(queue, by_time, doer=doer), *own] if by_time else own


#: Tells how many more works a doer may be given.
Room = Callable[[Doer], int]


def no_room(doer: Doer) -> int:
    """Give no work to any doer."""
    return 0


class Capacity:
    """Free slots, and the room of each doer, divided evenly among the claim groups that want them."""

    def __init__(self, slots: int, room: Room = no_room) -> None:
        self._slots = slots
        self._room = room
        self._all: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def of(self, claim_group: ClaimGroup, rivals: Iterable[ClaimGroup]) -> int:
        """Return how many a claim group may take now, which leaves as many to each with the same doer."""
        source = id(claim_group.doer)
        if source not in self._all:
            self._all[source] = self._slots if claim_group.doer is None else self._room(claim_group.doer)
            self._left[source] = self._all[source]
        sharers = sum(rival.doer is claim_group.doer for rival in rivals)
        return max(0, min(self._left[source], -(-self._all[source] // max(1, sharers))))

    def take(self, claim_group: ClaimGroup, slots: int) -> None:
        """Note that a claim group, which was asked for, has taken so many."""
        self._left[id(claim_group.doer)] -= slots


# --- one claim --------------------------------------------------------------------------------------------

#: Which type is next is a matter of chance; weights are, in the long run, its proportions.
chance = random.Random()  # noqa: S311
after_fork_in_child(chance.seed)  # or all children would draw alike


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker that asks for the works of a claim group that fill so many slots, ``most`` works if given.

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


@dataclass(frozen=True, slots=True)
class Claimed:
    """The works that a claim took, and the types of which there is no more to take for now.

    ``full`` are types at their limit, ``empty`` those with fewer works than wanted, ``contended`` limited
    types whose control another transaction holds.
    """

    rows: list[WorkRow]
    full: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    contended: frozenset[str] = frozenset()


def claim_of(claim: Claim, controls: Controls) -> Claimed:
    """Lease works of a claim group; a plain one is one statement, limits are counted in a transaction."""
    wishes = claim.wishes()
    if not wishes:
        return Claimed([])
    types = claim.claim_group.types
    limited = [type for type in types if controls.of(type).max_running]
    if limited:
        return in_own_transaction(partial(claim_limited, claim, wishes, controls, limited))
    return claim_within(claim, wishes, controls, running_counts(types) if claim.claim_group.ranked else {})


def claim_limited(claim: Claim, wishes: Mapping[str, int], controls: Controls, limited: list[str]) -> Claimed:
    """Lock the limited types' rows, then count what runs, then claim.

    A claim of these types holds their rows until it has committed, so the count, in a later statement, misses
    no claim; works that end meanwhile only make room. A type whose row is locked elsewhere is left out.
    """
    contended = frozenset(limited).difference(hold_type_controls(limited, claim.now))
    wishes = {type: works for type, works in wishes.items() if type not in contended}
    if not wishes:
        return Claimed([], contended=contended)
    claimed = claim_within(claim, wishes, controls, running_counts(claim.claim_group.types))
    return replace(claimed, contended=contended)


def claim_within(
    claim: Claim, wishes: Mapping[str, int], controls: Controls, running: dict[str, int]
) -> Claimed:
    """Claim within the limits, divided by weights if the claim group is ranked."""
    caps = capped(wishes, controls, running)
    full = frozenset(type for type, cap in caps.items() if cap == 0)
    if claim.claim_group.ranked:
        caps = caps_by_weight(claim, caps, controls, running)
    limit = claim.limit(caps)
    rows = claims.claim(claim.claim_group.queue, caps, limit, claim.worker, claim.now, claim.leased_until)
    if len(rows) == limit:
        return Claimed(rows, full)
    got = Counter(row.type for row in rows)
    return Claimed(rows, full, empty=frozenset(type for type, cap in caps.items() if got[type] < cap))


def caps_by_weight(
    claim: Claim, caps: Mapping[str, int], controls: Controls, running: Mapping[str, int]
) -> dict[str, int]:
    """Divide the slots among the types; return how many works of each these take, within the caps."""
    wanted = {type: slots_of(type, cap, claim.room) for type, cap in caps.items()}
    taken = {type: slots_of(type, works, NO_ROOM) for type, works in running.items()}
    slots = allocated(wanted, claim.slots, controls, taken, chance)
    works = {type: works_in(type, slots.get(type, 0), claim.room) for type in caps}
    return {type: min(caps[type], number) for type, number in works.items() if number > 0}
