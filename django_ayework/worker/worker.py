"""The worker: claims works, runs them, settles them, and leaves nothing behind when it stops.

Its threads: *claiming* takes works from the queue, slots run them, *settling* writes their outcomes, *leases*
keeps them while they run, *maintenance* does everything else. The thread that calls :meth:`Worker.run` is the
watchdog of all of them, and asks the database nothing until they have ended.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from django.core.exceptions import ImproperlyConfigured

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.requests import new_uuid7
from django_ayework.define.types import registry
from django_ayework.documentation import documented, logged
from django_ayework.doers.base import NOT_CLOSED, guarded
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.hooks import report, send
from django_ayework.flow.notify import close_idle, listening_thread, revoked_works
from django_ayework.flow.outcomes import is_to_be_parked
from django_ayework.flow.startup_checks import text_of_small_pool
from django_ayework.heartbeat import Heartbeat
from django_ayework.logs import logger
from django_ayework.rules.controls import Scope
from django_ayework.rules.formatting import error_text
from django_ayework.rules.health import Phase
from django_ayework.store.connections import close_all_connections, tidy_connections
from django_ayework.store.sessions import counting_threads, engine_session, pool_size
from django_ayework.worker import bounds
from django_ayework.worker.admission import BacklogMonitor, Backpressure, Retirement, asked_slots, named, park
from django_ayework.worker.arrivals import arrivals_for
from django_ayework.worker.attempt import Ended
from django_ayework.worker.claimer import Claimer, Commands, Prefetch
from django_ayework.worker.dispatch import Dispatcher
from django_ayework.worker.executor import Executor, Load
from django_ayework.worker.health import Watchdog, WatchedThread, WorkerHealth, WorkerRegistration
from django_ayework.worker.in_flight import ActiveWork, Delivery, InFlight, active_works
from django_ayework.worker.leases import LeaseThread
from django_ayework.worker.maintenance import MaintenanceThread, Scheduler
from django_ayework.worker.settler import Settler
from django_ayework.worker.shutdown import ends_in_time, wind_down
from django_ayework.worker.threads import EngineThread, Recovery, WakeEvent

#: Seconds to wait after the loop met an error, growing up to LONGEST_RECOVERY while errors go on.
FIRST_RECOVERY, LONGEST_RECOVERY = 0.2, 10.0
#: Seconds that another thread takes to begin, or several.
A_MOMENT = 0.0005


class Engine:
    """The parts of a process that runs works: those of a worker, or of the pool of works that skip the queue.

    Subclasses make the maintenance thread, and claim in :meth:`_serve`.
    """

    _maintenance: MaintenanceThread
    #: Whether claimed works may begin during the grace; otherwise they are released at once.
    _begins_claimed = False

    def __init__(self, id: str, concurrency: int, on_room: Callable[[], None], claiming: str) -> None:
        self.id = id
        self.concurrency = concurrency
        self._services = EngineServices()
        self._in_flight = InFlight(on_room)
        self._executor = Executor(concurrency, self._services, self._finished)
        self._settler = Settler(self._services, self._settled)
        self._leases = LeaseThread(self.id, self._in_flight)
        self._claiming = EngineThread(claiming, self._serve)
        self._watchdog = Watchdog(self._in_flight, self._threads)

    def _serve(self, heartbeat: Heartbeat) -> None:
        """Claim until it is time to stop, in the claiming thread."""
        raise NotImplementedError

    def _threads(self) -> list[WatchedThread]:
        """Return the threads that must go on, as far as they were started."""
        beginning = self._executor.beginning
        engine = (self._claiming, beginning, self._settler, self._leases, self._maintenance)
        return [each for each in engine if each.was_started]

    def _start_threads(self) -> None:
        """Start the threads that look after claimed works."""
        for thread in (self._settler, self._leases, self._maintenance):
            thread.start()

    def _finished(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass outcomes on to be settled, and free the slot."""
        self._settler.take_over(outcomes)
        if not load.withdrawn:
            self._in_flight.finish(in_doer=load.deliveries[0].doer is not None)

    def _settled(self, deliveries: list[Delivery]) -> None:
        """Forget settled works."""
        self._in_flight.settle(deliveries)

    def _wind_down(self) -> int:
        """Stop the parts in the order in which works pass through them; return how many works are left."""
        until = time.monotonic() + get_settings().shutdown_grace
        left = wind_down(self.id, self._in_flight, until, self._begins_claimed)
        self._executor.stop(timeout=1.0)
        self._settler.stop(timeout=max(bounds.LAST_OUTCOMES, until - time.monotonic()))
        self._leases.stop()
        self._maintenance.stop()
        return left + len(self._in_flight.all())


