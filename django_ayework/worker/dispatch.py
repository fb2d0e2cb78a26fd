"""From due works to slots and doers: how a claim is divided, and how claimed works start."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import doer_of
from django_ayework.define.types import AnyBatchType, BatchType, registry
from django_ayework.doers import Doer, TellsRoom
from django_ayework.doers.base import guarded
from django_ayework.rules.controls import Controls, allocated, capped
from django_ayework.store import claims
from django_ayework.store.controls import hold_type_controls, running_counts
from django_ayework.store.database import clock, in_own_transaction
from django_ayework.store.lanes import Lane, is_claimed_alone
from django_ayework.store.rows import WorkRow
from django_ayework.worker.executor import Executor, Load, without_outcome
from django_ayework.worker.in_flight import Batch, Delivery, InFlight, abort_lost_waiting
from django_ayework.worker.threads import Failures

#: Works of a type in one claim, unless a single batch is larger.
MOST_AT_ONCE = 1000
#: By type, how many more works the batch takes that gathers at the moment; it has its slot. Here: none.
NO_BATCH_ROOM: Mapping[str, int] = {}


def size_of(type: str) -> int:
    """Return how many works of a type one slot takes: of a batch type as many as a batch has, else one."""
    work_type = registry.find(type)
    return work_type.size if isinstance(work_type, BatchType) else 1


def works_in(type: str, slots: int, room: Mapping[str, int]) -> int:
    """Return how many works of a type so many slots take, and ``room``."""
    size = size_of(type)
    return min(slots * size, max(size, MOST_AT_ONCE)) + room.get(type, 0)


def slots_of(type: str, works: int, room: Mapping[str, int]) -> int:
    """Return how many slots so many works of a type take besides ``room``."""
    return -(-max(0, works - room.get(type, 0)) // size_of(type))


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


def claim_groups_of(lanes: Iterable[Lane], controls: Controls) -> list[ClaimGroup]:
    """Return the claim groups of lanes that are not paused.

    Types of one queue that have the same doer, or none, form one group. If one of them has a weight or
    priority of its own, the group is ranked. Otherwise each type that is ordered by units or runs in batches
    gets a group of its own.

    >>> claim_groups_of([Lane("mail", "shop.send"), Lane("mail", "shop.warn")], Controls())
    [ClaimGroup(queue='mail', types=('shop.send', 'shop.warn'), ranked=False)]
    """
    served: dict[tuple[str, int], tuple[Doer | None, list[str]]] = {}
    for queue, type in lanes:
        if controls.permits(queue, type):
            doer = doer_of(registry.find(type))
            served.setdefault((queue, id(doer)), (doer, []))[1].append(type)
    groups: list[ClaimGroup] = []
    for (queue, _), (doer, types) in served.items():
        if len(types) > 1 and any(controls.of(type).is_ranked for type in types):
            groups.append(ClaimGroup(queue, tuple(types), ranked=True, doer=doer))
            continue
        alone = list(filter(is_claimed_alone, types))
        if by_time := tuple(type for type in types if type not in alone):
            groups.append(ClaimGroup(queue, by_time, doer=doer))
        groups += [ClaimGroup(queue, (type,), doer=doer) for type in alone]
    return groups


#: Returns how many more works a doer may be given.
DoerRoom = Callable[[Doer], int]


@dataclass
class Capacity:
    """Free slots, and the room of each doer, divided evenly among the claim groups that want them."""

    slots: int
    room: DoerRoom
    _all: dict[int, int] = field(default_factory=dict)
    _left: dict[int, int] = field(default_factory=dict)

    def of(self, claim_group: ClaimGroup, rivals: Iterable[ClaimGroup]) -> int:
        """Return how many a claim group may take now, which leaves as many to each with the same doer."""
        source = id(claim_group.doer)
        if source not in self._all:
            self._all[source] = self.slots if claim_group.doer is None else self.room(claim_group.doer)
            self._left[source] = self._all[source]
        sharers = sum(rival.doer is claim_group.doer for rival in rivals)
        return max(0, min(self._left[source], -(-self._all[source] // sharers)))

    def take(self, claim_group: ClaimGroup, slots: int) -> None:
        """Note that a claim group, which was asked for, has taken so many."""
        self._left[id(claim_group.doer)] -= slots


#: Which type is next is a matter of chance; weights are, in the long run, its proportions.
chance = random.Random()  # noqa: S311
after_fork_in_child(chance.seed)  # or all children would draw alike


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker that asks for the works of a claim group that fill so many slots, at most ``most`` works.

    ``room`` is what batches that gather take besides, by type.
    """

    claim_group: ClaimGroup
    slots: int
    worker: str
    room: Mapping[str, int] = field(default_factory=dict)
    most: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class Claimed:
    """The works that a claim took, and the types without further works to claim for now.

    ``full`` are types at their limit, ``empty`` those with fewer works than wanted, ``contended`` limited
    types whose control another transaction holds.
    """

    rows: list[WorkRow]
    full: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    contended: frozenset[str] = frozenset()


