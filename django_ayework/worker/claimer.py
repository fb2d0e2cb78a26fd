"""Claiming for one process: which queues, in which order, how many works.

A *poll* is one statement that finds out what there is to do. At rest there is one poll per interval; while
works keep coming, and while messages say where they are due, works are claimed without a poll.
"""

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
from django_ayework.flow.notify import hears_others
from django_ayework.rules.controls import Controls, Scope
from django_ayework.rules.durations import later
from django_ayework.rules.notifications import Due, Place
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.lanes import Lane, lanes_of, pages_of_lanes
from django_ayework.store.poll import Look, look
from django_ayework.store.rows import WorkRow
from django_ayework.worker.allocation import (
    NO_ROOM,
    Capacity,
    Claim,
    ClaimGroup,
    Room,
    claim_groups_of,
    claim_of,
    no_room,
    slots_for,
)
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.limits import accepted
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.scheduler import Scheduler
from django_ayework.worker.wakeups import DueInbox, Fleet

# --- how many works to hold -------------------------------------------------------------------------------

#: Seconds of work to hold ready. Long works are never held back from idle workers for longer than this.
READY_FOR = 0.1
MOST_READY = 500
#: How much of a new measurement counts: one that is higher much, so that the first thousand of a flood are
#: not claimed by the dozen, one that is lower little, as that may be a moment's rest.
RISING, FALLING = 0.5, 0.1
MEASURE_EVERY = 0.01


class Prefetch:
    """Measures how fast works end here, and says how many to hold: as many as start within a moment."""

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


# --- which lanes to claim from ----------------------------------------------------------------------------

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


# --- claiming ---------------------------------------------------------------------------------------------

STAGE_BATCH = 500
#: Polls' intervals between two polls of a worker that has nothing to do, and receives messages of others.
LONG_REST = 3
#: Seconds between two polls for something that no message could name, while there are works to claim.
POLL_AGAIN_AFTER = 0.05


