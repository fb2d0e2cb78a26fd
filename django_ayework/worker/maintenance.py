"""The maintenance thread, the thread of UNHANDLED_GROUP, and the scheduler.

All maintenance is bounded: a page at a time. No claim, outcome or lease waits for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django.db import Error

from django_ayework.conf import get_settings
from django_ayework.define.schedules import schedules
from django_ayework.flow.bulk_actions import carry_out
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.controls import queue_continuous
from django_ayework.flow.events import announce_starts
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.hooks import report, report_unhandled
from django_ayework.flow.maintenance import (
    PRUNE_BATCH,
    Pruning,
    expire_blocked,
    prune_others,
    reclaim,
    sweep_page,
)
from django_ayework.flow.notify import settled_groups
from django_ayework.flow.scheduler import ALL, IDLE, SCHEDULES, fire_due
from django_ayework.flow.schedules import restore, sync
from django_ayework.rules.controls import EVERYTHING, Scope
from django_ayework.store.attempts import write_progress
from django_ayework.store.connections import close_all_connections, project_code
from django_ayework.store.database import REFRESH_AFTER, answers, clock, is_contention
from django_ayework.store.dependencies import BlockedCursor
from django_ayework.store.lanes import Poll
from django_ayework.store.rows import WorkRow
from django_ayework.worker.health import WorkerRegistration
from django_ayework.worker.in_flight import Delivery, InFlight, abort_lost, deliveries_by_id
from django_ayework.worker.leases import TICK, recovery_within_lease, release
from django_ayework.worker.settler import REPORT_EVERY, AttemptCounts
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
#: Seconds of one turn that pages of bulk actions take.
BULK_TIME = 0.4
#: Seconds for which a lapsed lease is remembered that could not be taken back.
SUSPECTED_FOR = 60.0
#: Seconds after which it is taken back, however often its row was locked meanwhile.
LOCKED_FOR = 30.0


NEVER = float("inf")


@dataclass(slots=True)
class Duty:
    """Something done every so many seconds, or with ``NEVER`` when it is asked for."""

    act: Callable[[], object]
    every: float = 0.0
    due_at: float = 0.0


class Sighting(NamedTuple):
    """When checks have found a lapsed lease: the first, the first of those without a gap, and the last."""

    first: float
    since: float
    last: float


class LapsedLeases:
    """Works whose leases had lapsed at one check. At the next they are lost, if nobody has renewed them.

    A row that another transaction has locked cannot be renewed. Its worker renews it within a moment of the
    row being free, and must not lose it in that moment. So checks between which the row was locked, or all of
    SQLite, confirm nothing for a while.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, str | None], Sighting] = {}
        #: Whether the last check has found works for the first time.
        self.wait = False

    @property
    def interval(self) -> float:
        """Seconds between the two checks: some ticks of the thread that renews leases."""
        return min(4 * TICK, get_settings().lease / 3)

    def are_confirmed_by(self, row: WorkRow) -> bool:
        """Tell whether a lapsed work has been found lapsed before; its row is locked."""
        now, key = time.monotonic(), (row.id, row.delivery, row.worker)
        first, since, last = self._seen.get(key, (now, now, now))
        since = since if now - last < self.interval + 2 * REST else now
        self._seen[key] = Sighting(first, since, now)
        is_confirmed = now - since >= self.interval or now - first >= LOCKED_FOR
        self.wait |= not is_confirmed
        return is_confirmed

    def begin_check(self) -> None:
        """Begin another check; forget works that were not found for a while."""
        self.wait = False
        before = time.monotonic() - SUSPECTED_FOR
        self._seen = {key: seen for key, seen in self._seen.items() if seen.last > before}


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
        try:
            with project_code():
                report_unhandled(group)
        except Error:  # the database is away: the group is tried again
            if not self._stopping.is_set():
                self._groups.appendleft((group, due_at))
            raise
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
        tally: AttemptCounts,
        registration: WorkerRegistration | None = None,
        scope: Scope = EVERYTHING,
    ) -> None:
        super().__init__("maintenance", recovery_within_lease())
        self.worker_id = worker_id
        self.in_flight = in_flight
        self.services = services
        self.registration = registration
        self.scope = scope
        self._tally = tally
        self._has_reported_all = False
        self.hooks = UnhandledGroups()
        self._lapsed = LapsedLeases()
        self._intervals: Mapping[str, float] = {}
        #: Works that may have been cancelled or completed elsewhere; None for any.
        self._revoked: frozenset[str] | None = frozenset()
        self._is_at_work = False
        self._reclaim_from = float("-inf")
        self._swept_until: BlockedCursor | None = None
        started = time.monotonic()
        #: Duties for the fleet, by the finding of a poll that asks for them.
        self._demands = {
            "lapsed": Duty(self.reclaim, NEVER, NEVER),
            "recheck": Duty(recheck_leftovers, NEVER, NEVER),
            "overdue": Duty(expire_blocked, NEVER, NEVER),
            "continuous": Duty(self.queue_continuous, NEVER, NEVER),
        }
        self._bulk = Duty(self.carry_out_bulk, NEVER, NEVER)
        self._walk = Pruning()
        self._pruning = Duty(self.prune, 60.0, started + 20.0)
        self._sweeping = Duty(self.sweep, 60.0, started + 30.0)
        self._duties = [
            Duty(self.write_progress, 0.5),
            Duty(self.release_waiting, 0.5),
            Duty(self.abort_revoked),
            Duty(self.abort_lost_works, 2.0),
            Duty(clock.measure, REFRESH_AFTER, started + REFRESH_AFTER),
            Duty(announce_starts, 1.0),  # those that no commit has followed yet
            Duty(self.report_throughput, REPORT_EVERY, started + REPORT_EVERY),
        ]
        if registration is not None:
            beat = Duty(self.beat, 10.0, started + 10.0)
            self._duties += [*self._demands.values(), self._bulk, beat, self._sweeping, self._pruning]

    def start(self) -> None:
        """Start the thread."""
        settled_groups.subscribe(self.hooks.note)
        super().start()

    def stop(self) -> None:
        """Let the threads end after their present turns; wait for that, but not for ever."""
        settled_groups.unsubscribe(self.hooks.note)
        self.hooks.request_stop()
        super().stop()
        self.hooks.stop()

    def note(self, view: Poll, intervals: Mapping[str, float]) -> None:
        """Take over what a poll has found to do for the fleet, and the continuous types to queue."""
        asked_for = {name for name in ("lapsed", "recheck", "overdue") if getattr(view, name)}
        if intervals:
            self._intervals = intervals
            asked_for.add("continuous")
        for name in asked_for:
            if self._demands[name].due_at == NEVER:  # else it waits already
                self._demands[name].due_at = 0.0
        if view.bulk is not None:
            due_at = time.monotonic() + max(0.0, (view.bulk - clock.now()).total_seconds())
            self._bulk.due_at = min(self._bulk.due_at, due_at)
        if asked_for or self._bulk.due_at <= time.monotonic():
            self.wake.set()

    def wait_until_done(self, timeout: float) -> None:
        """Wait until the duties that were asked for are done, at most so many seconds."""
        until = time.monotonic() + timeout
        while time.monotonic() < until and (
            self._is_at_work
            or any(duty.due_at < NEVER for duty in self._demands.values())
            or self._bulk.due_at <= time.monotonic()
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

    def postpone_reclaim(self) -> None:
        """Leave lapsed leases alone for a while: the database was away, perhaps for other workers, too."""
        self._reclaim_from = time.monotonic() + min(LONGEST_PATIENCE, get_settings().lease / 3)

    def turn(self) -> float:
        """Do the due duties; a database that is away ends the turn, as it would fail the other duties, too.

        The last turn reports the attempts that ended since the last report, as all of them are settled.
        """
        if self._stopping.is_set():
            self._has_reported_all = True  # before it is tried: nothing waits for a database that is away
            self.report_throughput()
            return 0.0
        for duty in self._duties:
            now = time.monotonic()
            if now < duty.due_at:
                continue
            self._is_at_work = True
            duty.due_at = max(duty.due_at + duty.every, now)  # duties that were due together stay so
            try:
                duty.act()
            except Exception as error:
                self._note_failure(duty, error)
            finally:
                self._is_at_work = False
        pause = min(TICK if self.in_flight.active else REST, max(0.0, self._bulk.due_at - time.monotonic()))
        if pause > TICK:
            close_all_connections()  # between the few duties at rest nothing needs a connection
        return pause

    def is_over(self) -> bool:
        """Tell whether the worker stops, and the last report was made or tried."""
        return super().is_over() and self._has_reported_all

    def _note_failure(self, duty: Duty, error: Exception) -> None:
        """Report a duty that failed; raise again if the database is to blame.

        A row that another transaction has locked is not worth a report: the duty is done again.
        """
        if isinstance(error, Error) and is_contention(error):
            return
        self.failure = f"the maintenance duty {getattr(duty.act, '__name__', duty.act)} failed"
        if isinstance(error, Error):
            if duty.act == self.reclaim or not answers():  # one that always fails must not hold reclaiming up
                self.postpone_reclaim()
            raise error
        report(error, "queue", self.failure)
        close_all_connections()

    def reclaim(self) -> None:
        """Take back works of this scope whose leases have lapsed, unless the database was away.

        If its clock was set, other workers go on by the former time for a while: leases that they renew seem
        to have lapsed. They have set their clocks within a minute, and renewed them by then.
        """
        clock.measure()
        known_from = clock.stepped_at + REFRESH_AFTER + get_settings().lease
        if time.monotonic() < max(self._reclaim_from, known_from):
            return
        self._lapsed.begin_check()
        self._tally.count(reclaim(self.in_flight.ids(), self._lapsed.are_confirmed_by, self.scope))
        if self._lapsed.wait:
            self._demands["lapsed"].due_at = time.monotonic() + self._lapsed.interval

    def carry_out_bulk(self) -> None:
        """Carry out pages of bulk actions for a moment, and note when the next one is due."""
        pause = carry_out(BULK_TIME, self.is_over)
        if pause is not None:
            self._bulk.due_at = time.monotonic() + pause

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
        abort_lost([d for d in self.in_flight.all() if revoked is None or d.row.id in revoked])

    def release_waiting(self) -> None:
        """Release works that were claimed and have waited for long behind slow ones."""
        before = time.monotonic() - STALE_AFTER
        self.release_unstarted(lambda delivery: delivery.ready_at < before)

    def release_unstarted(self, is_chosen: Callable[[Delivery], bool] = lambda delivery: True) -> None:
        """Release works that were claimed and have not started, all or some; no attempt is spent.

        So are works that could not be released before: their rows were locked, or the database was away.
        """
        if withdrawn := self.in_flight.withdraw(is_chosen):
            locked = release(withdrawn, self.worker_id)
            self.in_flight.settle([each for each in withdrawn if each not in locked])

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

    def report_throughput(self) -> None:
        """Add the attempts that ended here since the last report to those of the fleet."""
        self._tally.report()

    def prune(self) -> None:
        """Delete one page of expired rows; the next page follows at once while many are left."""
        if max(prune_others(), self._walk.page().seen) >= PRUNE_BATCH:
            self._pruning.due_at = 0.0

    def sweep(self) -> None:
        """Sweep one page of the blocked works; the next at once, until all were swept."""
        self._swept_until = sweep_page(self._swept_until).next
        if self._swept_until is not None:
            self._sweeping.due_at = 0.0


#: Seconds to wait after the database could not be asked, growing up to LONGEST_PAUSE.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
#: Seconds between two checks for schedules that another process has disabled and this one declares.
RESTORE_EVERY = 30.0
#: Seconds between two turns while the database has no schedules. The claiming thread's poll finds the first.
NO_SCHEDULES = 30.0


class Scheduler(LoopThread):
    """Fires schedules until it is stopped. Any number of them may run: each occurrence is fired by one."""

    failure = "the scheduler failed and carries on"

    def __init__(self, turns_once: bool = False) -> None:
        super().__init__("scheduler", Recovery(FIRST_PAUSE, LONGEST_PAUSE), waits_for_locks=True)
        self._are_schedules = True
        self._synced: int | None = None
        self._restore_at = 0.0
        self._limit = ALL if turns_once else SCHEDULES

    def note(self, are_schedules: bool) -> None:
        """Note whether the database has schedules that are to fire. The first one ends a rest."""
        if (are_schedules and not self._are_schedules) or schedules.version != self._synced:
            self.wake.set()
        self._are_schedules = are_schedules

    def turn(self) -> float:
        """Sync changed declarations, then fire due schedules; return the seconds until the next."""
        self._sync_declared()
        ticked = fire_due(is_over=self.is_over, limit=self._limit)
        return ticked.pause if ticked.pause < IDLE or self._are_schedules else NO_SCHEDULES

    def _sync_declared(self) -> None:
        version = schedules.version
        if version != self._synced:
            sync()
            self._synced = version
        elif time.monotonic() >= self._restore_at:
            restore()
        else:
            return
        self._restore_at = time.monotonic() + RESTORE_EVERY