def claim_of(claim: Claim, controls: Controls) -> Claimed:
    """Lease works of a claim group; a plain one is one statement, limits are counted in a transaction."""
    types = claim.claim_group.types
    wishes = {type: works for type in types if (works := works_in(type, claim.slots, claim.room)) > 0}
    if not wishes or not claim.most:
        return Claimed([])
    limited = [type for type in types if controls.of(type).max_running]
    if limited:
        return in_own_transaction(claim_limited, claim, wishes, controls, limited)
    return claim_within(claim, wishes, controls, running_counts(types) if claim.claim_group.ranked else {})


def claim_limited(claim: Claim, wishes: Mapping[str, int], controls: Controls, limited: list[str]) -> Claimed:
    """Lock the limited types' rows, then count what runs, then claim.

    A claim of these types holds their rows until it has committed, so the count, in a later statement, misses
    no claim; works that end meanwhile only make room. A type whose row is locked elsewhere is left out.
    """
    contended = frozenset(limited).difference(hold_type_controls(limited, clock.now()))
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
    by_slots = not claim.claim_group.ranked and len(caps) > 1
    limit = min(claim.slots if by_slots else sum(caps.values()), claim.most)
    rows = claims.claim(claim.claim_group.queue, caps, limit, claims.new_lease(claim.worker))
    if len(rows) == limit:
        return Claimed(rows, full)
    got = Counter(row.type for row in rows)
    return Claimed(rows, full, empty=frozenset(type for type, cap in caps.items() if got[type] < cap))


def caps_by_weight(
    claim: Claim, caps: Mapping[str, int], controls: Controls, running: Mapping[str, int]
) -> dict[str, int]:
    """Divide the slots among the types; return how many works of each these take, within the caps."""
    wanted = {type: slots_of(type, cap, claim.room) for type, cap in caps.items()}
    taken = {type: slots_of(type, works, NO_BATCH_ROOM) for type, works in running.items()}
    slots = allocated(wanted, claim.slots, controls, taken, chance)
    works = {type: works_in(type, slots.get(type, 0), claim.room) for type in caps}
    return {type: min(caps[type], number) for type, number in works.items() if number > 0}


@dataclass(slots=True)
class Buffer:
    """Works of one type; ``due_at`` is when they run, however few they are."""

    size: int
    due_at: float
    deliveries: list[Delivery] = field(default_factory=list)


class Gathering:
    """The batches that are not full yet, one per type. For one thread."""

    def __init__(self) -> None:
        self._buffers: dict[str, Buffer] = {}

    def add(self, delivery: Delivery, batch_type: AnyBatchType) -> Batch | None:
        """Let a work wait for others of its type; return its batch if that is full now."""
        type, now = delivery.row.type, time.monotonic()
        buffer = self._buffers.setdefault(type, Buffer(batch_type.size, now + batch_type.max_wait))
        buffer.deliveries.append(delivery)
        return self._take(type) if len(buffer.deliveries) >= buffer.size else None

    def due(self) -> list[Batch]:
        """Take out the batches that have waited long enough."""
        now = time.monotonic()
        return [self._take(type) for type, buffer in list(self._buffers.items()) if buffer.due_at <= now]

    def all(self) -> list[Batch]:
        """Take out every batch."""
        return [self._take(type) for type in list(self._buffers)]

    def room(self) -> dict[str, int]:
        """Return how many more works the batches take, by type."""
        return {type: buffer.size - len(buffer.deliveries) for type, buffer in self._buffers.items()}

    def pause(self) -> float:
        """Return how many seconds are left until a batch is due; infinity when none waits."""
        due_at = min((buffer.due_at for buffer in self._buffers.values()), default=float("inf"))
        return max(0.0, due_at - time.monotonic())

    def _take(self, type: str) -> Batch:
        return Batch(self._buffers.pop(type).deliveries)


#: How many works of one worker doers may hold, running and waiting; those that wait are kept from others.
MOST_HELD = 512
#: Seconds a work may have waited in a doer without being checked for a loss again before it runs.
DOERS_TRUSTED_FOR = 0.5
#: Seconds that works may have gathered without being checked for a loss again before they run.
TRUSTED_FOR = 0.05