class Worker(Engine):
    """A worker of this process: threads for plain handlers, one event loop for async ones.

    ``queues`` limits the worker to these queues (all, when empty), ``types`` and ``exclude_types`` to types
    of work: it claims and reclaims no others. ``concurrency`` is the number of works that run at a time. With
    ``burst`` the worker stops once no work that it may run is due or running, with ``max_works`` after that
    many attempts, and with ``max_memory`` once its process uses more megabytes. It fires schedules unless
    ``scheduler`` is False. Raises InvalidOption for numbers and names that cannot be used.

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
        registry.load()
        self._wake = WakeEvent()
        asked = asked_slots(concurrency)
        # Handlers take connections from the project's pool: a work without one would wait, and fail.
        super().__init__(new_uuid7(), min(asked, pool_size() or asked), self._wake.set, "claiming")
        if self.concurrency < asked:
            logger.warning("Note: %s. %s", text_of_small_pool(self.concurrency, asked), logged("small-pool"))
        self.name = name
        self.queues = named(queues, "queues")
        self.types = named(types, "types")
        self.exclude_types = named(exclude_types, "exclude_types")
        self.burst = burst
        #: Works that were left to their leases, as the database was away in the end.
        self.left = 0
        #: Why the worker did not start in the background, if the database cannot be used as it is.
        self.refusal: ImproperlyConfigured | None = None
        self._fires_schedules = scheduler
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._retirement = Retirement(max_works, max_memory)
        self._build(Scope(self.queues, self.types, self.exclude_types))

    def _build(self, scope: Scope) -> None:
        """Make the parts that only a worker has, in the order in which they depend on one another."""
        self._backpressure = Backpressure()
        self._backlog = BacklogMonitor()
        self._prefetch = Prefetch(self.concurrency)
        self.health = WorkerHealth(self.id, self.concurrency, self._watchdog)
        self._registration = WorkerRegistration(
            *(self.id, self.name, self.queues, self.concurrency),
            trouble=self.health.stuck_threads,
            on_beat=self.health.note_heartbeat,
        )
        self._maintenance = MaintenanceThread(
            self.id, self._in_flight, self._services, self._settler.tally, self._registration, scope
        )
        self._scheduler = Scheduler(turns_once=self.burst)
        self._dispatcher = Dispatcher(self._in_flight, self._executor)
        self._commands = Commands(self._registration, self._maintenance, self.request_stop)
        self._arrivals = None if self.burst else arrivals_for(scope, self._wake.set)
        self._claimer = Claimer(
            self.id,
            scope,
            self._wake,
            self._dispatcher.room,
            self._maintenance,
            self._scheduler,
            self._commands,
            self._arrivals,
        )

    def start(self) -> None:
        """Start in the background; return at once."""
        if self._thread is not None:
            raise documented(
                RuntimeError("this Worker was started before; build a new one."), "worker-started-twice"
            )
        self._thread = threading.Thread(target=self._run_in_background, name="ayework-worker", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Stop the worker, and wait for that; return whether it has ended.

        The worker claims no more works, lets running works finish within ``SHUTDOWN_GRACE``, and releases the
        others. It may not end when the database does not answer. The leases of its works then lapse.
        """
        self.request_stop()
        return self._thread is None or ends_in_time(self._thread, self.id)

    def wait(self) -> None:
        """Wait until the worker begins to end, because it was asked to stop or has reached its end."""
        self._stopping.wait()

    def request_stop(self) -> None:
        """Ask the worker to stop; return at once.

        Do not call it in a signal handler of the thread that runs the worker: that thread may hold a lock
        that this method takes.
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
    def known_types(self) -> list[str]:
        """The names of the types of work whose works this worker claims, sorted."""
        return [name for name in registry.names() if self._claimer.scope.serves_type(name)]

    def active(self) -> list[ActiveWork]:
        """Return the works that this worker has claimed and that have not ended, the first claimed first."""
        return active_works(self._in_flight)

    @property
    def lost(self) -> str:
        """Why the worker cannot go on: a thread or its database file is lost; empty while it can."""
        return self._watchdog.lost

    def run(self) -> None:
        """Run the worker until it is asked to stop or reaches its end, in threads of its own.

        Raises ImproperlyConfigured for a database that lacks migrations, or isolates transactions too much.
        """
        last = Phase.STOPPED
        try:
            with engine_session():
                revoked_works.subscribe(self._in_flight.abort)
                self._claiming.start()  # which starts the other threads once the database answers
                try:
                    self._watch()
                    if self._commands.has_stopped:
                        last = Phase.DISMISSED
                    elif not self._stopping.is_set() and not self.lost:
                        last = Phase.RETIRED if self._retirement.reached else Phase.FINISHED
                finally:
                    self._close()
        except BaseException as error:
            if not isinstance(error, ImproperlyConfigured):
                self._watchdog.lose(f"the worker has failed: {error_text(error)}", error)
            raise
        finally:
            self._stopping.set()
            self.health.enter(last)

    def _run_in_background(self) -> None:
        """Work; note why the worker refuses to start, as nothing catches errors of this thread."""
        try:
            self.run()
        except ImproperlyConfigured as refusal:
            self.refusal = refusal
            logger.error("Worker %s does not start. %s %s", self.id, refusal, logged("worker-does-not-start"))

    def _threads(self) -> list[WatchedThread]:
        """Return the threads that this worker needs, as far as they were started."""
        receivers = self._arrivals.receivers if self._arrivals is not None else ()
        threads: tuple[EngineThread, ...] = (self._maintenance.hooks, self._scheduler, *receivers)
        more = [each for each in threads if each.was_started]
        others: tuple[WatchedThread | None, ...] = (self._executor.loop, listening_thread())
        return [*super()._threads(), *more, *filter(None, others), *counting_threads]

    def _watch(self) -> None:
        """Watch the threads until the claiming loop has ended; raise the error that has ended it.

        The claiming thread may be the one that is lost.
        """
        while not self._claiming.has_ended and not (self.lost and self._stopping.is_set()):
            self._watchdog.check()
            if self.lost:
                self.health.notify()
            self._claiming.join(bounds.CHECK_EVERY)
        if self._error is not None:
            raise self._error

    def _close(self) -> None:
        """Stop the parts in the order in which works pass through them."""
        self._claimer.wake_ups.close()
        self._dispatcher.close()
        revoked_works.unsubscribe(self._in_flight.abort)
        self._stopping.set()
        if self._error is not None or not self._settler.was_started:  # no other thread was started
            return
        self._dispatcher.hand_out_rest()
        self.health.enter(Phase.STOPPING)
        self._scheduler.stop()
        if self._arrivals is not None:
            self._arrivals.stop()
        self.left = self._wind_down()
        close_idle()
        self._registration.sign_off(self.left)
        send(signals.worker_stopped, "of a stopped worker", Worker, worker=self)

    def _serve(self, heartbeat: Heartbeat) -> None:
        """Begin, then claim until it is time to stop; an error that ends the loop begins it again."""
        if self._settler.was_started or self._begin():
            self._claim_until_over(heartbeat)

    def _begin(self) -> bool:
        """Subscribe, register this worker and start its other threads; return False if it does not start."""
        try:
            self._claimer.wake_ups.open(self._maintenance.check_revoked)
            self._dispatcher.open(self._wake.set)
            if not self._registration.register_once_ready(self._stopping, self.health.note):
                return False
            self._start_threads()
            if self._arrivals is not None:
                self._arrivals.start()
            if self._fires_schedules:
                self._scheduler.guarded_turn() if self.burst else self._scheduler.start()
            if not self._stopping.is_set():
                self.health.enter(Phase.WORKING)
            send(signals.worker_started, "of a started worker", Worker, worker=self)
            queues = ", ".join(self.queues) or "all queues"
            logger.info("Worker %s started: %d at a time, %s.", self.id, self.concurrency, queues)
        except BaseException as error:
            self._error = error
            return False
        return True

    def _claim_until_over(self, heartbeat: Heartbeat) -> None:
        """Claim and hand out until it is time to stop; an error costs a pause, never the loop."""
        recovery = Recovery(FIRST_RECOVERY, LONGEST_RECOVERY)
        while True:
            self._wake.clear()  # before the check, so that a stop that comes after it ends the rest below
            if self._is_over():
                return
            heartbeat.beat()
            trouble: BaseException | None = None
            try:
                pause = self._turn()
                recovery.succeed()
            except BaseException as error:  # a hook of the project's may raise anything
                report(error, "queue", "the claiming loop failed and carries on", recovery.goes_on)
                close_all_connections()
                trouble, pause = error, recovery.fail()
            pause = min(pause, self._dispatcher.hand_out_due())  # the turn may have filled batches
            self.health.note(trouble)
            if pause:
                guarded(tidy_connections, NOT_CLOSED)
                heartbeat.beat(rest=pause)
                self._wake.wait(pause)

    def _turn(self) -> float:
        """Claim as much as there is room for, and hand it out; return how long there is nothing to do."""
        wanted, room = self._wanted(), self._dispatcher.gathering.room()
        has_room = self._dispatcher.doers_have_room() or wanted > 0
        held_for = self._backpressure.pause(self._in_flight.active)
        if not held_for and (has_room or room):
            has_room = True
            pause = self._claim(wanted, room)
        else:
            self._claimer.poll_if_due()
            self._claimer.ask_for_ids(0)
            pause = min(held_for or math.inf, get_settings().poll_interval)
        behind = not self._claimer.is_quiet and (not has_room or bool(self._claimer.claim_groups))
        self._backlog.note(behind, self._in_flight.active, self._claimer.scope.serves_queue)
        return pause

    def _claim(self, wanted: int, room: Mapping[str, int]) -> float:
        """Claim works and hand them out; return how long there is nothing to do, 0 if more can be claimed."""
        claimed = self._claimer.claim(wanted, room, self._retirement.attempts_left(self._in_flight.attempts))
        unknown = [delivery for delivery in claimed if is_to_be_parked(delivery.row)]
        if claimed:
            self._dispatcher.hand_out([delivery for delivery in claimed if delivery not in unknown])
        goes_on = bool(self._claimer.claim_groups) and self._claimer.may_claim_more(self._wanted())
        if claimed and not goes_on:  # let these begin before this thread goes on, and needs the interpreter
            self._wake.wait(A_MOMENT)
        self._claimer.wake_ups.answer(claimed, self._claimer.left)
        for delivery in unknown:
            park(delivery.row, self.id)
        wanted = self._wanted()
        self._claimer.ask_for_ids(wanted)
        if wanted and self._claimer.awaits_ids:  # ids will wake this thread, and more room changes nothing
            self._in_flight.low_water = -1
        return 0.0 if goes_on else self._claimer.pause()

    def _wanted(self) -> int:
        """Return for how many slots to claim now; none while enough is in hand."""
        target = self._prefetch.target(self._in_flight.finished)
        # In big bites while works are quick, at once if slots idle. Works are counted after the mark is set:
        # an end that the count misses meets the mark, and wakes this thread.
        self._in_flight.low_water = max(self.concurrency - 1, target // 2)
        held = self._in_flight.unfinished
        if held > self._in_flight.low_water or self._stopping.is_set():
            return 0
        return min(target - held, self._retirement.attempts_left(self._in_flight.attempts))

    def _is_over(self) -> bool:
        """Tell whether it is time to stop."""
        if self._stopping.is_set() or self._watchdog.lost:
            return True
        if self._retirement.judge(self._in_flight.attempts, self._in_flight.all_begun):
            self.health.enter(Phase.RETIRING)
        if self._in_flight.all():
            return False
        return bool(self._retirement.reached) or (self.burst and self._is_drained())

    def _is_drained(self) -> bool:
        """Poll once more, and again after maintenance has acted on that poll: nothing is due."""
        try:
            self._claimer.poll()
            if not self._claimer.is_idle():
                return False
            self._maintenance.wait_until_done(bounds.LAST_DUTIES)
            self._claimer.poll()
        except Exception:
            return False
        return self._claimer.is_idle()

    def _finished(self, load: Load, outcomes: list[Ended]) -> None:
        """Count outcomes for the backpressure hook, then pass them on."""
        self._backpressure.count(outcomes)
        super()._finished(load, outcomes)

    def _settled(self, deliveries: list[Delivery]) -> None:
        """Forget settled works; claim again if a limit has held others of their types back."""
        self._in_flight.settle(deliveries)
        if self._claimer.make_room(delivery.type for delivery in deliveries):
            self._wake.set()
