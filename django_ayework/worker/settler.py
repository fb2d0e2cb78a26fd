"""Group commit: all outcomes that are ready are settled in one transaction.

At rest an outcome is written at once; under load many share one commit, because they gather while the one
before is being written. An outcome is given up for one reason only: another worker has its work. Rows that
another transaction has locked, and a database that is away or refuses to write, make outcomes wait.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from django.db import DatabaseError, Error

from django_ayework import signals
from django_ayework.define.context import AbortReason
from django_ayework.documentation import logged
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.hooks import report, send
from django_ayework.flow.outcomes import as_failure, log_failure
from django_ayework.flow.settle import (
    Locked,
    Report,
    Settlement,
    Success,
    locked_for,
    settle,
    units_of_outputs,
)
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.logs import logger
from django_ayework.rules.formatting import counted
from django_ayework.rules.retry import AttemptDecision
from django_ayework.rules.states import Outcome, Status
from django_ayework.store import throughput
from django_ayework.store.attempts import write_progress
from django_ayework.store.connections import close_all_connections
from django_ayework.store.database import answers, clock, has_timed_out, is_contention, is_refused_data
from django_ayework.store.leases import holders_of
from django_ayework.worker.attempt import Ended
from django_ayework.worker.in_flight import Delivery, deliveries_by_id, warn_if_late
from django_ayework.worker.threads import LoopThread, Recovery

Unwritten = tuple[Delivery, Settlement]

#: Outcomes in one transaction. It writes a gate and a group once, however many of their works have ended.
MAX_BATCH = 2000
#: Seconds until outcomes are tried again that the database did not take, growing up to LONGEST_PAUSE.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
#: The same for outcomes whose rows another transaction has locked.
FIRST_LOCKED_PAUSE, LONGEST_LOCKED_PAUSE = 0.05, 1.0
#: Seconds between two reports of ended attempts.
REPORT_EVERY = 10.0
#: Types, queues and minutes that one report has by name. Others of a minute have one count without a name.
MOST_BUCKETS = 500


class AttemptCounts:
    """Counts ended attempts by minute, type and queue until they are reported. Safe in any thread.

    A deferral is no end. Counts that could not be reported are kept for the next report; a report whose
    commit got no answer may so be counted twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[throughput.Bucket, throughput.Ended] = {}

    def count(self, settlements: Iterable[Settlement]) -> None:
        """Count attempts that were settled."""
        minute = throughput.span_start(clock.now(), throughput.MINUTE)
        with self._lock:
            for settlement in settlements:
                row, ending = settlement.row, settlement.ending
                if not isinstance(ending, Success) and ending.outcome is Outcome.DEFERRED:
                    continue
                counts = self._counts_of(throughput.Bucket(minute, row.type, row.queue))
                counts.duration += settlement.seconds or 0.0
                if isinstance(ending, Success):
                    counts.succeeded += 1
                elif ending.will_retry:
                    counts.failed += 1
                else:
                    counts.dead += 1

    def _counts_of(self, bucket: throughput.Bucket) -> throughput.Ended:
        """Return the counts of a bucket (under the lock); of one too many, those of all such buckets."""
        found = self._counts.get(bucket)
        if found is None:
            if len(self._counts) >= MOST_BUCKETS:
                bucket = throughput.Bucket(bucket.minute, "", "")
            found = self._counts.setdefault(bucket, throughput.Ended())
        return found

    def report(self) -> None:
        """Add the counts to the table, or keep them for the next report if that fails."""
        with self._lock:
            counts, self._counts = self._counts, {}
        try:
            throughput.add(counts)
        except BaseException:
            with self._lock:
                for bucket, ended in counts.items():
                    self._counts_of(bucket).add(ended)
            raise


