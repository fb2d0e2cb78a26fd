"""The maintenance thread: what a worker does for the fleet, and for its own works besides running them.

All of it is bounded: a page at a time. No claim, outcome or lease waits for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db import Error, connections

from django_ayework.conf import get_settings
from django_ayework.flow.controls import queue_continuous
from django_ayework.flow.effects import add_group_listener, remove_group_listener, report_unhandled
from django_ayework.flow.events import report
from django_ayework.flow.maintenance import PRUNE_BATCH, expire_gates, prune, reclaim, sweep_page
from django_ayework.flow.notify import notify_others
from django_ayework.flow.recheck import recheck_leftovers
from django_ayework.flow.services import EngineServices
from django_ayework.heartbeat import project_code
from django_ayework.rules.controls import EVERYTHING, Controls, Scope
from django_ayework.store import transitions
from django_ayework.store.attempts import write_progress
from django_ayework.store.clock import clock
from django_ayework.store.database import is_contention
from django_ayework.store.poll import Look
from django_ayework.store.resolution import Place
from django_ayework.store.rows import WorkRow
from django_ayework.worker.delivery import Delivery, abort_lost
from django_ayework.worker.health import WorkerRegistration
from django_ayework.worker.in_flight import TICK, InFlight, deliveries_by_id, recovery_within_lease
from django_ayework.worker.threads import LoopThread, Recovery

#: Seconds between two turns while no work is held and nothing wakes the thread.
REST = 1.0
#: Seconds between two checks of a thread that waits for this one.
SHORT = 0.005
#: Seconds for which a claimed work may wait behind slow ones before it is given back.
STALE_AFTER = 1.0
#: Seconds after which a running work is checked for having been cancelled or completed elsewhere.
NOTICED_AFTER = 1.0
#: Seconds for which ``UNHANDLED_GROUP`` is put off, as a caller may be about to wait for the group.
ORPHAN_GRACE = 0.1
#: Seconds for which workers leave lapsed leases alone after the database was away, as all of them may have
#: been cut off, and come back one after the other.
LONGEST_PATIENCE = 6.0
#: Seconds for which a lapsed lease is remembered that could not be taken back.
SUSPECTED_FOR = 60.0


@dataclass(slots=True)
class Duty:
    """Something done every so many seconds; one ``on_demand`` only when it was asked for."""

    act: Callable[[], object]
    every: float = 0.0
    due_at: float = 0.0
    on_demand: bool = False
    asked_for: bool = False

    def is_due(self, now: float) -> bool:
        """Tell whether to act now."""
        return now >= self.due_at and (self.asked_for or not self.on_demand)

    def begin(self, now: float) -> None:
        """Note that it is acted on; duties that were due together stay so."""
        self.asked_for = False
        self.due_at = max(self.due_at + self.every, now)


class LapsedLeases:
    """Works whose leases had lapsed at one check. At the next they are lost, if nobody has renewed them.

    A row that another transaction has locked cannot be renewed. Its worker renews it within a moment of the
    row being free, and must not lose it in that moment.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, str | None], float] = {}
        #: Whether the last check has found works for the first time.
        self.wait = False

    @property
    def interval(self) -> float:
        """Seconds between the two checks: some ticks of the thread that renews leases."""
        return min(4 * TICK, get_settings().lease / 3)

    def are_confirmed_by(self, row: WorkRow) -> bool:
        """Tell whether a lapsed work has been found lapsed before; its row is locked."""
        now = time.monotonic()
        seen_at = self._seen.setdefault((row.id, row.delivery, row.worker), now)
        is_confirmed = now - seen_at >= self.interval
        self.wait |= not is_confirmed
        return is_confirmed

    def begin_check(self) -> None:
        """Begin another check; forget works that were not found for a while."""
        self.wait = False
        before = time.monotonic() - SUSPECTED_FOR
        self._seen = {key: seen_at for key, seen_at in self._seen.items() if seen_at > before}


