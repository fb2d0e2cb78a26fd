"""Group commit: whatever outcomes are ready are settled in one transaction."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from django.db import DatabaseError, Error, connections

from django_ayework.define.context import AbortReason
from django_ayework.flow.events import report
from django_ayework.flow.outcomes import as_failure
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Locked, Report, Settlement, locked_for, settle
from django_ayework.heartbeat import Heartbeat
from django_ayework.store.attempts import write_progress
from django_ayework.store.database import fetch, has_timed_out, is_contention, is_refused_data
from django_ayework.worker.attempt import Ended
from django_ayework.worker.delivery import Delivery, log_failures, log_refused, warn_if_late
from django_ayework.worker.executor import Load, runs_in_doer, was_given_back
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.limits import Pressure
from django_ayework.worker.threads import EngineThread, Recovery

# --- settler ---
# Group commit: whatever outcomes are ready are settled in one transaction.
#
# At rest an outcome is written at once; under load many share one commit, because they gather while the
# one
# before is being written. An outcome is given up for one reason only: another worker has its work. Rows
# that
# somebody else has locked, and a database that is away or refuses to write, make outcomes wait.

Outcome = tuple[Delivery, Settlement]

#: Outcomes in one transaction. A gate and a group are written once in each, however many of theirs it has.
MAX_BATCH = 2000
#: Seconds until outcomes are tried again that the database did not take, growing to the second figure.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
#: The same for outcomes whose rows somebody else has locked.
FIRST_LOCKED_PAUSE, LONGEST_LOCKED_PAUSE = 0.05, 1.0


class Settler:
    """A thread that settles outcomes in batches and never loses one while the process lives."""

    def __init__(self, services: EngineServices, settled: Callable[[list[Delivery]], None]) -> None:
        self._services = services
        self._settled = settled
        self._ready: deque[Outcome] = deque()
        self._set_aside = SetAside()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._sleeps = False
        self._stops = threading.Event()
        self._recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        self._waiting: set[str] = set()  # works whose outcomes the database did not take yet
        self.thread = EngineThread("settling", self._serve)
        self.gives_up = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def submit(self, delivery: Delivery, settlement: Settlement) -> None:
        """Hand over an outcome."""
        self._ready.append((delivery, settlement))
        if self._sleeps:
            self._sleeps = False
            self._bell.put(None)

    def stop(self, timeout: float) -> None:
        """Settle everything in hand, then end; give up on a database that stays away for ``timeout``.

        What waits for the database is tried again at once: by now a pause may be as long as the timeout.
        """
        self._recovery.succeed()
        self._stops.set()
        self._bell.put(None)
        self.thread.join(timeout)
        self.gives_up.set()
        self._bell.put(None)
        self.thread.join(1)

    # --- the loop -----------------------------------------------------------------------------------------

    def _serve(self, heartbeat: Heartbeat) -> None:
        while self._has_more(heartbeat):
            heartbeat.beat()
            if batch := self._next_batch():
                self._settle(batch)

    def _has_more(self, heartbeat: Heartbeat) -> bool:
        """Wait for outcomes; return False when there will be none any more.

        A thread that hands one over appends it first, and sees second whether this sleeps; here it is the
        other way round. So one of the two sees what the other has done.
        """
        self._sleeps = True
        while not self._ready and not self._set_aside.is_due and not self._is_over:
            pause = self._set_aside.pause
            heartbeat.beat(rest=pause if pause is not None else float("inf"))
            with suppress(queue.Empty):
                self._bell.get(timeout=pause)
            self._sleeps = True
        self._sleeps = False
        return not self._is_over

    @property
    def _is_over(self) -> bool:
        """Whether everything in hand is settled, or is given up, as the worker stops."""
        return self._stops.is_set() and (self.gives_up.is_set() or not (self._ready or self._set_aside))

    def _next_batch(self) -> list[Outcome]:
        """Return the outcomes to settle now; those whose rows are known to be locked wait."""
        batch: list[Outcome] = []
        try:
            batch += self._set_aside.take_due()
        except Error as error:  # they stay where they are
            report(error, "commit", f"{len(self._set_aside)} outcomes wait for the database", brief=True)
            connections.close_all()
        with suppress(IndexError):
            while len(batch) < MAX_BATCH:
                batch.append(self._ready.popleft())
        return self._set_aside.without_locked(batch)

    # --- settling -----------------------------------------------------------------------------------------

    def _settle(self, batch: list[Outcome]) -> None:
        """Settle a batch; find out what to do with each outcome when it fails as a whole."""
        try:
            self._write(batch)
        except Error as error:
            if is_refused_data(error):
                self._divide(batch, error)
            elif is_contention(error) or has_timed_out(error):
                self._leave_locked(batch, error)
            else:
                self._wait_for_database(batch, error)
        except BaseException as error:  # a function of the project's may raise anything
            self._divide(batch, error)

    def _write(self, batch: list[Outcome]) -> None:
        """Settle a batch in one transaction, and tell of it."""
        self._write_progress([delivery for delivery, _ in batch])
        report_ = settle([settlement for _, settlement in batch])
        self._recovery.succeed()
        if self._waiting:
            self._waiting.difference_update(delivery.row.id for delivery, _ in batch)
        self._note(batch, report_)

    def _divide(self, batch: list[Outcome], error: BaseException) -> None:
        """Settle each half on its own, and so on to the outcome that cannot be written: it has failed."""
        if len(batch) == 1:
            self._settle_as_failure(batch[0], error)
            return
        for half in halves(batch):
            self._settle(half)

    def _leave_locked(self, batch: list[Outcome], error: Error) -> None:
        """Set aside the outcomes whose rows somebody else has locked, and settle the others."""
        try:
            locked = locked_for([settlement for _, settlement in batch])
        except Error as away:
            self._wait_for_database(batch, away)
            return
        if not locked and len(batch) > 1:  # what is locked is further away, or free by now
            for half in halves(batch):
                self._settle(half)
            return
        self._set_aside.add([each for each in batch if not locked or locked.keeps(each[1])], locked)
        if rest := [each for each in batch if locked and not locked.keeps(each[1])]:
            self._settle(rest)

    def _wait_for_database(self, batch: list[Outcome], error: Error) -> None:
        """Keep outcomes that the database did not take; pause before the next try.

        It is away, or it answers and refuses: read-only during a failover, a full disk, no more connections.
        It may also refuse one outcome of many: so one is tried by itself, and is set aside if it fails.
        """
        self._report_waiting(batch, error)
        connections.close_all()
        if answers() and not self.gives_up.is_set():
            batch = self._after_one(batch)
        self._ready.extendleft(reversed(batch))
        (self.gives_up if self._stops.is_set() else self._stops).wait(self._recovery.fail())

    def _report_waiting(self, batch: list[Outcome], error: Error) -> None:
        """Report that outcomes wait: in full the first time, in brief when others come to wait with them."""
        ids = {delivery.row.id for delivery, _ in batch}
        if not ids <= self._waiting:
            brief = bool(self._waiting)
            report(error, "commit", f"{len(batch)} outcomes wait for the database", brief=brief)
            self._waiting |= ids

    def _after_one(self, batch: list[Outcome]) -> list[Outcome]:
        """Settle the first outcome by itself, or set it aside; return what is left to be settled."""
        first, *rest = batch
        try:
            self._write([first])
        except BaseException:
            self._set_aside.add([first], Locked())
            return rest
        for half in halves(rest):
            if half:
                self._settle(half)
        return []

    def _settle_as_failure(self, outcome: Outcome, error: BaseException) -> None:
        """Record an outcome that cannot be written as a failed attempt."""
        delivery, settlement = outcome
        report(error, "commit", f"the outcome of work {settlement.row.id} cannot be written")
        try:
            failure = (delivery, as_failure(settlement, error))
        except Exception as again:
            self._leave_to_lease(delivery, again)
            return
        try:
            self._write([failure])
        except Error as again:
            if is_refused_data(again):
                self._leave_to_lease(delivery, again)
            else:
                self._set_aside.add([failure], Locked())
        except BaseException as again:
            self._leave_to_lease(delivery, again)

    def _leave_to_lease(self, delivery: Delivery, error: BaseException) -> None:
        """Give up on an outcome of which not even the failure can be recorded."""
        report(error, "commit", f"work {delivery.row.id} is left to its lease")
        delivery.abort(AbortReason.ERROR)
        self._settled([delivery])

    def _note(self, batch: list[Outcome], report_: Report) -> None:
        """Tell of outcomes that are settled, and of those that came too late."""
        self._settled([delivery for delivery, _ in batch])
        log_failures([settlement for _, settlement in batch], report_.moved)
        for delivery, settlement in batch:
            if settlement.row.id not in report_.refused:
                warn_if_late(delivery, "settled")
        if report_.refused:
            held = {delivery.row.id: delivery for delivery, _ in batch}
            log_refused([held[id] for id in report_.refused])

    def _write_progress(self, deliveries: list[Delivery]) -> None:
        """Write the last progress of works that have ended; for that alone no outcome may wait."""
        if not self._services.has_progress:
            return
        latest = self._services.take_progress([delivery.row.id for delivery in deliveries])
        held = {delivery.row.id: delivery.row.delivery for delivery in deliveries}
        try:
            write_progress({id: (held[id], text) for id, text in latest.items()})
        except DatabaseError as error:
            report(error, "commit", "the progress of works that ended could not be written")


class SetAside:
    """Outcomes that wait for rows which somebody else has locked. For one thread."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []
        self._locked = Locked()
        self._due_at = 0.0
        self._pause = FIRST_LOCKED_PAUSE

    def __len__(self) -> int:
        return len(self._outcomes)

    @property
    def pause(self) -> float | None:
        """In how many seconds to try again; None when nothing waits."""
        return max(0.0, self._due_at - time.monotonic()) if self._outcomes else None

    @property
    def is_due(self) -> bool:
        """Whether to try again now."""
        return self.pause == 0.0

    def add(self, outcomes: Sequence[Outcome], locked: Locked) -> None:
        """Let outcomes wait, and others that would meet the same locked rows with them."""
        if not self._outcomes and time.monotonic() - self._due_at > LONGEST_LOCKED_PAUSE:
            self._pause = FIRST_LOCKED_PAUSE
        self._outcomes += outcomes
        self._locked.works |= locked.works
        self._locked.groups |= locked.groups
        self._due_at = time.monotonic() + self._pause

    def take_due(self) -> list[Outcome]:
        """Return what is to be tried again; what is still locked waits, for longer each time.

        The locks are asked about before: a settlement would wait for them.
        """
        if not self.is_due:
            return []
        self._pause = min(self._pause * 2, LONGEST_LOCKED_PAUSE)
        self._due_at = time.monotonic() + self._pause
        self._locked = locked_for([settlement for _, settlement in self._outcomes])
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def without_locked(self, batch: list[Outcome]) -> list[Outcome]:
        """Return the outcomes that are not kept by rows known to be locked; the others wait."""
        if not self._locked:
            return batch
        kept = [each for each in batch if self._locked.keeps(each[1])]
        if kept:
            self.add(kept, Locked())
        return [each for each in batch if not self._locked.keeps(each[1])]


