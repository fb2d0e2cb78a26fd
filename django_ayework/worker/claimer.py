"""Claiming for one process: which queues, in which order, how many."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from django.db import Error

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.flow.controls import current_controls
from django_ayework.flow.events import report
from django_ayework.flow.notify import receives_remote
from django_ayework.rules.controls import Controls, Scope
from django_ayework.rules.durations import later
from django_ayework.rules.notifications import Due, Place
from django_ayework.store import locks, transitions
from django_ayework.store.clock import clock
from django_ayework.store.lanes import Lane, Poll, lanes_of, pages_of_lanes, poll
from django_ayework.store.rows import WorkRow
from django_ayework.worker.allocation import (
    Capacity,
    Claim,
    ClaimGroup,
    KnownClaimGroups,
    Room,
    claim_groups_of,
    claim_of,
    no_room,
)
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.dispatch import NO_ROOM, slots_for
from django_ayework.worker.limits import accepted
from django_ayework.worker.waking import Fleet, Told

# --- demand ---
# How many works to claim: the free slots, and as many more as will start within a moment.

#: Seconds of work to hold ready. Long works are never held back from idle workers for longer than this.
READY_FOR = 0.1
MOST_READY = 500
#: How much of a new measurement counts: one that is higher much, so that the first thousand of a flood are
#: not claimed by the dozen, one that is lower little, as that may be a moment's rest.
RISING, FALLING = 0.5, 0.1
MEASURE_EVERY = 0.01


class Prefetch:
    """Follows how fast works end here, and says how many to hold."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.rate = 0.0
        self._finished = 0
        self._measured_at = time.monotonic()

    def measure(self, finished: int) -> None:
        """Follow the count of ended attempts."""
        elapsed = time.monotonic() - self._measured_at
        if elapsed >= MEASURE_EVERY:
            current = (finished - self._finished) / elapsed
            self.rate += (RISING if current > self.rate else FALLING) * (current - self.rate)
            self._finished, self._measured_at = finished, time.monotonic()

    @property
    def target(self) -> int:
        """How many works to hold, running ones included."""
        return self.concurrency + min(MOST_READY, int(self.rate * READY_FOR))

    @property
    def low_water(self) -> int:
        """Claim again when this few are left: in big bites while works are quick, at once if slots idle."""
        return max(self.concurrency - 1, self.target // 2)


# --- search ---
# The search for lanes with pending works that a worker serves.

#: Queues to find at a time: each claim goes through all of them.
ENOUGH = 100


class LaneSearch:
    """Finds lanes for one worker: those of its queues, or those of some queues after the others.

    A worker of all queues finds about ``ENOUGH`` at a time. The next search goes on behind the last queue, so
    each queue has its turn, and a search costs the same however many queues there are.
    """

    def __init__(self) -> None:
        self._behind = ""

    def find(self, scope: Scope, permits: Callable[[str, str], bool]) -> list[Lane]:
        """Return lanes that the worker serves and that are not paused; none only if there are none."""

        def wanted(lanes: list[Lane]) -> list[Lane]:
            return [lane for lane in lanes if scope.serves(lane) and permits(*lane)]

        if scope.queues:
            return wanted(lanes_of(scope.queues))
        found: list[Lane] = []
        for lanes in self._once_round(self._behind):
            found += wanted(lanes)
            if len({lane.queue for lane in found}) >= ENOUGH:
                self._behind = lanes[-1].queue
                return found
        self._behind = ""
        return found

    def _once_round(self, behind: str) -> Iterator[list[Lane]]:
        """Yield the lanes of all queues, those behind this one first."""
        yield from pages_of_lanes(behind, ENOUGH)
        for lanes in pages_of_lanes("", ENOUGH) if behind else ():
            yield [lane for lane in lanes if lane.queue <= behind]
            if lanes[-1].queue >= behind:
                return


# --- claimer ---
# Claiming for one process: which queues, in which order, how many.

STAGE_BATCH = 500
#: Polls between two looks of a worker that has nothing to do and would be told.
LONG_REST = 3
#: Seconds between two looks for anything at all, while there are works to claim.
CURIOUS_AFTER = 0.05


class Claimer:
    """Finds due works for one worker. One cheap look per poll at rest; none while works keep coming."""

    def __init__(self, worker_id: str, scope: Scope, room_of_doer: Room = no_room) -> None:
        self.worker_id = worker_id
        self.scope = scope
        self.room_of_doer = room_of_doer
        self.busy: list[ClaimGroup] = []
        self.controls = Controls()
        #: Called with the controls once they have changed.
        self.on_controls: Callable[[Controls], object] = lambda controls: None
        #: Types with due works that are at their limit, or whose control another transaction holds.
        self.held_back: set[str] = set()
        self.next_start: datetime | None = None
        #: What others say is due.
        self.told = Told(scope)
        self.fleet = Fleet(worker_id)
        self._controls_seen: tuple[int, int] | None = None
        self._room_made = False
        self._turn = 0
        self._known_claim_groups = KnownClaimGroups()
        self._search = LaneSearch()
        self._looked_at = float("-inf")
        self._look_was_put_off = False
        self._is_curious = False
        #: Whether another transaction holds the control of a type.
        self._is_held_up = False
        self._cut_off = False
        #: Called with what a look has found, and the intervals of continuous types: maintenance sees to it.
        self.on_look: Callable[[Poll, Mapping[str, float]], object] = lambda view, intervals: None
        #: Called when the database answers again that was away, for all workers perhaps.
        self.on_return: Callable[[], object] = lambda: None

    def claim(
        self, wanted: int, room: Mapping[str, int] = NO_ROOM, most: int | None = None
    ) -> list[Delivery]:
        """Lease works for ``wanted`` slots and for what doers have room for.

        Each share with due works gets as much as the others with the same doer, or without one.

        ``room`` is what batches that gather take besides, by type; ``most`` bounds the number of works.

        What is claimed is ours to run: an error at a later one may not strand it until its lease lapses.
        """
        if self.must_poll():
            self.poll()
        claimed: list[WorkRow] = []
        places = Capacity(wanted, self.room_of_doer)
        for claim_group in self.in_turn():
            slots = places.of(claim_group, self.busy)
            spare = None if most is None else most - len(claimed)
            try:
                rows = self.claim_from(claim_group, slots, room, spare)
            except Exception as error:
                if not claimed:
                    raise
                report(error, "queue", f"the queue {claim_group.queue!r} could not be claimed from")
                break
            places.take(claim_group, slots_for((row.type for row in rows), room))
            claimed += rows
        deliveries = delivered(claimed, self.worker_id)
        give_own_leases(deliveries, self.worker_id)
        return deliveries

    def must_poll(self) -> bool:
        """Tell whether to look before claiming; what was said to be due is claimed without a look.

        A look that is due by time is put off for that, but not twice. One for something that nobody could
        name waits a moment while there are other works: on SQLite every commit is such a thing. So does one
        for types whose control was held by another transaction.
        """
        told = self.told.take()
        self._is_curious |= told.places is None
        put_off = self.learn(told) and not self._look_was_put_off and told.places is not None
        self._look_was_put_off = put_off
        if put_off:
            return False
        if self.knows_of_nothing() or self.poll_is_due():
            return True
        waits = self._is_curious or self._is_held_up
        return waits and time.monotonic() - self._looked_at >= CURIOUS_AFTER

    def learn(self, told: Due) -> bool:
        """Serve the lanes that are said to have works, and note the next start; return whether any is new."""
        if told.start is not None:
            start = datetime.fromtimestamp(told.start, UTC)
            self.next_start = start if self.next_start is None else min(self.next_start, start)
        known = {Lane(claim_group.queue, type) for claim_group in self.busy for type in claim_group.types}
        lanes = {Lane(*place) for place in told.places or () if place[1] not in self.held_back}
        if lanes <= known:
            return False
        self.busy = self._known_claim_groups.of(sorted(known | lanes), self.controls)
        return True

    def knows_of_nothing(self) -> bool:
        """Tell whether only a look can find works: those known of are for doers without room, if any are."""
        return all(
            claim_group.doer is not None and self.room_of_doer(claim_group.doer) <= 0
            for claim_group in self.busy
        )

    def may_claim_more(self, wanted: int) -> bool:
        """Tell whether there is likely more to claim, for so many slots or for a doer."""
        places = Capacity(wanted, self.room_of_doer)
        return any(places.of(claim_group, self.busy) > 0 for claim_group in self.busy)

    def poll_is_due(self) -> bool:
        """Tell whether the last look is a poll ago, or what has ended since makes room."""
        return self._room_made or time.monotonic() - self._looked_at >= get_settings().poll_interval

    def poll(self) -> None:
        """See what there is to do; stage what has become due, and leave the rest to maintenance."""
        now = clock.now()
        self._looked_at = time.monotonic()
        self._room_made = self._is_curious = self._is_held_up = False
        view = self.see(now)
        if view.next_start is not None and view.next_start <= now:
            transitions.stage(now, STAGE_BATCH)
            view = poll(now, self.scope)
        self.heed_controls(view)
        self.on_look(view, self.intervals())
        self.next_start = view.next_start
        self.held_back.clear()
        found = [] if view.first_queue is None else self._search.find(self.scope, self.controls.permits)
        self.busy = claim_groups_of(found, self.controls)
        self.fleet.refresh()

    def left(self) -> set[Place]:
        """Return where there are works that the last claim has not taken, as far as it knows."""
        busy = {(claim_group.queue, type) for claim_group in self.busy for type in claim_group.types}
        named = {place for message in self.told.taken for place in message.due.places or ()}
        return busy | {place for place in named if place[1] in self.held_back}

    def heed_controls(self, view: Poll) -> None:
        """Read the controls if they have changed."""
        if view.controls != self._controls_seen:
            self.controls = current_controls()
            self.on_controls(self.controls)
            self._controls_seen = view.controls

    def intervals(self) -> dict[str, float]:
        """Return the intervals of the continuous types served here that are not paused."""
        return {
            type: control.interval
            for type, control in self.controls.types.items()
            if control.interval is not None
            and not control.paused
            and self.scope.serves_type(type)
            and registry.find(type) is not None
        }

    def see(self, now: datetime) -> Poll:
        """Look; tell when the database was away, so that its holders get a moment to renew their leases."""
        try:
            view = poll(now, self.scope)
        except Error:
            self._cut_off = True
            raise
        if self._cut_off:
            self._cut_off = False
            self.on_return()
        return view

    def in_turn(self) -> list[ClaimGroup]:
        """Return the busy shares, a different one first each time."""
        self._turn += 1
        start = self._turn % len(self.busy) if self.busy else 0
        return self.busy[start:] + self.busy[:start]

    def claim_from(
        self, claim_group: ClaimGroup, slots: int, room: Mapping[str, int] = NO_ROOM, most: int | None = None
    ) -> list[WorkRow]:
        """Lease works of one share; types that have no more, or no room for more, leave it until a look."""
        now = clock.now()
        lease = later(now, get_settings().lease)
        claimed = claim_of(Claim(claim_group, slots, self.worker_id, now, lease, room, most), self.controls)
        self.held_back |= claimed.full | claimed.contended
        self._is_held_up |= bool(claimed.contended)
        if done := claimed.full | claimed.empty | claimed.contended:
            rest = claim_group.without(done)
            self.busy = [
                left for each in self.busy if (left := rest if each is claim_group else each) is not None
            ]
        return claimed.rows

    def make_room(self, types: Iterable[str]) -> bool:
        """Note that works of these types have ended; return whether that lets others be claimed."""
        if not self.held_back or self.held_back.isdisjoint(types):
            return False
        self._room_made = True
        return True

    def is_idle(self) -> bool:
        """Tell whether the last look found nothing due that this worker may run; what a limit holds is."""
        return not self.busy and (self.next_start is None or self.next_start > clock.now())

    def pause(self) -> float:
        """Return how many seconds to sleep when there was nothing: a poll, or until the next start.

        Longer than a poll if others would say that something is due; but lapsed leases tell nobody. Shorter
        while another transaction holds the control of a type.
        """
        settings = get_settings()
        rest = max(settings.poll_interval, min(LONG_REST * settings.poll_interval, settings.lease / 6))
        pause = (rest if self.would_be_told() else settings.poll_interval) * random.uniform(0.9, 1.1)  # noqa: S311  # spreads the fleet
        if self._is_held_up:
            pause = min(pause, CURIOUS_AFTER)
        if self.next_start is not None:
            pause = min(pause, max(0.0, (self.next_start - clock.now()).total_seconds()))
        return pause

    def would_be_told(self) -> bool:
        """Tell whether the next thing to do is told by others: there is none known, and they are heard."""
        return not self.busy and not self.held_back and not self.intervals() and receives_remote()


def delivered(claimed: list[WorkRow], worker_id: str) -> list[Delivery]:
    """Return claimed rows that are accepted here as deliveries; when that fails, they go back."""
    try:
        return accepted(deliveries_of(claimed), worker_id)
    except Exception:
        transitions.release({row.id: row.delivery for row in claimed}, worker_id)
        raise


def give_own_leases(deliveries: list[Delivery], worker_id: str) -> None:
    """Write the leases of works that have one of their own, as a claim gives all of them the settings'.

    One that cannot be written now is due for renewal at once.
    """
    own = {delivery.lease for delivery in deliveries if delivery.has_own_lease}
    for lease in own:
        mine = {each.row.id: each for each in deliveries if each.lease == lease}
        held = {id: each.row.delivery for id, each in mine.items()}
        try:
            now = time.monotonic()
            for id in locks.renew(held, worker_id, later(clock.now(), lease)):
                mine[id].renew(now)
        except Error as error:
            report(error, "queue", f"{len(mine)} leases could not be written at once")


def deliveries_of(rows: list[WorkRow]) -> list[Delivery]:
    """Return claimed rows as deliveries."""
    lease = get_settings().lease
    return [Delivery(row, lease) for row in rows]