class Settler(LoopThread):
    """A thread that settles outcomes in batches and never loses one while the process lives."""

    failure = "settling failed and carries on"

    def __init__(self, services: EngineServices, settled: Callable[[list[Delivery]], None]) -> None:
        super().__init__("settling", Recovery(FIRST_PAUSE, LONGEST_PAUSE))
        self._services = services
        self._settled = settled
        self.tally = AttemptCounts()
        self._ready: deque[Unwritten] = deque()
        self._set_aside = SetAside()
        self._database_recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        #: Works whose outcomes the database did not take yet.
        self._waiting: set[str] = set()
        self._gives_up = threading.Event()

    def take_over(self, outcomes: list[Ended]) -> None:
        """Take the outcomes of attempts that have ended, unless the attempt has settled them itself.

        Without an outcome a work is left to its lease. An outcome is appended before the event is set, which
        the thread clears before it looks.
        """
        for delivery, settlement in outcomes:
            delivery.ended = True
            if settlement is not None and not delivery.settled:
                self._ready.append((delivery, settlement))
                self.wake.set()
            elif not delivery.withdrawn:
                if settlement is not None:
                    self.tally.count([settlement])
                self._settled([delivery])

    def stop(self, timeout: float = 0.0) -> None:
        """Settle everything in hand, then end; give up on a database that stays away for ``timeout``.

        Outcomes that wait for the database are tried again at once: a pause may be as long as that.
        """
        self._database_recovery.succeed()
        self._set_aside.due_at = 0.0
        self.request_stop()
        self.join(timeout)
        self._gives_up.set()
        self.wake.set()
        self.join(1)

    def is_over(self) -> bool:
        """Tell whether everything in hand is settled, or is given up, as the worker stops."""
        in_hand = self._ready or self._set_aside
        return self._stopping.is_set() and (self._gives_up.is_set() or not in_hand)

    def turn(self) -> float:
        """Settle one batch; return how long no other is due."""
        if batch := self._next_batch():
            try:
                self._settle(batch)
            except BaseException:  # those that are written by now are refused the next time
                self._ready.extendleft(reversed(batch))
                raise
        return 0.0 if self._ready else self._set_aside.pause

    def _next_batch(self) -> list[Unwritten]:
        """Return the outcomes to settle now; those whose rows are known to be locked wait.

        Those that have waited are tried by themselves: if they must wait again, no other waits with them.
        """
        try:
            if due := self._set_aside.take_due():
                return due
        except Error as error:  # they stay where they are
            waiting = counted(len(self._set_aside), "outcome")
            report(error, "commit", f"{waiting} cannot be written yet", brief=True)
            close_all_connections()
            self._set_aside.due_at = time.monotonic() + self._database_recovery.fail()
        batch: list[Unwritten] = []
        with suppress(IndexError):
            while len(batch) < MAX_BATCH:
                batch.append(self._ready.popleft())
        return self._set_aside.without_locked(batch)

    def _settle(self, batch: list[Unwritten]) -> None:
        """Settle a batch; find out what to do with each outcome when it fails as a whole."""
        began = time.monotonic()
        try:
            self._write(batch)
        except ContributionFailed as error:
            self._settle_with_failed(batch, error)
        except Error as error:
            if is_refused_data(error):
                self._divide(batch, error)
            elif is_contention(error) or has_timed_out(error):
                self._leave_locked(batch, error, time.monotonic() - began)
            else:
                self._wait_for_database(batch, error)
        except BaseException as error:  # a function of the project's may raise anything
            self._divide(batch, error)

    def _settle_halves(self, batch: list[Unwritten]) -> None:
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            if half := self._set_aside.without_locked(half):  # one may have met a locked unit just now
                self._settle(half)

    def _write(self, batch: list[Unwritten]) -> None:
        """Settle a batch in one transaction; log what came of it."""
        deliveries = [delivery for delivery, _ in batch]
        if self._services.has_progress:
            self._write_progress(deliveries)
        written = settle([settlement for _, settlement in batch])
        self._set_aside.note_written(batch)
        self._database_recovery.succeed()
        self._waiting.difference_update(delivery.row.id for delivery in deliveries)
        self._settled(deliveries)
        self.tally.count([settlement for _, settlement in batch if settlement.row.id in written.moved])
        try:
            log_written(batch, written)
        except BaseException as error:  # of a handler of the log
            report(error, "commit", "outcomes that were written could not be logged")

    def _write_progress(self, deliveries: list[Delivery]) -> None:
        """Write the last progress of works that have ended; no outcome waits for that alone."""
        numbers = deliveries_by_id(deliveries)
        latest = self._services.take_progress(list(numbers))
        try:
            write_progress({id: (numbers[id], text) for id, text in latest.items()})
        except DatabaseError as error:
            report(error, "commit", "the progress of works that ended could not be written")

    def _divide(self, batch: list[Unwritten], error: BaseException) -> None:
        """Settle each half on its own, and so on to the outcome that cannot be written: it has failed."""
        if len(batch) > 1:
            self._settle_halves(batch)
            return
        for failure in self._failed(*batch[0], error):
            try:
                self._write([failure])
            except BaseException as again:
                if isinstance(again, Error) and not is_refused_data(again):
                    self._set_aside.add([failure])
                else:
                    self._leave_to_lease(failure[0], again)

    def _settle_with_failed(self, batch: list[Unwritten], failed: ContributionFailed) -> None:
        """Settle the halves of a batch in which contributions raised: their works have failed."""
        errors = {id: ContributionFailed({id: cause}) for id, cause in failed.causes.items()}
        left: list[Unwritten] = []
        for each in batch:
            left += self._failed(*each, errors[each[1].row.id]) if each[1].row.id in errors else [each]
        self._settle_halves(left)

    def _failed(self, delivery: Delivery, settlement: Settlement, error: BaseException) -> list[Unwritten]:
        """Return the failure of an outcome that cannot be written; none if it is left to its lease."""
        report(error, "commit", f"the outcome of work {settlement.row.id} cannot be written")
        try:
            return [(delivery, as_failure(settlement, error))]
        except Exception as again:
            self._leave_to_lease(delivery, again)
            return []

    def _leave_to_lease(self, delivery: Delivery, error: BaseException) -> None:
        """Give up on an outcome whose failure cannot be recorded either."""
        report(error, "commit", f"work {delivery.row.id} is left to its lease")
        delivery.abort(AbortReason.ERROR)
        self._settled([delivery])

    def _leave_locked(self, batch: list[Unwritten], error: Error, took: float) -> None:
        """Set aside the outcomes whose rows another transaction has locked, and settle the others.

        The statement of an outcome that nobody keeps may time out at each try. Other outcomes are settled for
        at least as long between two tries.
        """
        try:
            locked = locked_for([settlement for _, settlement in batch])
        except Error as away:
            self._wait_for_database(batch, away)
            return
        if locked:
            self._set_aside.add([each for each in batch if locked.keeps(each[1])], locked)
            if rest := [each for each in batch if not locked.keeps(each[1])]:
                self._settle(rest)
        elif len(batch) > 1:  # the locked row is another one, or free by now
            self._settle_halves(batch)
        else:
            if has_timed_out(error):
                self._report_waiting(batch, error)
            self._set_aside.add(batch, Locked(units=units_of_outputs(batch[0][1])), took)

    def _wait_for_database(self, batch: list[Unwritten], error: Error) -> None:
        """Keep outcomes that the database did not take; pause before the next try.

        It is away, or it answers and refuses: read-only during a failover, a full disk, no more connections.
        It may also refuse one outcome of many: so one is tried by itself, and if it fails, all are set aside.
        """
        self._report_waiting(batch, error)
        close_all_connections()
        if answers() and not self._gives_up.is_set():
            self._settle_after_one(batch)
            return
        self._ready.extendleft(reversed(batch))
        ends_pause = self._gives_up if self._stopping.is_set() else self._stopping
        ends_pause.wait(self._database_recovery.fail())

    def _report_waiting(self, batch: list[Unwritten], error: Error) -> None:
        """Report outcomes that begin to wait: in full the first time, in brief when others wait already."""
        ids = {delivery.row.id for delivery, _ in batch}
        if not ids <= self._waiting:
            one = f"the outcome of work {batch[0][0].row.id}"
            waits = one if len(batch) == 1 else counted(len(batch), "outcome")
            report(error, "commit", f"{waits} cannot be written yet", brief=bool(self._waiting))
            self._waiting |= ids

    def _settle_after_one(self, batch: list[Unwritten]) -> None:
        """Settle the first outcome by itself, then the others; or set all aside, with another one first."""
        first, *rest = batch
        try:
            self._write([first])
        except BaseException:
            self._set_aside.add([*rest, first])
        else:
            self._settle_halves(rest)