@dataclass(eq=False)
class Dispatcher:
    """Hands claimed works to the slots, or to doers. For one thread.

    A batch counts as one from its first work on, so that a slot is left for it.
    """

    in_flight: InFlight
    executor: Executor
    #: The batches that are not full yet.
    gathering: Gathering = field(default_factory=Gathering)
    _doers: list[Doer] = field(default_factory=list)
    _unsubscribe: list[Callable[[], None]] = field(default_factory=list)
    #: The failures of doers, by their ids. A doer is given no works while its pause lasts.
    _failures: defaultdict[int, Failures] = field(default_factory=lambda: defaultdict(Failures))

    def open(self, on_room: Callable[[], object]) -> None:
        """Call this function whenever a doer may have room for more, until ``close``."""
        in_use = {id(doer): doer for known in registry if (doer := doer_of(known)) is not None}
        self._doers = list(in_use.values())
        for doer in self._doers:
            if isinstance(doer, TellsRoom):
                failure = f"{doer!r} could not say when it has room, so the worker asks at its polls"
                guarded(partial(self._subscribe, doer, on_room), failure)

    def _subscribe(self, doer: TellsRoom, on_room: Callable[[], object]) -> None:
        self._unsubscribe.append(doer.on_room(on_room))

    def close(self) -> None:
        """Unsubscribe."""
        for unsubscribe in self._unsubscribe:
            guarded(unsubscribe, f"{unsubscribe!r} could not end a subscription")

    def room(self, doer: Doer) -> int:
        """Return how many more works a doer may be given now; none for a while after it has failed."""
        failures = self._failures[id(doer)]
        if failures.is_paused:
            return 0
        try:
            return max(0, min(int(doer.available()), MOST_HELD - self.in_flight.in_doers))
        except BaseException as error:
            failures.report(error, f"{doer!r} could not say how many works are welcome")
            return 0

    def doers_have_room(self) -> bool:
        """Tell whether any doer may be given works now. All are asked: a doer then drops its void tasks."""
        return max(map(self.room, self._doers), default=0) > 0

    def hand_out(self, deliveries: list[Delivery]) -> None:
        """Take in claimed works, and start those that can start."""
        single, others = [], []
        for delivery in deliveries:
            delivery.doer = doer_of(delivery.work_type)
            delivery.in_batch = isinstance(delivery.work_type, BatchType)
            if delivery.in_batch or delivery.doer is not None:
                delivery.ready_at = float("inf")  # it may wait for long, and is not given back for that
                others.append(delivery)
            else:
                single.append(delivery)
        self.in_flight.add(deliveries)
        self.executor.submit(single)
        for delivery in others:
            if isinstance(delivery.work_type, BatchType):
                self._gather(delivery, delivery.work_type)
            else:
                self._start(delivery)

    def hand_out_due(self) -> float:
        """Start the batches whose first work has waited long enough; return when the next one is due."""
        self.executor.submit([])  # there may have been no thread for some loads
        for batch in self.gathering.due():
            self._start_checked(batch)
        return self.gathering.pause()

    def hand_out_rest(self) -> None:
        """Start batches there is a slot for, as nothing more is claimed; the others may be given back."""
        for batch in self.gathering.all():
            doer = batch.deliveries[0].doer
            if (self.executor.free if doer is None else self.room(doer)) > 0:
                abort_lost_waiting(batch.deliveries, 0.0)
                batch.start()
                self._start(batch)

    def _gather(self, delivery: Delivery, batch_type: AnyBatchType) -> None:
        """Let a work wait for others of its type, and start its batch if that is full now."""
        if delivery.type not in self.gathering.room():
            self.in_flight.begin_batch(delivery.doer is not None)
        if (batch := self.gathering.add(delivery, batch_type)) is not None:
            self._start_checked(batch)

    def _start_checked(self, batch: Batch) -> None:
        """Start a batch without the works that were lost while they gathered."""
        abort_lost_waiting(batch.deliveries, TRUSTED_FOR)
        if batch.deliveries[0].doer is None:
            wait_for_slot(batch)
        self._start(batch)

    def _start(self, load: Load) -> None:
        """Hand over a load. If its doer refuses it, it counts as waiting for a slot, and so goes back."""
        doer, row = load.deliveries[0].doer, load.deliveries[0].row
        if doer is None:
            self.executor.submit([load])
            return
        task = DoerTask(load, self.executor)
        try:
            doer.submit(task, row.fairness or None, row.priority, row.queued_at)
        except BaseException as error:
            self._failures[id(doer)].report(error, f"{doer!r} refused {load}, which is released")
            wait_for_slot(load)
            if isinstance(load, Batch) and task.take():
                self.in_flight.finish(in_doer=True)
        else:
            self._failures[id(doer)].succeed()


@dataclass(frozen=True, slots=True)
class DoerTask:
    """A load as the task of a doer. It is void once no work of the load may start.

    The first call runs the load. Further calls do nothing.
    """

    load: Load
    executor: Executor
    _free: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_void(self) -> bool:
        """Whether all works of the load were withdrawn or lost."""
        return not self.load.may_start

    def __call__(self) -> None:
        """Run in this thread of a doer, unless the work was lost, cancelled or withdrawn while it waited.

        What does not run needs no event loop, which a worker that stops may have ended.
        """
        if not self.take():
            return
        abort_lost_waiting(self.load.deliveries, DOERS_TRUSTED_FOR)
        if self.is_void:
            self.executor.finished(self.load, without_outcome(self.load))
        else:
            self.executor.run_here(self.load)

    def take(self) -> bool:
        """Tell whether this is the first call, and so whether the load is still to be run or counted out."""
        return self._free.acquire(blocking=False)


def wait_for_slot(load: Load) -> None:
    """Let works that wait for long from now on be given back for that."""
    for delivery in load.deliveries:
        delivery.ready_at = time.monotonic()
