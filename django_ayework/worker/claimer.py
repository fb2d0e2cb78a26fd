"""Claiming for one process: which queues, in which order, how many works; and the commands that polls read.

A *poll* is one statement that looks for due works and chores. At rest there is one poll per interval; while
works keep coming, and while messages say where they are due, works are claimed without a poll.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import Error

from django_ayework.conf import get_settings
from django_ayework.define.types import registry
from django_ayework.flow.controls import current_controls
from django_ayework.flow.hooks import report
from django_ayework.flow.notify import receives_remote
from django_ayework.flow.sending import push_pending
from django_ayework.logs import logger
from django_ayework.rules.controls import Controls, Scope
from django_ayework.rules.notifications import Due, Place
from django_ayework.store import processes, transitions
from django_ayework.store.database import clock
from django_ayework.store.lanes import Lane, Poll, lanes_of, pages_of_lanes, poll
from django_ayework.store.rows import WorkRow
from django_ayework.worker.admission import accepted
from django_ayework.worker.arrivals import Arrivals
from django_ayework.worker.dispatch import (
    NO_BATCH_ROOM,
    Capacity,
    Claim,
    ClaimGroup,
    DoerRoom,
    claim_groups_of,
    claim_of,
    slots_of,
)
from django_ayework.worker.health import WorkerRegistration
from django_ayework.worker.in_flight import Delivery
from django_ayework.worker.maintenance import MaintenanceThread, Scheduler
from django_ayework.worker.threads import Failures
from django_ayework.worker.wakeups import WakeUps

#: Seconds of work to hold ready. Long works are never held back from idle workers for longer than this.
READY_FOR = 0.1
MOST_READY = 500
#: The weight of a new measurement in the average. A higher rate counts a lot, so that the worker soon claims
#: many works at once when a flood begins. A lower rate counts little, as it may be a short pause.
RISING, FALLING = 0.5, 0.1
MEASURE_EVERY = 0.01


@dataclass
class Prefetch:
    """Measures how fast works end here, and says how many to hold: as many as start within a moment."""

    concurrency: int
    rate: float = 0.0
    _finished: int = 0
    _measured_at: float = field(default_factory=time.monotonic)

    def target(self, finished: int) -> int:
        """Return how many works to hold, running ones included, by the count of ended attempts."""
        elapsed = time.monotonic() - self._measured_at
        if elapsed >= MEASURE_EVERY:
            current = (finished - self._finished) / elapsed
            self.rate += (RISING if current > self.rate else FALLING) * (current - self.rate)
            self._finished, self._measured_at = finished, time.monotonic()
        return self.concurrency + min(MOST_READY, int(self.rate * READY_FOR))


#: Queues to find at a time: each claim goes through all of them.
ENOUGH = 100


def lanes_once_round(behind: str) -> Iterator[list[Lane]]:
    """Yield the lanes of all queues, those behind this one first."""
    yield from pages_of_lanes(behind, ENOUGH)
    for lanes in pages_of_lanes("", ENOUGH) if behind else ():
        yield [lane for lane in lanes if lane.queue <= behind]
        if lanes[-1].queue >= behind:
            return


@dataclass(eq=False)
class Commands:
    """Obeys the commands of one worker, which its polls read.

    A quiet worker claims nothing more. What runs goes on, and all other duties of the worker go on, too.
    """

    registration: WorkerRegistration
    maintenance: MaintenanceThread
    request_stop: Callable[[], object]
    #: Whether a command has stopped the worker, so that nobody is to start another in its place.
    has_stopped: bool = False

    def obey(self, command: str) -> None:
        """Obey a command; an unknown one, of a newer version, is left alone.

        A command to stop stays until the worker signs off: so the admin shows that it stops. That another one
        was obeyed is noted last: a worker that fails before it reads the command again, and obeys again.
        """
        worker_id = self.registration.worker_id
        if command == "stop":
            logger.info("Worker %s was told to stop.", worker_id)
            self.has_stopped = True
            self.request_stop()
        elif command in ("quiet", "resume"):
            self.registration.quiet = command == "quiet"
            if self.registration.quiet:
                self.maintenance.release_unstarted()
            processes.note_obeyed(worker_id, command, self.registration.quiet)
            logger.info("Worker %s was told: %s.", worker_id, command)


DUE_BATCH = 500
#: An idle worker that receives notifications of others polls once in so many ``POLL_INTERVAL``.
LONG_REST = 3
#: Seconds between two polls for something that no message could name, while there are works to claim.
POLL_AGAIN_AFTER = 0.05


@dataclass(eq=False)
class Claimer:
    """Finds due works for one worker, and claims them.

    The maintenance thread and the scheduler are given what a poll has found to do for them.
    """

    worker_id: str
    scope: Scope
    #: Set when messages say that works are due.
    wake: threading.Event
    room_of_doer: DoerRoom
    maintenance: MaintenanceThread
    scheduler: Scheduler
    commands: Commands
    #: None for a worker that no ids are delivered to.
    arrivals: Arrivals | None
    controls: Controls = field(default_factory=Controls)
    #: Where works are due, as far as the last poll and the messages since have said.
    claim_groups: list[ClaimGroup] = field(default_factory=list)
    #: Types with due works that are at their limit, or whose control another transaction holds.
    held_back: set[str] = field(default_factory=set)
    next_start: datetime | None = None
    _controls_version: tuple[int, ...] | None = None
    #: The intervals of the continuous types served here that are not paused.
    _intervals: dict[str, float] = field(default_factory=dict)
    #: The last queue that was found. The next search goes on behind it.
    _found_until: str = ""
    _turn: int = 0
    _polled_at: float = float("-inf")
    _poll_was_put_off: bool = False
    #: Whether works have ended that let others be claimed.
    _room_made: bool = False
    #: Whether a message said that something is due, but not where.
    _anything_due: bool = False
    #: Whether the last poll found works to be claimed from the table.
    _had_lanes: bool = False
    #: Whether another transaction holds the control of a type.
    _is_contended: bool = False
    _was_cut_off: bool = False
    #: The failures of the hook ``ACCEPT``.
    _failures: Failures = field(default_factory=Failures)

    def __post_init__(self) -> None:
        #: Works that are due according to messages.
        self.wake_ups = WakeUps(self.worker_id, self.scope, self.wake)

    def claim(
        self, wanted: int, room: Mapping[str, int] = NO_BATCH_ROOM, most: int = sys.maxsize
    ) -> list[Delivery]:
        """Lease works for ``wanted`` slots, and as many as doers have room for.

        Each claim group gets as much as the others with the same doer, or without one; another one is first
        each time. ``room`` is what batches that gather take besides, by type; ``most`` bounds the number of
        works. Claimed works run: an error at a later claim may not strand them until their leases lapse.
        """
        if self.is_quiet:
            self.poll_if_due()
            return []
        began = time.monotonic()
        if self._controls_version is None:  # a message may name works of a type that is limited or paused
            self.poll()
        claimed: list[WorkRow] = []
        try:
            if self.arrivals is not None:
                for rows in self.arrivals.claim(min(wanted, most), self.worker_id, self.controls):
                    claimed += rows
            self._claim_from_table(claimed, wanted, room, most)
        except Exception as error:
            if not claimed:
                raise
            report(error, "queue", "not all works could be claimed")
        return as_deliveries(claimed, self.worker_id, began, self._failures)

    def _claim_from_table(
        self, claimed: list[WorkRow], wanted: int, room: Mapping[str, int], most: int
    ) -> None:
        """Add to what is claimed, after a poll if that is due; see ``claim()``."""
        if self._must_poll(has_arrived=bool(claimed)):
            self.poll()
        if not self.claim_groups:
            return
        capacity = Capacity(wanted - len(claimed), self.room_of_doer)
        self._turn += 1
        first = self._turn % len(self.claim_groups)
        for claim_group in self.claim_groups[first:] + self.claim_groups[:first]:
            slots = capacity.of(claim_group, self.claim_groups)
            rows = self._claim_from(claim_group, slots, room, most - len(claimed))
            works = Counter(row.type for row in rows)
            capacity.take(claim_group, sum(slots_of(type, works[type], room) for type in works))
            claimed += rows

    def ask_for_ids(self, wanted: int) -> None:
        """Ask for the ids of works for so many slots, of which the claim groups get their part."""
        if self.arrivals is not None:
            part = -(-wanted // (len(self.claim_groups) + 1))
            self.arrivals.ask(0 if self.is_quiet else part)

    def _claim_from(
        self, claim_group: ClaimGroup, slots: int, room: Mapping[str, int], most: int
    ) -> list[WorkRow]:
        """Lease works of a claim group; types without more works or room leave it until the next poll.

        Types with a limit count as held back meanwhile. A work of theirs that ends after the running ones
        were counted makes room, and may be the last to end.
        """
        limited = {type for type in claim_group.types if self.controls.of(type).max_running}
        self.held_back |= limited
        claimed = claim_of(Claim(claim_group, slots, self.worker_id, room, most), self.controls)
        self.held_back -= limited - claimed.full - claimed.contended
        self._is_contended |= bool(claimed.contended)
        if done := claimed.full | claimed.empty | claimed.contended:
            rest = claim_group.without(done)
            updated = [rest if each is claim_group else each for each in self.claim_groups]
            self.claim_groups = [each for each in updated if each is not None]
        return claimed.rows

    def may_claim_more(self, wanted: int) -> bool:
        """Tell whether there is likely more to claim, for so many slots or for a doer."""
        capacity = Capacity(wanted, self.room_of_doer)
        return any(capacity.of(claim_group, self.claim_groups) > 0 for claim_group in self.claim_groups)

    def left(self) -> set[Place]:
        """Return where there are works that the last claim has not taken, as far as is known here."""
        named = {place for message in self.wake_ups.taken for place in message.due.places or ()}
        return {*self._known_lanes(), *(place for place in named if place[1] in self.held_back)}

    def _known_lanes(self) -> set[Lane]:
        return {Lane(each.queue, type) for each in self.claim_groups for type in each.types}

    def make_room(self, types: Iterable[str]) -> bool:
        """Note that works of these types have ended; return whether that lets others be claimed."""
        if not self.held_back or self.held_back.isdisjoint(types):
            return False
        self._room_made = True
        return True

    def _must_poll(self, has_arrived: bool) -> bool:
        """Tell whether to poll before claiming; works that messages name are claimed without a poll.

        A poll that is due by time is put off for that, or for works whose ids have arrived, but not twice.
        One for something that no message could name waits a moment while there are other works: on SQLite
        every commit is such a thing. So does one for types whose control was held by another transaction.
        """
        due = self.wake_ups.take()
        self._anything_due |= due.places is None
        has_works = self.note_due(due) or has_arrived
        self._poll_was_put_off = has_works and not self._poll_was_put_off and due.places is not None
        if self._poll_was_put_off:
            return False
        if self.poll_is_due() or not (self.awaits_ids or self.may_claim_more(1)):
            return True
        waits = self._anything_due or self._is_contended
        return waits and time.monotonic() - self._polled_at >= POLL_AGAIN_AFTER

    def note_due(self, due: Due) -> bool:
        """Serve the lanes that are said to have works, and note the next start; return whether any is new."""
        if due.start is not None:
            start = datetime.fromtimestamp(due.start, UTC)
            self.next_start = start if self.next_start is None else min(self.next_start, start)
        if not due.places:
            return False
        known = self._known_lanes()
        lanes = {Lane(*place) for place in due.places if place[1] not in self.held_back}
        if lanes <= known:
            return False
        self.claim_groups = claim_groups_of(sorted(known | lanes), self.controls)
        return True

    @property
    def awaits_ids(self) -> bool:
        """Whether the worker waits for ids alone: the last poll found nothing to claim from the table."""
        return self.arrivals is not None and not self._had_lanes

    @property
    def is_quiet(self) -> bool:
        """Whether the worker was told to claim nothing."""
        return self.commands.registration.quiet

    def poll_if_due(self) -> None:
        """Poll without claiming, if that is due, or of a quiet worker if a message asks all workers to.

        Gates expire and works are rescued, however busy the slots are.
        """
        if self.is_quiet:  # messages are taken to see whether to poll, and left to other workers to answer
            self._anything_due |= self.wake_ups.take().places is None
            self.wake_ups.taken = ()
        is_asked = self.is_quiet and self._anything_due
        if self.poll_is_due() or (is_asked and time.monotonic() - self._polled_at >= POLL_AGAIN_AFTER):
            self.poll()

    def poll_is_due(self) -> bool:
        """Tell whether the last poll is an interval ago, or ended works have made room."""
        return self._room_made or time.monotonic() - self._polled_at >= get_settings().poll_interval

    def poll(self) -> None:
        """Poll; make due works pending, and hand chores to other threads."""
        now = clock.now()
        self._polled_at = time.monotonic()
        self._room_made = self._anything_due = self._is_contended = False
        view = self._read(now)
        if view.next_start is not None and view.next_start <= now:
            push_pending(transitions.make_pending(now, DUE_BATCH))
            view = poll(now, self.scope, self.worker_id)
        controls_changed = view.controls != self._controls_version
        if controls_changed:
            self.controls, self._controls_version = current_controls(), view.controls
        self._intervals = {
            type: control.interval
            for type, control in self.controls.types.items()
            if control.interval is not None
            and not control.paused
            and self.scope.serves_type(type)
            and registry.find(type) is not None
        }
        if controls_changed:
            permits = self.controls.permits
            self.maintenance.release_unstarted(lambda each: not permits(each.row.queue, each.type))
        self.maintenance.note(view, self._intervals)
        self.scheduler.note(view.schedules)
        if view.command:
            self.commands.obey(view.command)
        self.next_start = view.next_start
        self.held_back.clear()
        has_works = view.first_queue is not None and not self.is_quiet
        lanes = self._find_lanes() if has_works else []
        if self.arrivals is not None:
            lanes = self.arrivals.without_pushed(lanes, self.controls)
        self._had_lanes = bool(lanes)
        self.claim_groups = claim_groups_of(lanes, self.controls)
        self.wake_ups.read_others()

    def _read(self, now: datetime) -> Poll:
        """Query; after a time without the database, other workers get a moment to renew their leases."""
        try:
            view = poll(now, self.scope, self.worker_id)
        except Error:
            self._was_cut_off = True
            raise
        if self._was_cut_off:
            self.maintenance.postpone_reclaim()
        self._was_cut_off = False
        return view

    def _find_lanes(self) -> list[Lane]:
        """Return lanes that the worker serves and that are not paused; none only if there are none.

        A worker of all queues finds about ``ENOUGH`` queues at a time, each in its turn: so a search costs
        the same however many queues there are.
        """

        def wanted(lanes: list[Lane]) -> list[Lane]:
            return [lane for lane in lanes if self.scope.serves(lane) and self.controls.permits(*lane)]

        if self.scope.queues:
            return wanted(lanes_of(self.scope.queues))
        found: list[Lane] = []
        for lanes in lanes_once_round(self._found_until):
            found += wanted(lanes)
            if len({lane.queue for lane in found}) >= ENOUGH:
                self._found_until = lanes[-1].queue
                return found
        self._found_until = ""
        return found

    def is_idle(self) -> bool:
        """Tell whether the last poll found nothing due that this worker may run; works at a limit may not."""
        return not self.claim_groups and (self.next_start is None or self.next_start > clock.now())

    def pause(self) -> float:
        """Return how many seconds to rest when there was nothing: an interval, or until the next start.

        The rest is longer if messages would say that something is due; but no message names lapsed leases.
        It is shorter while another transaction holds the control of a type, and when a message has said that
        something is due without a poll since.
        """
        settings = get_settings()
        pause = settings.poll_interval
        knows_of_works = self.claim_groups or self.held_back or self._intervals
        is_told = self.arrivals is None and receives_remote()  # an id that is lost is found by a poll alone
        if is_told and not knows_of_works and not self.is_quiet:
            pause = max(pause, min(LONG_REST * pause, settings.lease / 6))
        pause *= random.uniform(0.9, 1.1)  # noqa: S311  # spreads the fleet
        if self._is_contended or self._anything_due:
            pause = min(pause, POLL_AGAIN_AFTER)
        if self.next_start is not None:
            pause = min(pause, max(0.0, (self.next_start - clock.now()).total_seconds()))
        return pause


def as_deliveries(claimed: list[WorkRow], worker_id: str, began: float, failures: Failures) -> list[Delivery]:
    """Return claimed rows that are accepted here as deliveries; when that fails, they go back."""
    try:
        return accepted(deliveries_of(claimed, began), worker_id, failures)
    except Exception:
        transitions.release({row.id: row.delivery for row in claimed}, worker_id)
        raise


def deliveries_of(rows: list[WorkRow], began: float | None = None) -> list[Delivery]:
    """Return rows as deliveries; their claim began at ``began``, or now.

    Their leases count from there: the answer may come late, as on SQLite, where a claim waits for the lock.
    """
    lease = get_settings().lease
    return [Delivery(row, lease, began) for row in rows]