class SetAside:
    """Outcomes that wait for rows which another transaction has locked. For one thread."""

    def __init__(self) -> None:
        self._outcomes: list[Unwritten] = []
        self._locked = Locked()
        self.due_at = 0.0
        self._pause = FIRST_LOCKED_PAUSE

    def __len__(self) -> int:
        return len(self._outcomes)

    @property
    def pause(self) -> float:
        """In how many seconds to try again; infinity when nothing waits."""
        return max(0.0, self.due_at - time.monotonic()) if self._outcomes else float("inf")

    def add(self, outcomes: Sequence[Unwritten], locked: Locked | None = None, took: float = 0.0) -> None:
        """Let outcomes wait, and later ones that would meet the same locked rows with them.

        These do not put off the next try. It comes after a pause as long as the last one ``took``, or longer.
        """
        overdue = time.monotonic() - self.due_at
        if not self._outcomes and overdue > LONGEST_LOCKED_PAUSE:
            self._pause = FIRST_LOCKED_PAUSE
        if not self._outcomes or overdue > 0:
            self.due_at = time.monotonic() + max(self._pause, took)
        self._outcomes += outcomes
        if locked is not None:
            self._locked.works |= locked.works
            self._locked.groups |= locked.groups
            self._locked.units |= locked.units

    def take_due(self) -> list[Unwritten]:
        """Return the outcomes to try again; those still locked wait, for longer each time.

        The locks are asked about before: a settlement would wait for them. The locks of units cannot be
        read. So one outcome that waits for a unit is tried; once it is written, the others are due.
        """
        if self.pause > 0:
            return []
        self._pause = min(self._pause * 2, LONGEST_LOCKED_PAUSE)
        self.due_at = time.monotonic() + self._pause
        locked = locked_for([settlement for _, settlement in self._outcomes])
        tried, kept, is_unit_tried = list[Unwritten](), list[Unwritten](), False
        for each in self._outcomes:
            waits_for_unit = not self._locked.units.isdisjoint(units_of_outputs(each[1]))
            waits = locked.keeps(each[1]) or (waits_for_unit and is_unit_tried)
            is_unit_tried |= waits_for_unit and not waits
            (kept if waits else tried).append(each)
        locked.units = self._locked.units
        self._locked, self._outcomes = locked, kept
        return tried

    def note_written(self, batch: Sequence[Unwritten]) -> None:
        """Note that outcomes were written: units that they have locked are free, and perhaps all others."""
        units = self._locked.units
        if units and not all(units.isdisjoint(units_of_outputs(settlement)) for _, settlement in batch):
            units.clear()
            self.due_at = 0.0

    def without_locked(self, batch: list[Unwritten]) -> list[Unwritten]:
        """Return the outcomes that are not kept by rows known to be locked; the others wait."""
        if not self._locked:
            return batch
        kept = [each for each in batch if self._locked.keeps(each[1])]
        if kept:
            self.add(kept)
        return [each for each in batch if not self._locked.keeps(each[1])]