class UnhandledGroups(LoopThread):
    """Calls ``UNHANDLED_GROUP`` for settled groups that nobody waited for, once their grace is over.

    The hook may take any time, so it has a thread of its own, which starts with the first group.
    """

    failure = "UNHANDLED_GROUP could not be called"

    def __init__(self) -> None:
        super().__init__("hooks", Recovery(TICK, REST), waits_for_locks=True)
        self._groups: deque[tuple[str, float]] = deque()
        self._start_lock = threading.Lock()  # outcomes settle in several threads

    def note(self, groups: list[str]) -> None:
        """Note groups that settled in this process."""
        if not groups or get_settings().unhandled_group is None:
            return
        due_at = time.monotonic() + ORPHAN_GRACE
        self._groups.extend((group, due_at) for group in groups)
        with self._start_lock:
            if not self.was_started and not self._stopping.is_set():
                self.start()
        self.wake.set()

    def is_over(self) -> bool:
        """Tell whether the worker stops, and all groups are handled."""
        return super().is_over() and not self._groups

    def turn(self) -> float:
        """Call the hook for the first group; a worker that stops waits for no grace."""
        if not self._groups:
            return float("inf")
        group, due_at = self._groups[0]
        left = due_at - time.monotonic()
        if left > 0 and not self._stopping.is_set():
            return left
        self._groups.popleft()
        with project_code():
            report_unhandled(group)
        return 0.0


