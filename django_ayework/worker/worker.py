"""The worker: claims works, runs them, settles them, and leaves nothing behind when it stops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from functools import partial

from django.db import connections

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.ids import new_uuid7
from django_ayework.flow.effects import add_revocation_listener, remove_revocation_listener
from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.rules.health import Phase
from django_ayework.store.sessions import bounded_statements
from django_ayework.worker import bounds
from django_ayework.worker.batches.dispatch import Dispatch
from django_ayework.worker.claiming.claimer import Claimer
from django_ayework.worker.claiming.demand import Demand
from django_ayework.worker.claiming.limits import Limits
from django_ayework.worker.claiming.parking import park, told_apart
from django_ayework.worker.claiming.pressure import Pressure
from django_ayework.worker.claiming.scope import Scope, several
from django_ayework.worker.doing import Doing
from django_ayework.worker.endings import Endings
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.keeper import Keeper
from django_ayework.worker.lag import Lag
from django_ayework.worker.presence import Presence
from django_ayework.worker.recovery import Recovery
from django_ayework.worker.scheduler import Scheduler
from django_ayework.worker.settler import Settler
from django_ayework.worker.slots.leading import Leadership
from django_ayework.worker.slots.runners import Guest
from django_ayework.worker.slots.slots import Slots
from django_ayework.worker.slots.turns import NO_TURNS, turns_of_database
from django_ayework.worker.vitals import Vitals
from django_ayework.worker.wake import Wake
from django_ayework.worker.waking import Waking
from django_ayework.worker.winding_down import ends_in_time, wind_down

logger = logging.getLogger("django_ayework")

#: Seconds to wait after the loop met an error, growing to the second figure while errors go on.
FIRST_RECOVERY, LONGEST_RECOVERY = 0.2, 10.0
#: So many works of one claim run in another thread, while this one claims the next.
MANY = 5


class Worker:
    """A worker of this process: threads for plain handlers, one event loop for async ones.

    ``queues`` limits it to these queues (all, when empty), ``types`` and ``exclude_types`` to types of work;
    ``concurrency`` is how many works run at a time. With ``burst`` it stops once nothing that it may run is
    due and nothing runs; with ``max_works`` after that many attempts; with ``max_memory`` once its process
    uses more megabytes than that. It fires schedules unless ``scheduler`` is False.

    Example::

        with Worker(concurrency=4):
            handle.result(timeout=10)
    """

    def __init__(
        self,
        queues: Iterable[str] = (),
        concurrency: int | None = None,
        *,
        name: str = "",
        burst: bool = False,
        max_works: int | None = None,
        max_memory: int | None = None,
        types: Iterable[str] = (),
        exclude_types: Iterable[str] = (),
        scheduler: bool = True,
    ) -> None:
        self.id = new_uuid7()
        self.name = name
        self.queues = several(queues)
        self.types = several(types)
        self.exclude_types = several(exclude_types)
        self.concurrency = concurrency or get_settings().concurrency
        self.burst = burst
        #: Works that were left to their leases, as the database was away in the end.
        self.left = 0
        self._wake = Wake()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._turns = turns_of_database()
        self._holdings = Holdings(partial(self._turns.after, self._wake.set))
        self._demand = Demand(self.concurrency)
        self._services = EngineServices()
        self._pressure = Pressure()
        self._lag = Lag()
        self._endings = Endings(self._holdings, self._pressure, self._wake.set)
        self._slots = Slots(self.concurrency, self._services, self._endings.finished, self._turns)
        self._slots.line.on_quick = self._wake.set
        self._leadership = Leadership(self._lead, self._slots.line)
        self._settler = Settler(self._services, self._endings.settled, self._turns)
        self._endings.submit = self._settler.submit
        self._presence = Presence(self.id, name, self.queues, self.concurrency)
        self._keeper = Keeper(self.id, self._holdings, self._services, self._presence)
        self._doing = Doing(self._holdings, self._slots, self._keeper.tell_losses)
        scope = Scope(self.queues, self.types, self.exclude_types)
        self._claimer = Claimer(self.id, scope, self._doing.room)
        self._claimer.on_controls = self._keeper.release_paused
        self._endings.make_room = self._claimer.make_room
        self._waking = Waking(self._claimer.told, self._wake, self._keeper.doubt)
        self._dispatch = Dispatch(self._holdings, self._slots, self._doing, self._keeper.tell_losses)
        self._limits = Limits(max_works, max_memory)
        self._scheduler = Scheduler(once=burst, off=not scheduler)
        threads = (self._settler.thread, self._keeper.thread, *self._scheduler.threads)
        self.vitals = Vitals(self.id, self.concurrency, self._holdings, threads)

    def start(self) -> None:
        """Start in the background; return at once."""
        if self._thread is not None:
            raise RuntimeError("this Worker was started before; build a new one.")
        self._thread = threading.Thread(target=self.run, name="ayework-worker", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Stop claiming, let running works finish within the grace, release the rest; wait for all that.

        A database that does not even refuse may keep it from ending: then it is left behind, and its works
        to their leases. Return whether it has ended.
        """
        self.request_stop()
        return self._thread is None or ends_in_time(self._thread, self.id)

    def wait(self) -> None:
        """Wait until the worker begins to end: it was asked to stop, or has done all it was to do."""
        self._stopping.wait()

    def request_stop(self) -> None:
        """Ask the worker to stop; return at once.

        Not for a signal handler of the thread that runs the worker, which it might find waiting.
        """
        self._stopping.set()
        self._wake.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was asked to stop."""
        return self._stopping.is_set()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def run(self) -> None:
        """Work until asked to stop (or, with ``burst``, until nothing is due), in other threads than this."""
        last = Phase.STOPPED
        try:
            with bounded_statements():
                self._open()
                try:
                    self._leadership.oversee()
                    if not self._stopping.is_set():
                        last = Phase.RETIRED if self._limits.reached else Phase.FINISHED
                finally:
                    self._close()
        finally:
            self._stopping.set()
            self.vitals.enter(last)

    def _open(self) -> None:
        """Announce this worker and start its threads."""
        self._presence.announce(self._stopping, self.vitals.progress)
        self._waking.open()
        self._doing.open(self._wake.set)
        add_revocation_listener(self._holdings.abort)
        for part in (self._settler, self._keeper, self._scheduler):
            part.start()
        if not self._stopping.is_set():
            self.vitals.enter(Phase.WORKING)
        signals.worker_started.send_robust(sender=Worker, worker=self)
        logger.info(
            "Worker %s started: %d at a time, %s.", self.id, self.concurrency, self.queues or "all queues"
        )

    def _lead(self, guest: Guest) -> None:
        """Claim and hand out until it is time to stop; an error costs a pause, never the loop.

        Returns early when this thread was stuck in a quick work, as another leads then.
        """
        recovery = Recovery(FIRST_RECOVERY, LONGEST_RECOVERY)
        self._slots.line.regular = None if self._turns is NO_TURNS else guest
        while not self._is_over():
            self._wake.clear()
            trouble: Exception | None = None
            try:
                with self._turns:
                    pause = self._turn(guest)
                recovery.succeed()
            except Exception as error:
                trouble, pause = error, 0.0
                report(error, "queue", "the claiming loop failed and carries on", recovery.goes_on)
                if not guest.is_left:
                    connections.close_all()
                    pause = recovery.fail()
                    self._slots.run_as(guest)  # what was handed out before
            if guest.is_left:
                return  # and touch nothing more, not even the connection
            self._dispatch.hand_out_due()  # after the turn, which may have filled the batches
            pause = 0.0 if guest.has_slot else min(pause, self._dispatch.pause())
            self.vitals.progress(trouble, rest=pause)
            if pause:
                self._waking.wait(pause)

    def _run_here(self, guest: Guest) -> None:
        """Run quick works in this thread, if it has got any; with SQLite, settle them here, too."""
        if self._slots.run_as(guest) and self._turns.is_taken and not guest.is_left:
            self._settler.settle_here()

    def _turn(self, guest: Guest) -> float:
        """Claim what fits, and run it here if it is quick; return how many seconds there is nothing to do."""
        self._demand.measure(self._holdings.finished)
        self._holdings.low_water = self._demand.low_water
        wanted, room = self._wanted(), self._dispatch.room()
        places = wanted + self._doing.room_in_all()
        held_for = self._pressure.pause(self._holdings.active)
        if held_for or (places <= 0 and not room):
            if self._claimer.look_is_due():  # gates expire and works are rescued however busy the slots are
                self._claimer.look_around(self._holdings.ids())
            self._note_lag(places <= 0)
            self._run_here(guest)
            return held_for or get_settings().poll_interval
        left = self._limits.attempts_left(self._holdings.attempts)
        claimed = self._claimer.claim(wanted, self._holdings.ids(), room, left)
        known, unknown = told_apart(claimed)
        runs_here = self._turns.is_taken or len(claimed) < min(places, MANY)
        self._dispatch.hand_out(known, guest if runs_here else None)
        if known and not guest.has_slot and len(claimed) < places:
            self._wake.give_way()
        park(unknown, self.id)
        self._run_here(guest)
        if guest.is_left:
            return 0.0
        self._note_lag(len(claimed) >= places)
        return 0.0 if self._claimer.may_claim_more(self._wanted()) else self._claimer.pause()

    def _note_lag(self, behind: bool) -> None:
        """Note whether this turn took all there was room for, or had none."""
        self._lag.note(behind, self._holdings.active, self._claimer.scope.serves_queue)

    def _wanted(self) -> int:
        """Return for how many slots to claim now; none while enough is in hand."""
        held = self._holdings.unfinished
        if held > self._demand.low_water or self._stopping.is_set():
            return 0
        return self._limits.room(self._demand.target - held, self._holdings.attempts)

    def _is_over(self) -> bool:
        """Tell whether it is time to stop."""
        if self._stopping.is_set():
            return True
        if self._limits.judge(self._holdings.attempts, self._holdings.all_begun):
            self.vitals.enter(Phase.RETIRING)
        if self._holdings.all():
            return False
        return bool(self._limits.reached) or (self.burst and self._is_drained())

    def _is_drained(self) -> bool:
        """Look once more: nothing is due."""
        try:
            self._claimer.look_around(set())
        except Exception:
            return False
        return self._claimer.is_idle()

    def _close(self) -> None:
        """Stop the parts in the order in which works pass through them."""
        self._waking.close()
        self._doing.close()
        remove_revocation_listener(self._holdings.abort)
        self._stopping.set()
        self._dispatch.hand_out_rest()
        self.vitals.enter(Phase.STOPPING)
        self._scheduler.stop()
        until = time.monotonic() + get_settings().shutdown_grace
        self.left = wind_down(self.id, self._holdings, until)
        self._slots.stop(timeout=1.0)
        self._leadership.stop(timeout=1.0)
        self._settler.stop(timeout=max(bounds.LAST_OUTCOMES, until - time.monotonic()))
        self._keeper.stop()
        self.left += len(self._holdings.all())
        self._waking.rest()
        self._presence.leave(self.left)
        signals.worker_stopped.send_robust(sender=Worker, worker=self)
