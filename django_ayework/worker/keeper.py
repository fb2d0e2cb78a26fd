"""The keeper: renews leases, tells attempts to stop, writes progress and heartbeats, prunes and sweeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error, connections

from django_ayework.conf import get_settings
from django_ayework.define.signal import AbortReason
from django_ayework.flow.chores import PRUNE_BATCH, prune, sweep
from django_ayework.flow.effects import add_group_listener, remove_group_listener
from django_ayework.flow.events import report
from django_ayework.flow.news.outbox import tell_others
from django_ayework.flow.orphans import tell_unhandled
from django_ayework.flow.services import EngineServices
from django_ayework.rules.controls import Controls
from django_ayework.rules.durations import later
from django_ayework.store import leases, transitions
from django_ayework.store.clock import clock
from django_ayework.store.progress import write_progress
from django_ayework.store.sessions import bounded_statements
from django_ayework.worker import bounds
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.losses import loss_of, warn_if_late
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.presence import Presence
from django_ayework.worker.recovery import Recovery

TICK = 0.25
#: Seconds between two attempts to reach a database that is away; less when leases are short.
LONGEST_PAUSE = 5.0
STALE_AFTER = 1.0
NOTICED_AFTER = 1.0
ORPHAN_GRACE = 0.1


@dataclass(slots=True)
class Duty:
    """Something done every so many seconds."""

    every: float
    act: Callable[[], object]
    due_at: float = 0.0
    asks: bool = True  # the database


class Keeper:
    """A thread with duties; one that raises is reported and done again at its next turn.

    While the database is away, duties that ask it wait for longer and longer; watching the time does not.
    Without a ``presence`` it looks after works alone, and leaves what is the fleet's to workers.
    """

    def __init__(
        self, worker_id: str, holdings: Holdings, services: EngineServices, presence: Presence | None
    ) -> None:
        self.worker_id = worker_id
        self.holdings = holdings
        self.services = services
        self.presence = presence
        self._orphans: list[tuple[str, float]] = []
        self._doubtful: frozenset[str] | None = frozenset()
        self._stopping = False
        self._bell = threading.Event()
        self.thread = threading.Thread(target=self._serve, name="ayework-keeper", daemon=True)
        self._recovery = Recovery(TICK, min(LONGEST_PAUSE, get_settings().lease / 6))
        self._ask_again_at = 0.0
        self._failing: Duty | None = None
        started = time.monotonic()
        self.pruning = Duty(30.0, self.prune, started + 15.0)
        self.duties = [
            Duty(0.0, self.watch_time, asks=False),
            Duty(0.0, self.interrupt, asks=False),
            Duty(0.0, self.tell_orphans),
            Duty(0.5, self.write_progress),
            Duty(0.5, self.release_waiting),
            Duty(0.0, self.renew_leases),
            Duty(0.0, self.settle_doubts),
            Duty(2.0, self.notice_losses),
            Duty(60.0, clock.synchronise, started + 60.0),
        ]
        if presence is not None:
            self.duties += [
                Duty(10.0, self.beat, started + 10.0),
                Duty(60.0, sweep, started + 30.0),
                self.pruning,
            ]

    def start(self) -> None:
        """Start the thread."""
        add_group_listener(self.settled)
        self.thread.start()

    def stop(self) -> None:
        """End the thread after its present turn."""
        remove_group_listener(self.settled)
        self._stopping = True
        self._bell.set()
        self.thread.join(bounds.LAST_DUTIES)

    def settled(self, groups: list[str]) -> None:
        """Note groups that settled here, for the hook ``UNHANDLED_GROUP``."""
        if groups and get_settings().unhandled_group is not None:
            due = time.monotonic() + ORPHAN_GRACE
            self._orphans += [(group, due) for group in groups]

    def _serve(self) -> None:
        with bounded_statements():
            while self._goes_on():
                for duty in self.duties:
                    if self._is_due(duty, time.monotonic()):
                        duty.due_at = time.monotonic() + duty.every
                        self._do(duty)
            self._do(Duty(0, self.tell_orphans))
        connections.close_all()

    def _goes_on(self) -> bool:
        """Wait for the next turn, or until somebody says that works were taken; tell whether there is one."""
        self._bell.wait(TICK)
        self._bell.clear()
        return not self._stopping

    def _is_due(self, duty: Duty, now: float) -> bool:
        return now >= duty.due_at and not (duty.asks and now < self._ask_again_at)

    def _do(self, duty: Duty) -> None:
        try:
            duty.act()
        except Exception as error:
            name = getattr(duty.act, "__name__", duty.act)
            report(error, "queue", f"the duty {name} failed", brief=self._recovery.goes_on)
            connections.close_all()
            if isinstance(error, Error):
                self._failing = duty
                self._ask_again_at = time.monotonic() + self._recovery.fail()
        else:
            if duty is self._failing:  # others may have had nothing to ask
                self._recovery.succeed()

    def watch_time(self) -> None:
        """Tell attempts that have run out of time; async ones are cancelled on their loop as well."""
        now = time.monotonic()
        for delivery in self.holdings.all():
            if delivery.is_overtime(now):
                delivery.abort(AbortReason.TIMEOUT)

    def interrupt(self) -> None:
        """Raise the abort inside plain handlers that may be interrupted and were asked to stop."""
        for delivery in self.holdings.all():
            delivery.interrupt()

    def renew_leases(self) -> None:
        """Renew leases that are a third used, so short works never do; a work that is lost is told why."""
        now = time.monotonic()
        due = [d for d in self.holdings.all() if now - d.renewed_at > d.lease / 3]
        for lease in {delivery.lease for delivery in due}:
            self.renew([delivery for delivery in due if delivery.lease == lease], lease, now)

    def renew(self, due: list[Delivery], lease: float, now: float) -> None:
        """Renew leases of one length; a work whose lease lapses because that fails is told of the error."""
        deliveries = {delivery.row.id: delivery.row.delivery for delivery in due}
        try:
            renewed = leases.renew(deliveries, self.worker_id, later(clock.now(), lease))
        except Exception:
            for delivery in due:
                if delivery.has_lapsed(now):
                    delivery.abort(AbortReason.ERROR)
            raise
        for delivery in due:
            if delivery.row.id in renewed:
                warn_if_late(delivery, "renewed")
                delivery.renew(now)
        self.tell_losses([delivery for delivery in due if delivery.row.id not in renewed])

    def notice_losses(self) -> None:
        """See whether works that run for a while were cancelled or completed by somebody else."""
        before = time.monotonic() - NOTICED_AFTER
        self.tell_losses([d for d in self.holdings.all() if d.started_at and d.started_at < before])

    def doubt(self, ids: frozenset[str] | None) -> None:
        """Note that these works, or None for any, may have been taken from us; any thread may say so.

        Only a name is worth a turn at once: anything that is committed may be the reason for the rest.
        """
        if ids is None or self._doubtful is None:
            self._doubtful = None
        elif not self.holdings.ids().isdisjoint(ids):
            self._doubtful |= ids
            self._bell.set()

    def settle_doubts(self) -> None:
        """See at once whether works were taken that somebody says were, as that may be old or untrue."""
        doubtful, self._doubtful = self._doubtful, frozenset()
        if doubtful is None or doubtful:
            self.tell_losses([d for d in self.holdings.all() if doubtful is None or d.row.id in doubtful])

    def tell_losses(self, doubtful: list[Delivery]) -> None:
        """Tell the attempts whose work is not ours any more."""
        holders = leases.holders_of(delivery.row.id for delivery in doubtful) if doubtful else {}
        for delivery in doubtful:
            reason = loss_of(delivery, holders.get(delivery.row.id))
            if reason is not None and not delivery.ended:
                delivery.abort(reason)

    def release_waiting(self) -> None:
        """Give back works that were claimed for quick slots and wait behind slow ones."""
        self.release(self.holdings.waiting_longer_than(STALE_AFTER))

    def release_paused(self, controls: Controls) -> None:
        """Give back works that were claimed before an operator paused their type or queue."""
        waiting = [delivery for delivery in self.holdings.all() if delivery.started_at is None]
        self.release([d for d in waiting if not controls.permits(d.row.queue, d.type)])

    def release(self, waiting: list[Delivery]) -> None:
        """Give back those of these works that have not started meanwhile; no attempt is spent."""
        withdrawn = [delivery for delivery in waiting if delivery.withdraw()]
        if not withdrawn:
            return
        try:
            transitions.release({d.row.id: d.row.delivery for d in withdrawn}, self.worker_id)
        finally:
            self.holdings.give_back(withdrawn)
        tell_others(delivery.row for delivery in withdrawn)

    def write_progress(self) -> None:
        """Write down the latest progress of running works."""
        latest = self.services.take_progress()
        held = {delivery.row.id: delivery.row.delivery for delivery in self.holdings.all()}
        write_progress({id: (held[id], text) for id, text in latest.items() if id in held})

    def beat(self) -> None:
        """Tell that this worker is alive."""
        if self.presence is not None:
            self.presence.beat(self.holdings.active)

    def prune(self) -> None:
        """Delete one batch of what has been kept long enough; the next at the next tick while there is a lot.

        A million rows may be waiting, and the leases must be renewed meanwhile.
        """
        if prune() >= PRUNE_BATCH:
            self.pruning.due_at = 0.0

    def tell_orphans(self) -> None:
        """Tell of settled groups nobody waited for, once their grace is over."""
        now = time.monotonic()
        due = [entry for entry in self._orphans if entry[1] <= now]
        for entry in due:
            self._orphans.remove(entry)
            tell_unhandled(entry[0])