class MaintenanceThread(LoopThread):
    """A thread with duties; one that raises is reported and done again at its next turn.

    While the database is away, duties wait for longer and longer. Without a ``registration`` it looks after
    the works of this process alone, and leaves duties for the fleet to workers.
    """

    def __init__(
        self,
        worker_id: str,
        in_flight: InFlight,
        services: EngineServices,
        registration: WorkerRegistration | None = None,
        scope: Scope = EVERYTHING,
    ) -> None:
        super().__init__("maintenance", recovery_within_lease())
        self.worker_id = worker_id
        self.in_flight = in_flight
        self.services = services
        self.registration = registration
        self.scope = scope
        self.hooks = UnhandledGroups()
        self._lapsed = LapsedLeases()
        self._intervals: Mapping[str, float] = {}
        #: Works that may have been cancelled or completed elsewhere; None for any.
        self._revoked: frozenset[str] | None = frozenset()
        self._is_at_work = False
        self._reclaim_from = float("-inf")
        self._swept_until: Place | None = None
        started = time.monotonic()
        #: Duties for the fleet that a poll asks for, by what it has found.
        self._demands = {
            "lapsed": Duty(self.reclaim, on_demand=True),
            "recheck": Duty(recheck_leftovers, on_demand=True),
            "overdue": Duty(expire_gates, on_demand=True),
            "continuous": Duty(self.queue_continuous, on_demand=True),
        }
        self._pruning = Duty(self.prune, 30.0, started + 20.0)
        self._sweeping = Duty(self.sweep, 60.0, started + 30.0)
        self._duties = [
            Duty(self.write_progress, 0.5),
            Duty(self.release_waiting, 0.5),
            Duty(self.abort_revoked),
            Duty(self.abort_lost_works, 2.0),
            Duty(clock.synchronise, 60.0, started + 60.0),
        ]
        if registration is not None:
            beat = Duty(self.beat, 10.0, started + 10.0)
            self._duties += [*self._demands.values(), beat, self._sweeping, self._pruning]

    def start(self) -> None:
        """Start the thread."""
        add_group_listener(self.hooks.note)
        super().start()

    def stop(self) -> None:
        """Let the threads end after their present turns; wait for that, but not for ever."""
        remove_group_listener(self.hooks.note)
        self.hooks.request_stop()
        super().stop()
        self.hooks.stop()

    # --- called by other threads --------------------------------------------------------------------------

    def note(self, view: Look, intervals: Mapping[str, float]) -> None:
        """Take over what a poll has found to do for the fleet, and the continuous types to queue."""
        asked_for = {name for name in ("lapsed", "recheck", "overdue") if getattr(view, name)}
        if intervals:
            self._intervals = intervals
            asked_for.add("continuous")
        for name in asked_for:
            self._demands[name].asked_for = True
        if asked_for:
            self.wake.set()

    def wait_until_done(self, timeout: float) -> None:
        """Wait until the duties that were asked for are done, at most so many seconds."""
        until = time.monotonic() + timeout
        while time.monotonic() < until and (
            self._is_at_work or any(duty.asked_for for duty in self._demands.values())
        ):
            time.sleep(SHORT)

    def check_revoked(self, ids: frozenset[str] | None) -> None:
        """Note that these works, or None for any, may have been cancelled or completed elsewhere.

        Only an id is worth a turn at once: any commit may be the reason for None.
        """
        if ids is None or self._revoked is None:
            self._revoked = None
        elif not self.in_flight.ids().isdisjoint(ids):
            self._revoked |= ids
            self.wake.set()

    def release_paused(self, controls: Controls) -> None:
        """Release works that were claimed before an operator paused their type or queue."""
        waiting = [delivery for delivery in self.in_flight.all() if delivery.started_at is None]
        self.release([d for d in waiting if not controls.permits(d.row.queue, d.type)])

    def postpone_reclaim(self) -> None:
        """Leave lapsed leases alone for a while: the database was away, perhaps for other workers, too."""
        self._reclaim_from = time.monotonic() + min(LONGEST_PATIENCE, get_settings().lease / 3)

    # --- the loop -----------------------------------------------------------------------------------------

    def turn(self) -> float:
        """Do what is due; a database that is away ends the turn, as it would fail the other duties, too."""
        for duty in self._duties:
            if not duty.is_due(time.monotonic()):
                continue
            self._is_at_work = True
            duty.begin(time.monotonic())
            try:
                duty.act()
            except Exception as error:
                self._note_failure(duty, error)
            finally:
                self._is_at_work = False
        if self.in_flight.active:
            return TICK
        connections.close_all()  # between the few duties at rest nothing needs a connection
        return REST

    def _note_failure(self, duty: Duty, error: Exception) -> None:
        """Report a duty that failed; raise again if the database is to blame.

        A row that another transaction has locked is not worth a report: the duty is done again.
        """
        if isinstance(error, Error) and is_contention(error):
            return
        self.failure = f"the maintenance duty {getattr(duty.act, '__name__', duty.act)} failed"
        if isinstance(error, Error):
            self.postpone_reclaim()
            raise error
        report(error, "queue", self.failure)
        connections.close_all()

    # --- duties -------------------------------------------------------------------------------------------

    def reclaim(self) -> None:
        """Take back works of this scope whose leases have lapsed, unless the database was away."""
        if time.monotonic() < self._reclaim_from:
            return
        self._lapsed.begin_check()
        reclaim(self.in_flight.ids(), self._lapsed.are_confirmed_by, self.scope)
        if self._lapsed.wait:
            again = self._demands["lapsed"]
            again.asked_for, again.due_at = True, time.monotonic() + self._lapsed.interval

    def queue_continuous(self) -> None:
        """Queue the next works of continuous types."""
        intervals, self._intervals = self._intervals, {}
        queue_continuous(intervals)

    def abort_lost_works(self) -> None:
        """Abort works that run for a while and were cancelled or completed elsewhere."""
        before = time.monotonic() - NOTICED_AFTER
        abort_lost([d for d in self.in_flight.all() if d.started_at and d.started_at < before])

    def abort_revoked(self) -> None:
        """Abort works that were revoked; the database decides, as a message may be old or untrue."""
        revoked, self._revoked = self._revoked, frozenset()
        if revoked is None or revoked:
            abort_lost([d for d in self.in_flight.all() if revoked is None or d.row.id in revoked])

    def release_waiting(self) -> None:
        """Release works that were claimed and have waited for long behind slow ones."""
        before = time.monotonic() - STALE_AFTER
        self.release([d for d in self.in_flight.all() if d.started_at is None and d.ready_at < before])

    def release(self, waiting: list[Delivery]) -> None:
        """Release those of these works that have not started meanwhile; no attempt is spent."""
        withdrawn = [delivery for delivery in waiting if delivery.withdraw()]
        if not withdrawn:
            return
        try:
            transitions.release(deliveries_by_id(withdrawn), self.worker_id)
        finally:
            self.in_flight.give_back(withdrawn)
        notify_others(delivery.row for delivery in withdrawn)

    def write_progress(self) -> None:
        """Write the latest progress of running works."""
        if self.services.has_progress:
            latest = self.services.take_progress()
            numbers = deliveries_by_id(self.in_flight.all())
            write_progress({id: (numbers[id], text) for id, text in latest.items() if id in numbers})

    def beat(self) -> None:
        """Write that this worker is alive."""
        if self.registration is not None:
            self.registration.beat(self.in_flight.active)

    def prune(self) -> None:
        """Delete one page of what has been kept long enough; the next at once while there is a lot."""
        if prune() >= PRUNE_BATCH:
            self._pruning.due_at = 0.0

    def sweep(self) -> None:
        """Sweep one page of the blocked works; the next at once, until all were swept."""
        self._swept_until = sweep_page(self._swept_until).next
        if self._swept_until is not None:
            self._sweeping.due_at = 0.0
