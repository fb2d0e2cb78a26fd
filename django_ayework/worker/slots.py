"""Where handlers run: so many at a time, plain functions in threads, async ones on one event loop."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from django.db import connections

from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.store.threads import keep_connections, tidy_connections
from django_ayework.worker.batches.batch import Batch
from django_ayework.worker.batches.running import Ended
from django_ayework.worker.event_loop import EventLoopThread
from django_ayework.worker.loads import Load, is_async, run_load, without_outcome
from django_ayework.worker.pace import Pace
from django_ayework.worker.turns import NO_TURNS, AnyTurns

Finished = Callable[[Load, list[Ended]], None]


#: Seconds that a quick work may take before those behind it are given to other threads.
PATIENCE = 0.02
#: Seconds for which quick works are run one after the other while another thread waits for its turn.
LONGEST_TURN = 0.02


class Runner:
    """A thread, what it runs at the moment, and since when (monotonic seconds)."""

    def __init__(self, serve: Callable[[Runner], None], name: str) -> None:
        self.inbox: queue.SimpleQueue[Load | None] = queue.SimpleQueue()
        self.since = 0.0
        self.thread = threading.Thread(target=serve, args=(self,), name=name, daemon=True)
        self.thread.start()


class Slots:
    """Runs deliveries and batches; ``finished(load, outcomes)`` is called when one has ended.

    A settlement is None when the delivery was withdrawn, or when the engine itself failed on it:
    then its lease will lapse, and it is delivered again. Threads are started as they are needed.

    What is quick shares one thread, which takes one after the other, while the others sleep: threads that
    take turns every few microseconds spend their time on taking turns. One that is not quick after all is
    left to its thread as soon as that shows, and another goes on; see ``relieve``, which is to be called soon
    after ``on_quick`` was.
    """

    def __init__(
        self,
        concurrency: int,
        services: EngineServices,
        finished: Finished,
        turns: AnyTurns = NO_TURNS,
        pace: Pace | None = None,
    ) -> None:
        self.concurrency = concurrency
        self.services = services
        self.finished = finished
        #: Called when a thread comes to quick works: from then on it is to be relieved now and then.
        self.on_quick: Callable[[], object] = lambda: None
        self._turns = turns
        self._pace = pace or Pace()
        self._lock = threading.Lock()
        self._waiting: deque[Load] = deque()
        self._taken = 0  # slots in use
        self._plain = 0  # of these, by plain functions
        self._quick: set[Runner] = set()  # of these, by what should be over in a moment
        self._runners: list[Runner] = []
        self._idle: list[Runner] = []  # of these; the last to run is the next to run
        self._loop: EventLoopThread | None = None
        self._guests: dict[int, threading.Event] = {}  # by the async load that runs there without a slot

    def submit(self, loads: Iterable[Load]) -> None:
        """Hand over what is to run; it starts as soon as a slot is free, in the order of handing over."""
        with self._lock:
            self._waiting.extend(loads)
            self._fill()

    def relieve(self) -> None:
        """Let others go on behind works that were thought to be quick and are not (called now and then)."""
        before = time.monotonic() - PATIENCE
        with self._lock:
            self._quick = {runner for runner in self._quick if runner.since >= before}
            self._fill()

    def pause(self) -> float:
        """Return in how many seconds to relieve."""
        waits = self._waiting and self._taken < self.concurrency
        return PATIENCE if waits or self._quick else float("inf")

    def run_here(self, load: Load) -> None:
        """Run in the calling thread, without a slot; one that is async runs on the loop meanwhile."""
        if not is_async(load):
            leave_connections(tidy_connections)
            self._run(load)
            leave_connections(tidy_connections)
            return
        ended = threading.Event()
        with self._lock:
            self._guests[id(load)] = ended
            self._event_loop().submit(load)
        ended.wait()

    @property
    def free(self) -> int:
        """How many slots are free now."""
        return self.concurrency - self._taken

    def stop(self, timeout: float) -> None:
        """End the threads once they are idle; wait at most ``timeout`` seconds for running handlers."""
        until = time.monotonic() + timeout
        for runner in self._runners:
            runner.inbox.put(None)
        for runner in self._runners:
            runner.thread.join(max(0.0, until - time.monotonic()))
        if self._loop is not None:
            self._loop.stop(timeout)

    def _fill(self) -> None:
        """Start what waits while slots are free; quick works wait for the thread at them (under the lock)."""
        while self._waiting and self._taken < self.concurrency:
            if self._quick and self._is_quick(self._waiting[0]):
                return
            self._begin(self._waiting.popleft())

    def _is_quick(self, load: Load) -> bool:
        """Tell whether a load should be over in a moment."""
        return not isinstance(load, Batch) and not is_async(load) and self._pace.is_quick(load.type)

    def _begin(self, load: Load) -> None:
        """Start a load in a slot of its own (under the lock)."""
        self._taken += 1
        if is_async(load):
            self._event_loop().submit(load)
            return
        self._plain += 1
        runner = self._idle.pop() if self._idle else self._new_runner()
        runner.since = time.monotonic()
        if self._is_quick(load):
            self._quick.add(runner)
        runner.inbox.put(load)

    def _new_runner(self) -> Runner:
        """Start another thread (under the lock)."""
        self._runners.append(Runner(self._serve, f"ayework-slot-{len(self._runners)}"))
        return self._runners[-1]

    def _event_loop(self) -> EventLoopThread:
        """Return the loop, started when it is first needed (under the lock)."""
        if self._loop is None:
            self._loop = EventLoopThread(self.services, self._finished_on_loop)
        return self._loop

    def _serve(self, runner: Runner) -> None:
        """Run one load after the other, as long as there are any for this thread."""
        while (load := runner.inbox.get()) is not None:
            leave_connections(tidy_connections)  # they may have become too old meanwhile
            following: Load | None = load
            while following is not None:
                is_quick = runner in self._quick
                with self._turns if is_quick else NO_TURNS:
                    following = self._run_series(runner, following, is_quick)
            leave_connections(tidy_connections)
        connections.close_all()

    def _run_series(self, runner: Runner, load: Load, is_quick: bool) -> Load | None:
        """Run loads that are alike quick, or not; return the next if others are to have their turn before."""
        runner.since = time.monotonic()  # not before: it may have waited for its turn
        until = runner.since + LONGEST_TURN
        following: Load | None = load
        while following is not None:
            self._run(following)
            leave_connections(keep_connections)
            following = self._next(runner, following)
            if (runner in self._quick) != is_quick or (runner.since > until and self._turns.is_wanted):
                break
        return following

    def _run(self, load: Load) -> None:
        """Run one load. Connections live in this thread, and are cared for in it."""
        outcomes: list[Ended] | None = None
        try:
            if load.start():
                outcomes = run_load(load, self.services)
        except BaseException as error:
            report(error, "queue", f"the engine failed on {load}")
        finally:
            self.finished(load, without_outcome(load) if outcomes is None else outcomes)

    def _next(self, runner: Runner, ended: Load) -> Load | None:
        """Note what has ended; pass its slot on to the next load, and return that if it is for a thread."""
        now = time.monotonic()
        with self._lock:
            self._pace.note(ended.type, now - runner.since, self._plain, runner in self._quick)
            runner.since = now
            load = self._waiting[0] if self._waiting else None
            if load is not None and self._is_quick(load):
                if runner not in self._quick:
                    self._quick.add(runner)
                    self.on_quick()
                return self._waiting.popleft()
            if load is not None and not is_async(load):
                self._waiting.popleft()
                self._leave_others(runner)
                return load
            self._plain -= 1
            self._taken -= 1
            self._idle.append(runner)
            self._leave_others(runner)
            return None

    def _leave_others(self, runner: Runner) -> None:
        """Leave what waits to other threads, as this one is no longer at quick works (under the lock)."""
        self._quick.discard(runner)
        self._fill()

    def _finished_on_loop(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass the slot of an async load on, or tell the thread that waits for it."""
        self.finished(load, outcomes)
        with self._lock:
            guest = self._guests.pop(id(load), None)
            if guest is None:
                self._taken -= 1
                self._fill()
        if guest is not None:
            guest.set()


def leave_connections(tidy: Callable[[], None]) -> None:
    """Leave the thread's connections as the next work expects them."""
    try:
        tidy()
    except Exception as error:
        report(error, "queue", "a connection could not be closed")
