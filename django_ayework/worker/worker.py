"""The worker: claims works, runs them, settles them, and leaves nothing behind when it stops.

Its threads: *claiming* takes works from the queue, slots run them, *settling* writes their outcomes, *leases*
keeps them while they run, *maintenance* does everything else. The thread that calls :meth:`Worker.run` looks
after all of them, and asks the database nothing until they have ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.ids import new_uuid7
from django_ayework.flow.events import report
from django_ayework.flow.notify import listening_thread, revoked_works
from django_ayework.flow.readiness import text_of_small_pool
from django_ayework.flow.services import EngineServices
from django_ayework.heartbeat import Heartbeat
from django_ayework.rules.controls import Scope, several
from django_ayework.rules.health import Phase, wrong_with_threads
from django_ayework.store.lanes import Poll
from django_ayework.store.sessions import engine_session, pool_size
from django_ayework.worker import bounds
from django_ayework.worker.claimer import Claimer, Prefetch
from django_ayework.worker.dispatch import Dispatch, DoerDispatcher
from django_ayework.worker.executor import Executor
from django_ayework.worker.health import Lag, Presence, Vitals
from django_ayework.worker.in_flight import InFlight, ends_in_time, wind_down
from django_ayework.worker.leases import LeaseThread
from django_ayework.worker.limits import Limits, Pressure, park, told_apart
from django_ayework.worker.maintenance import Maintenance
from django_ayework.worker.scheduler import Scheduler
from django_ayework.worker.settler import CompletionHandler, Settler
from django_ayework.worker.threads import EngineThread, Recovery, Wake
from django_ayework.worker.waking import Waking
from django_ayework.worker.watchdog import LOOK_EVERY, Watchdog, Watched

logger = logging.getLogger("django_ayework")

#: Seconds to wait after the loop met an error, growing to the second figure while errors go on.
FIRST_RECOVERY, LONGEST_RECOVERY = 0.2, 10.0


class Worker:
    """A worker of this process: threads for plain handlers, one event loop for async ones.

    ``queues`` limits it to these queues (all, when empty), ``types`` and ``exclude_types`` to types of work:
    it claims and takes back no others. ``concurrency`` is how many works run at a time. With ``burst`` it
    stops once nothing that it may run is due and nothing runs; with ``max_works`` after that many attempts;
    with ``max_memory`` once its process uses more megabytes than that. It fires schedules unless
    ``scheduler`` is False.

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
        asked = concurrency or get_settings().concurrency
        #: Handlers take their connections from the project's pool, if it has one; a work without one would
        #: wait in its slot, and fail.
        self.concurrency = min(asked, pool_size() or asked)
        if self.concurrency < asked:
            logger.warning("Note: %s.", text_of_small_pool(self.concurrency, asked))
        self.burst = burst
        #: Works that were left to their leases, as the database was away in the end.
        self.left = 0
        #: Why the worker did not start in the background, if the database cannot be used as it is.
        self.refusal: ImproperlyConfigured | None = None
        self._wake = Wake()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._in_flight = InFlight(self._wake.set)
        self._prefetch = Prefetch(self.concurrency)
        self._services = EngineServices()
        self._pressure = Pressure()
        self._lag = Lag()
        self._completion = CompletionHandler(self._in_flight, self._pressure, self._wake.set)
        self._executor = Executor(self.concurrency, self._services, self._completion.finished)
        self._settler = Settler(self._services, self._completion.settled)
        self._completion.submit = self._settler.submit
        self._presence = Presence(self.id, name, self.queues, self.concurrency)
        self._leases = LeaseThread(self.id, self._in_flight)
        scope = Scope(self.queues, self.types, self.exclude_types)
        self._maintenance = Maintenance(self.id, self._in_flight, self._services, self._presence, scope)
        self._doer_dispatcher = DoerDispatcher(self._in_flight, self._executor)
        self._claimer = Claimer(self.id, scope, self._doer_dispatcher.room)
        self._claimer.on_controls = self._maintenance.release_paused
        self._claimer.on_look = self._note_look
        self._claimer.on_return = self._maintenance.be_patient
        self._completion.make_room = self._claimer.make_room
        self._waking = Waking(self._claimer.told, self._claimer.fleet, self._wake, self._maintenance.doubt)
        self._dispatch = Dispatch(self._in_flight, self._executor, self._doer_dispatcher)
        self._limits = Limits(max_works, max_memory)
        self._scheduler = Scheduler(once=burst, off=not scheduler)
        self._claiming = EngineThread("claiming", self._serve)
        self._watchdog = Watchdog(self._in_flight, self._threads)
        self.vitals = Vitals(self.id, self.concurrency, self._in_flight, self._watchdog)
        self._presence.troubles = lambda: wrong_with_threads(self.vitals.signs(), bounds.STALL)

    def start(self) -> None:
        """Start in the background; return at once."""
        if self._thread is not None:
            raise RuntimeError("this Worker was started before; build a new one.")
        self._thread = threading.Thread(target=self._run_in_background, name="ayework-worker", daemon=True)
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

    @property
    def lost(self) -> str:
        """Why the worker cannot go on: a thread of it cannot be brought back; empty while it can."""
        return self._watchdog.lost

    def run(self) -> None:
        """Work until asked to stop (or, with ``burst``, until nothing is due), in other threads than this.

        Raises ImproperlyConfigured for a database that lacks migrations, or isolates transactions too much.
        """
        last = Phase.STOPPED
        try:
            with engine_session():
                self._open()
                try:
                    self._watch()
                    if not self._stopping.is_set() and not self.lost:
                        last = Phase.RETIRED if self._limits.reached else Phase.FINISHED
                finally:
                    self._close()
        finally:
            self._stopping.set()
            self.vitals.enter(last)

    def _threads(self) -> list[Watched]:
        """Return the threads that this worker needs, as far as they were started."""
        engine = [
            self._claiming,
            self._settler.thread,
            self._leases.thread,
            self._maintenance.thread,
            self._maintenance.hooks,
            *self._scheduler.threads,
        ]
        others: tuple[Watched | None, ...] = (self._executor.loop, listening_thread())
        return [*(each for each in engine if each.was_started), *filter(None, others)]

    def _run_in_background(self) -> None:
        """Work; note why the worker refuses to start, as nothing catches what this thread raises."""
        try:
            self.run()
        except ImproperlyConfigured as refusal:
            self.refusal = refusal
            logger.error("Worker %s does not start. %s", self.id, refusal)

    def _open(self) -> None:
        """Listen, and start the claiming thread, which starts the others once the database answers."""
        self._waking.open()
        self._doer_dispatcher.open(self._wake.set)
        revoked_works.subscribe(self._in_flight.abort)
        self._claiming.start()

    def _watch(self) -> None:
        """Look after the threads until the claiming loop has ended; raise what has ended it.

        That loop may be the thread that is lost.
        """
        while not self._claiming.has_ended and not (self.lost and self._stopping.is_set()):
            self._watchdog.look()
            if self.lost:
                self.vitals.notify()
            self._claiming.join(LOOK_EVERY)
        if self._error is not None:
            raise self._error

    def _serve(self, heartbeat: Heartbeat) -> None:
        """Announce this worker, start its other threads, then claim until it is time to stop."""
        try:
            self._presence.announce(self._stopping, self.vitals.note)
            for part in (self._settler, self._leases, self._maintenance, self._scheduler):
                part.start()
            if not self._stopping.is_set():
                self.vitals.enter(Phase.WORKING)
            signals.worker_started.send_robust(sender=Worker, worker=self)
            logger.info(
                "Worker %s started: %d at a time, %s.", self.id, self.concurrency, self.queues or "all queues"
            )
        except BaseException as error:
            self._error = error
            return
        self._claim_until_over(heartbeat)

    def _claim_until_over(self, heartbeat: Heartbeat) -> None:
        """Claim and hand out until it is time to stop; an error costs a pause, never the loop."""
        recovery = Recovery(FIRST_RECOVERY, LONGEST_RECOVERY)
        while not self._is_over():
            heartbeat.beat()
            self._wake.clear()
            trouble: BaseException | None = None
            try:
                pause = self._turn()
                recovery.succeed()
            except BaseException as error:  # a hook of the project's may raise anything
                report(error, "queue", "the claiming loop failed and carries on", recovery.goes_on)
                connections.close_all()
                trouble, pause = error, recovery.fail()
            self._dispatch.hand_out_due()  # after the turn, which may have filled the batches
            pause = min(pause, self._dispatch.pause())
            self.vitals.note(trouble)
            if pause:
                heartbeat.beat(rest=pause)
                self._waking.wait(pause)

    def _turn(self) -> float:
        """Claim what fits, and hand it out; return for how many seconds there is nothing to do."""
        self._prefetch.measure(self._in_flight.finished)
        self._in_flight.low_water = self._prefetch.low_water
        wanted, room = self._wanted(), self._dispatch.room()
        places = wanted + self._doer_dispatcher.room_in_all()
        held_for = self._pressure.pause(self._in_flight.active)
        if held_for or (places <= 0 and not room):
            if self._claimer.poll_is_due():  # gates expire and works are rescued however busy the slots are
                self._claimer.poll()
            self._note_lag(has_room=places > 0)
            return held_for or get_settings().poll_interval
        left = self._limits.attempts_left(self._in_flight.attempts)
        claimed = self._claimer.claim(wanted, room, left)
        known, unknown = told_apart(claimed)
        self._dispatch.hand_out(known)
        is_rest = not self._claimer.may_claim_more(self._wanted())
        if claimed and is_rest:  # let these begin before this thread goes on
            self._wake.give_way()
        self._waking.answer(claimed, self._claimer.left)
        park(unknown, self.id)
        self._note_lag(has_room=True)
        return self._claimer.pause() if is_rest else 0.0

    def _note_look(self, view: Poll, intervals: Mapping[str, float]) -> None:
        """Hand on what a look has found to do besides works."""
        self._maintenance.note(view, intervals)
        self._scheduler.note(view.schedules)

    def _note_lag(self, has_room: bool) -> None:
        """Note whether this turn had no room, or left works for which there was none."""
        behind = not has_room or bool(self._claimer.busy)
        self._lag.note(behind, self._in_flight.active, self._claimer.scope.serves_queue)

    def _wanted(self) -> int:
        """Return for how many slots to claim now; none while enough is in hand."""
        held = self._in_flight.unfinished
        if held > self._prefetch.low_water or self._stopping.is_set():
            return 0
        return self._limits.room(self._prefetch.target - held, self._in_flight.attempts)

    def _is_over(self) -> bool:
        """Tell whether it is time to stop."""
        if self._stopping.is_set() or self.lost:
            return True
        if self._limits.judge(self._in_flight.attempts, self._in_flight.all_begun):
            self.vitals.enter(Phase.RETIRING)
        if self._in_flight.all():
            return False
        return bool(self._limits.reached) or (self.burst and self._is_drained())

    def _is_drained(self) -> bool:
        """Look once more, and again after what maintenance makes of that look: nothing is due."""
        try:
            self._claimer.poll()
            if not self._claimer.is_idle():
                return False
            self._maintenance.wait_until_done(bounds.LAST_DUTIES)
            self._claimer.poll()
        except Exception:
            return False
        return self._claimer.is_idle()

    def _close(self) -> None:
        """Stop the parts in the order in which works pass through them."""
        self._waking.close()
        self._doer_dispatcher.close()
        revoked_works.unsubscribe(self._in_flight.abort)
        self._stopping.set()
        if self._error is not None:  # nothing was started
            return
        self._dispatch.hand_out_rest()
        self.vitals.enter(Phase.STOPPING)
        self._scheduler.stop()
        until = time.monotonic() + get_settings().shutdown_grace
        self.left = wind_down(self.id, self._in_flight, until)
        self._executor.stop(timeout=1.0)
        self._settler.stop(timeout=max(bounds.LAST_OUTCOMES, until - time.monotonic()))
        self._leases.stop()
        self._maintenance.stop()
        self.left += len(self._in_flight.all())
        self._waking.rest()
        self._presence.leave(self.left)
        signals.worker_stopped.send_robust(sender=Worker, worker=self)
