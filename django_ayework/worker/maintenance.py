"""The maintenance thread: what a worker does for the fleet, and for its own works besides running them.

All of it is bounded: a page at a time. Nothing here is waited for by claims, outcomes or leases.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db import Error, connections

from django_ayework.conf import get_settings
from django_ayework.flow.controls import queue_continuous
from django_ayework.flow.dependencies import recheck_leftovers
from django_ayework.flow.effects import report_unhandled
from django_ayework.flow.events import report
from django_ayework.flow.maintenance import PRUNE_BATCH, expire_gates, prune, reclaim, sweep_page
from django_ayework.flow.notify import publish_released, settled_groups
from django_ayework.flow.services import EngineServices
from django_ayework.heartbeat import Heartbeat, project_code
from django_ayework.rules.controls import EVERYTHING, Controls, Scope
from django_ayework.store import transitions
from django_ayework.store.attempts import write_progress
from django_ayework.store.clock import clock
from django_ayework.store.database import is_contention
from django_ayework.store.lanes import Poll
from django_ayework.store.resolution import Place
from django_ayework.store.rows import WorkRow
from django_ayework.worker import bounds
from django_ayework.worker.delivery import Delivery, abort_lost
from django_ayework.worker.health import Presence
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.threads import EngineThread, Recovery

TICK = 0.25
#: Seconds between two looks at the duties while no work is held and nobody calls.
REST = 1.0
#: Seconds between two attempts to reach a database that is away; less when leases are short.
LONGEST_PAUSE = 5.0
#: Seconds between two looks of a thread that waits for this one.
SHORT = 0.005
STALE_AFTER = 1.0
NOTICED_AFTER = 1.0
ORPHAN_GRACE = 0.1
#: Seconds for which workers leave lapsed leases alone after the database was away, as all of them may have
#: been cut off, and come back one after the other.
LONGEST_PATIENCE = 6.0
#: Seconds for which a lapsed lease is remembered that could not be taken back.
SUSPECTED_FOR = 60.0


@dataclass(slots=True)
class Duty:
    """Something done every so many seconds; ``wanted`` says whether there is anything to do."""

    every: float
    act: Callable[[], object]
    due_at: float = 0.0
    wanted: Callable[[], object] = lambda: True


class Suspects:
    """Works whose leases have lapsed at one look. At the next look they are lost, if nobody has renewed them.

    A row that somebody has locked cannot be renewed. Its worker renews it within a moment of being free, and
    must not lose it in that moment.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, str | None], float] = {}
        #: Whether there are works that the last look has found first.
        self.wait = False

    @property
    def interval(self) -> float:
        """Seconds between the two looks: some ticks of the thread that renews leases."""
        return min(4 * TICK, get_settings().lease / 3)

    def are_confirmed_by(self, row: WorkRow) -> bool:
        """Tell whether a lapsed work has been found lapsed before; its row is locked."""
        now = time.monotonic()
        seen_at = self._seen.setdefault((row.id, row.delivery, row.worker), now)
        is_confirmed = now - seen_at >= self.interval
        self.wait |= not is_confirmed
        return is_confirmed

    def forget_old(self) -> None:
        """Begin another look; forget works that were not found for a while."""
        self.wait = False
        before = time.monotonic() - SUSPECTED_FOR
        self._seen = {key: seen_at for key, seen_at in self._seen.items() if seen_at > before}