def log_written(batch: Iterable[Unwritten], written: Report) -> None:
    """Log failed attempts (a deferral is none), late outcomes, and those that were refused."""
    for delivery, settlement in batch:
        if delivery.row.id in written.moved:
            warn_if_late(delivery, "settled")
            ending = settlement.ending
            if isinstance(ending, AttemptDecision) and ending.outcome is not Outcome.DEFERRED:
                log_failure(settlement, ending)
    if written.refused:
        by_id = {delivery.row.id: delivery for delivery, _ in batch}
        log_refused([by_id[id] for id in written.refused])


def log_refused(deliveries: Sequence[Delivery]) -> None:
    """Log that outcomes came too late. After a cancellation that is to be expected, so it is no warning."""
    cancelled = {each.row.id for each in deliveries if each.signal.reason is AbortReason.CANCELLED}
    unclear = [each.row.id for each in deliveries if each.row.id not in cancelled]
    try:
        holders = holders_of(unclear) if unclear else {}
        cancelled |= {id for id, holder in holders.items() if holder.status == Status.CANCELLED}
    except Exception as error:
        report(error, "queue", f"{counted(len(unclear), 'work')} could not be looked up", brief=True)
    for delivery in deliveries:
        is_cancelled = delivery.row.id in cancelled
        cause, row = "cancelled" if is_cancelled else "moved", delivery.row
        send(signals.outcome_refused, "of a refused outcome", row.type, work_id=row.id, cause=cause)
        if is_cancelled:
            logger.info("The outcome of work %s came too late: the work was cancelled.", delivery.row.id)
        else:
            logger.warning(
                "The outcome of work %s came too late: another process has claimed or ended the work. %s",
                delivery.row.id,
                logged("outcome-too-late"),
            )