def halves(batch: list[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """Return the first and the second half of a batch."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]


def answers() -> bool:
    """Tell whether the database answers at all."""
    try:
        return bool(fetch("SELECT 1", ()))
    except Exception:
        return False


# --- endings ---
# What becomes of works whose attempts have ended.


class CompletionHandler:
    """Passes outcomes on to be settled, forgets what is settled, and lets others be claimed in its place."""

    def __init__(self, in_flight: InFlight, pressure: Pressure, claim_again: Callable[[], None]) -> None:
        self._in_flight = in_flight
        self._pressure = pressure
        self._claim_again = claim_again
        #: Takes an outcome that is to be written.
        self.submit: Callable[[Delivery, Settlement], object] = lambda delivery, settlement: None
        #: Tells whether the end of works of these types lets others be claimed.
        self.make_room: Callable[[Iterable[str]], bool] = lambda types: False

    def finished(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass outcomes on to be settled, unless the attempt has done so (slots and doers call this).

        Without an outcome a work is left to its lease.
        """
        for delivery, settlement in outcomes:
            delivery.ended = True
            if settlement is not None:
                self._pressure.count(settlement)
            if settlement is not None and not delivery.settled:
                self.submit(delivery, settlement)
            elif not delivery.withdrawn:
                self.settled([delivery])
        if not was_given_back(load):
            self._in_flight.finish(runs_in_doer(load))

    def settled(self, deliveries: list[Delivery]) -> None:
        """Forget settled works; claim again if a limit has held others of their types back."""
        self._in_flight.settle(deliveries)
        if self.make_room(delivery.row.type for delivery in deliveries):
            self._claim_again()