class Claimer:
    """Finds due works for one worker, and claims them.

    The maintenance thread and the scheduler are given what a poll has found to do for them.
    """

    def __init__(
        self,
        worker_id: str,
        scope: Scope,
        room_of_doer: Room = no_room,
        maintenance: MaintenanceThread | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.worker_id = worker_id
        self.scope = scope
        self.controls = Controls()
        #: Where works are due, as far as the last poll and the messages since have said.
        self.claim_groups: list[ClaimGroup] = []
        #: Types with due works that are at their limit, or whose control another transaction holds.
        self.held_back: set[str] = set()
        self.next_start: datetime | None = None
        #: Works that are due according to messages.
        self.inbox = DueInbox(scope)
        self.fleet = Fleet(worker_id)
        self._room_of_doer = room_of_doer
        self._maintenance = maintenance
        self._scheduler = scheduler
        self._controls_version: tuple[int, int] | None = None
        self._turn = 0
        self._search = LaneSearch()
        self._polled_at = float("-inf")
        self._poll_was_put_off = False
        #: Whether works have ended that let others be claimed.
        self._room_made = False
        #: Whether a message said that something is due, but not where.
        self._anything_due = False
        #: Whether another transaction holds the control of a type.
        self._is_contended = False
        self._was_cut_off = False

    def claim(
        self, wanted: int, room: Mapping[str, int] = NO_ROOM, most: int | None = None
    ) -> list[Delivery]:
        """Lease works for ``wanted`` slots, and as many as doers have room for.

        Each claim group gets as much as the others with the same doer, or without one; another one is first
        each time. ``room`` is what batches that gather take besides, by type; ``most`` bounds the number of
        works. Claimed works run: an error at a later claim may not strand them until their leases lapse.
        """
        if self.must_poll():
            self.poll()
        claimed: list[WorkRow] = []
        capacity = Capacity(wanted, self._room_of_doer)
        self._turn += 1
        first = self._turn % len(self.claim_groups) if self.claim_groups else 0
        for claim_group in self.claim_groups[first:] + self.claim_groups[:first]:
            slots = capacity.of(claim_group, self.claim_groups)
            try:
                rows = self._claim_from(
                    claim_group, slots, room, None if most is None else most - len(claimed)
                )
            except Exception as error:
                if not claimed:
                    raise
                report(error, "queue", f"the queue {claim_group.queue!r} could not be claimed from")
                break
            capacity.take(claim_group, slots_for((row.type for row in rows), room))
            claimed += rows
        return delivered(claimed, self.worker_id)

    def _claim_from(
        self, claim_group: ClaimGroup, slots: int, room: Mapping[str, int], most: int | None
    ) -> list[WorkRow]:
        """Lease works of a claim group; types without more works or room leave it until the next poll."""
        now = clock.now()
        lease = later(now, get_settings().lease)
        claimed = claim_of(Claim(claim_group, slots, self.worker_id, now, lease, room, most), self.controls)
        self.held_back |= claimed.full | claimed.contended
        self._is_contended |= bool(claimed.contended)
        if done := claimed.full | claimed.empty | claimed.contended:
            rest = claim_group.without(done)
            updated = [rest if each is claim_group else each for each in self.claim_groups]
            self.claim_groups = [each for each in updated if each is not None]
        return claimed.rows

    def may_claim_more(self, wanted: int) -> bool:
        """Tell whether there is likely more to claim, for so many slots or for a doer."""
        capacity = Capacity(wanted, self._room_of_doer)
        return any(capacity.of(claim_group, self.claim_groups) > 0 for claim_group in self.claim_groups)

    def left(self) -> set[Place]:
        """Return where there are works that the last claim has not taken, as far as is known here."""
        known = {(claim_group.queue, type) for claim_group in self.claim_groups for type in claim_group.types}
        named = {place for message in self.inbox.taken for place in message.due.places or ()}
        return known | {place for place in named if place[1] in self.held_back}

    def make_room(self, types: Iterable[str]) -> bool:
        """Note that works of these types have ended; return whether that lets others be claimed."""
        if not self.held_back or self.held_back.isdisjoint(types):
            return False
        self._room_made = True
        return True

    # --- polling ------------------------------------------------------------------------------------------

    def must_poll(self) -> bool:
        """Tell whether to poll before claiming; works that messages name are claimed without a poll.

        A poll that is due by time is put off for that, but not twice. One for something that no message could
        name waits a moment while there are other works: on SQLite every commit is such a thing. So does one
        for types whose control was held by another transaction.
        """
        due = self.inbox.take()
        self._anything_due |= due.places is None
        self._poll_was_put_off = self.note_due(due) and not self._poll_was_put_off and due.places is not None
        if self._poll_was_put_off:
            return False
        if self.poll_is_due() or self._only_full_doers():
            return True
        waits = self._anything_due or self._is_contended
        return waits and time.monotonic() - self._polled_at >= POLL_AGAIN_AFTER

    def note_due(self, due: Due) -> bool:
        """Serve the lanes that are said to have works, and note the next start; return whether any is new."""
        if due.start is not None:
            start = datetime.fromtimestamp(due.start, UTC)
            self.next_start = start if self.next_start is None else min(self.next_start, start)
        known = {
            Lane(claim_group.queue, type) for claim_group in self.claim_groups for type in claim_group.types
        }
        lanes = {Lane(*place) for place in due.places or () if place[1] not in self.held_back}
        if lanes <= known:
            return False
        self.claim_groups = claim_groups_of(sorted(known | lanes), self.controls)
        return True

    def poll_is_due(self) -> bool:
        """Tell whether the last poll is an interval ago, or ended works have made room."""
        return self._room_made or time.monotonic() - self._polled_at >= get_settings().poll_interval

    def poll(self) -> None:
        """Find out what there is to do; stage what has become due, and hand the rest to other threads."""
        now = clock.now()
        self._polled_at = time.monotonic()
        self._room_made = self._anything_due = self._is_contended = False
        view = self._look(now)
        if view.next_start is not None and view.next_start <= now:
            transitions.stage(now, STAGE_BATCH)
            view = look(now, self.scope)
        controls_changed = view.controls != self._controls_version
        if controls_changed:
            self.controls, self._controls_version = current_controls(), view.controls
        if self._maintenance is not None:
            if controls_changed:
                self._maintenance.release_paused(self.controls)
            self._maintenance.note(view, self.intervals())
        if self._scheduler is not None:
            self._scheduler.note(view.schedules)
        self.next_start = view.next_start
        self.held_back.clear()
        lanes = [] if view.first_queue is None else self._search.find(self.scope, self.controls.permits)
        self.claim_groups = claim_groups_of(lanes, self.controls)
        self.fleet.refresh()

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

    def is_idle(self) -> bool:
        """Tell whether the last poll found nothing due that this worker may run; works at a limit may not."""
        return not self.claim_groups and (self.next_start is None or self.next_start > clock.now())

    def pause(self) -> float:
        """Return how many seconds to rest when there was nothing: an interval, or until the next start.

        The rest is longer if messages would say that something is due; but no message tells of lapsed leases.
        It is shorter while another transaction holds the control of a type.
        """
        settings = get_settings()
        pause = settings.poll_interval
        knows_of_works = self.claim_groups or self.held_back or self.intervals()
        if not knows_of_works and hears_others():
            pause = max(pause, min(LONG_REST * pause, settings.lease / 6))
        pause *= random.uniform(0.9, 1.1)  # noqa: S311  # spreads the fleet
        if self._is_contended:
            pause = min(pause, POLL_AGAIN_AFTER)
        if self.next_start is not None:
            pause = min(pause, max(0.0, (self.next_start - clock.now()).total_seconds()))
        return pause

    def _look(self, now: datetime) -> Look:
        """Query; after a time without the database, other workers get a moment to renew their leases."""
        try:
            view = look(now, self.scope)
        except Error:
            self._was_cut_off = True
            raise
        if self._was_cut_off and self._maintenance is not None:
            self._maintenance.postpone_reclaim()
        self._was_cut_off = False
        return view

    def _only_full_doers(self) -> bool:
        """Tell whether only a poll can find works: known ones, if any, are for doers without room."""
        return all(
            claim_group.doer is not None and self._room_of_doer(claim_group.doer) <= 0
            for claim_group in self.claim_groups
        )


def delivered(claimed: list[WorkRow], worker_id: str) -> list[Delivery]:
    """Return claimed rows that are accepted here as deliveries; when that fails, they go back."""
    try:
        return accepted(deliveries_of(claimed), worker_id)
    except Exception:
        transitions.release({row.id: row.delivery for row in claimed}, worker_id)
        raise


def deliveries_of(rows: list[WorkRow]) -> list[Delivery]:
    """Return claimed rows as deliveries."""
    lease = get_settings().lease
    return [Delivery(row, lease) for row in rows]