class Maintenance:
    """A thread with duties; one that raises is reported and done again at its next turn.

    While the database is away, duties wait for longer and longer. Without a ``presence`` it looks after the
    works of this process alone, and leaves what is the fleet's to workers.
    """

    def __init__(
        self,
        worker_id: str,
        in_flight: InFlight,
        services: EngineServices,
        presence: Presence | None,
        scope: Scope = EVERYTHING,
    ) -> None:
        self.worker_id = worker_id
        self.in_flight = in_flight
        self.services = services
        self.presence = presence
        self.scope = scope
        self.thread = EngineThread("maintenance", self._serve)
        #: Runs the hook ``UNHANDLED_GROUP``, which may take any time; started with the first group.
        self.hooks = EngineThread("hooks", self._serve_hooks, waits_for_locks=True)
        #: What the last look of the claiming thread has found to do for the fleet.
        self._found: set[str] = set()
        self._intervals: Mapping[str, float] = {}
        #: Groups, and when their grace is over; None ends the thread.
        self._orphans: queue.SimpleQueue[tuple[str, float] | None] = queue.SimpleQueue()
        self._hooks_start = threading.Lock()
        self._doubtful: frozenset[str] | None = frozenset()
        self._stopping = threading.Event()
        self._bell = threading.Event()
        self._is_at_work = False
        self._patient_until = float("-inf")
        started = time.monotonic()
        self._pruning = Duty(30.0, self.prune, started + 20.0)
        self._sweeping = Duty(60.0, self.sweep, started + 30.0)
        self._swept_until: Place | None = None
        self._suspects = Suspects()
        self._reclaiming = Duty(0.0, self.reclaim, wanted=lambda: self._is_found("lapsed"))
        self.duties = [
            Duty(0.5, self.write_progress, wanted=lambda: services.has_progress),
            Duty(0.5, self.release_waiting),
            Duty(0.0, self.abort_doubtful),
            Duty(2.0, self.notice_losses),
            Duty(60.0, clock.synchronise, started + 60.0),
        ]
        if presence is not None:
            self.duties += [
                Duty(0.0, self.queue_continuous, wanted=lambda: self._intervals),
                self._reclaiming,
                Duty(0.0, self.recheck, wanted=lambda: self._is_found("recheck")),
                Duty(0.0, self.expire_gates, wanted=lambda: self._is_found("overdue")),
                Duty(10.0, self.beat, started + 10.0),
                self._sweeping,
                self._pruning,
            ]

    # --- from other threads -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        settled_groups.subscribe(self.group_settled)
        self.thread.start()

    def stop(self) -> None:
        """End the threads after their present turn."""
        settled_groups.unsubscribe(self.group_settled)
        self._stopping.set()
        self._bell.set()
        self._orphans.put(None)
        self.thread.join(bounds.LAST_DUTIES)
        self.hooks.join(bounds.LAST_DUTIES)

    def note(self, view: Poll, intervals: Mapping[str, float]) -> None:
        """Take over what a look has found to do for the fleet, and the continuous types to queue."""
        found = {name for name in ("lapsed", "recheck", "overdue") if getattr(view, name)}
        if found or intervals:
            self._found |= found
            self._intervals = intervals
            self._bell.set()

    def wait_until_done(self, timeout: float) -> None:
        """Wait until what was noted is done, at most so many seconds."""
        until = time.monotonic() + timeout
        while (self._found or self._intervals or self._is_at_work) and time.monotonic() < until:
            time.sleep(SHORT)

    def group_settled(self, groups: list[str]) -> None:
        """Note groups that settled here, for the hook ``UNHANDLED_GROUP``."""
        if groups and get_settings().unhandled_group is not None:
            due = time.monotonic() + ORPHAN_GRACE
            for group in groups:
                self._orphans.put((group, due))
            with self._hooks_start:  # outcomes settle in several threads
                if not self.hooks.was_started and not self._stopping.is_set():
                    self.hooks.start()

    def doubt(self, ids: frozenset[str] | None) -> None:
        """Note that these works, or None for any, may have been taken from us; any thread may say so.

        Only a name is worth a turn at once: anything that is committed may be the reason for the rest.
        """
        if ids is None or self._doubtful is None:
            self._doubtful = None
        elif not self.in_flight.ids().isdisjoint(ids):
            self._doubtful |= ids
            self._bell.set()

    def release_paused(self, controls: Controls) -> None:
        """Release works that were claimed before an operator paused their type or queue."""
        waiting = [delivery for delivery in self.in_flight.all() if delivery.started_at is None]
        self.release([d for d in waiting if not controls.permits(d.row.queue, d.type)])

    # --- the loop -----------------------------------------------------------------------------------------

    def _serve(self, heartbeat: Heartbeat) -> None:
        recovery = Recovery(TICK, min(LONGEST_PAUSE, get_settings().lease / 6))
        pause = TICK
        while not self._stopping.is_set():
            heartbeat.beat(rest=pause)
            if pause > TICK:
                self._stopping.wait(pause)  # nobody may call: the database is away
            self._bell.wait(TICK if self.in_flight.active else REST)
            self._bell.clear()
            heartbeat.beat()
            pause = self._turn(recovery)
            if not self.in_flight.active:  # between the few duties at rest nothing needs a connection
                connections.close_all()

    def _turn(self, recovery: Recovery) -> float:
        """Do what is due; return how many seconds to wait until the next turn."""
        for duty in self.duties:
            now = time.monotonic()
            if now < duty.due_at or not duty.wanted():
                continue
            duty.due_at = max(duty.due_at + duty.every, now)  # those that were due together stay so
            self._is_at_work = True
            try:
                duty.act()
                recovery.succeed()
            except Exception as error:
                if self._failed(duty, error, recovery):
                    return recovery.fail()
            finally:
                self._is_at_work = False
        return TICK

    def _failed(self, duty: Duty, error: Exception, recovery: Recovery) -> bool:
        """Report a duty that failed; return whether the database is to blame, so that others wait, too.

        A row that somebody else has locked is not worth a word: the duty is done again.
        """
        if isinstance(error, Error) and is_contention(error):
            return False
        name = getattr(duty.act, "__name__", duty.act)
        report(error, "queue", f"the maintenance duty {name} failed", brief=recovery.goes_on)
        connections.close_all()
        if not isinstance(error, Error):
            return False
        self.be_patient()
        return True

    # --- duties -------------------------------------------------------------------------------------------

    def _is_found(self, name: str) -> bool:
        """Tell whether a look has found this to do."""
        return name in self._found

    def reclaim(self) -> None:
        """Take back works that are served here and whose leases have lapsed, unless the database was away."""
        self._found.discard("lapsed")
        if time.monotonic() < self._patient_until:
            return
        self._suspects.forget_old()
        reclaim(self.in_flight.ids(), self._suspects.are_confirmed_by, self.scope)
        if self._suspects.wait:
            self._found.add("lapsed")
            self._reclaiming.due_at = time.monotonic() + self._suspects.interval

    def be_patient(self) -> None:
        """Leave lapsed leases alone for a while: the database was away, for other workers perhaps, too."""
        self._patient_until = time.monotonic() + min(LONGEST_PATIENCE, get_settings().lease / 3)

    def recheck(self) -> None:
        """Recheck waiters whose transaction has left that to a worker."""
        self._found.discard("recheck")
        recheck_leftovers()

    def expire_gates(self) -> None:
        """End waiters that are past their deadline."""
        self._found.discard("overdue")
        expire_gates()

    def queue_continuous(self) -> None:
        """Queue the next works of continuous types."""
        intervals, self._intervals = self._intervals, {}
        queue_continuous(intervals)

    def notice_losses(self) -> None:
        """See whether works that run for a while were cancelled or completed by somebody else."""
        before = time.monotonic() - NOTICED_AFTER
        abort_lost([d for d in self.in_flight.all() if d.started_at and d.started_at < before])

    def abort_doubtful(self) -> None:
        """See at once whether works were taken that somebody says were, as that may be old or untrue."""
        doubtful, self._doubtful = self._doubtful, frozenset()
        if doubtful is None or doubtful:
            abort_lost([d for d in self.in_flight.all() if doubtful is None or d.row.id in doubtful])

    def release_waiting(self) -> None:
        """Release works that were claimed and wait behind slow ones."""
        self.release(self.in_flight.waiting_longer_than(STALE_AFTER))

    def release(self, waiting: list[Delivery]) -> None:
        """Release those of these works that have not started meanwhile; no attempt is spent."""
        withdrawn = [delivery for delivery in waiting if delivery.withdraw()]
        if not withdrawn:
            return
        try:
            transitions.release({d.row.id: d.row.delivery for d in withdrawn}, self.worker_id)
        finally:
            self.in_flight.give_back(withdrawn)
        publish_released(delivery.row for delivery in withdrawn)

    def write_progress(self) -> None:
        """Write down the latest progress of running works."""
        latest = self.services.take_progress()
        held = {delivery.row.id: delivery.row.delivery for delivery in self.in_flight.all()}
        write_progress({id: (held[id], text) for id, text in latest.items() if id in held})

    def beat(self) -> None:
        """Tell that this worker is alive."""
        if self.presence is not None:
            self.presence.beat(self.in_flight.active)

    def prune(self) -> None:
        """Delete one page of what has been kept long enough; the next at once while there is a lot."""
        if prune() >= PRUNE_BATCH:
            self._pruning.due_at = 0.0

    def sweep(self) -> None:
        """Sweep one page of the blocked works; the next at once, until all were swept."""
        self._swept_until = sweep_page(self._swept_until).next
        if self._swept_until is not None:
            self._sweeping.due_at = 0.0

    # --- hooks --------------------------------------------------------------------------------------------

    def _serve_hooks(self, heartbeat: Heartbeat) -> None:
        """Call ``UNHANDLED_GROUP`` for settled groups that nobody waited for, once their grace is over."""
        heartbeat.beat(rest=math.inf)
        while (orphan := self._orphans.get()) is not None:
            group, due = orphan
            self._stopping.wait(max(0.0, due - time.monotonic()))
            heartbeat.beat()
            with project_code():
                report_unhandled(group)
            heartbeat.beat(rest=math.inf)
