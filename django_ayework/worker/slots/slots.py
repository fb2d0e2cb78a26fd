"""Where handlers run: so many at a time, plain functions in threads, async ones on one event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from django.db import connections

from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.store.threads import keep_connections, tidy_connections
from django_ayework.worker.batches.running import Ended
from django_ayework.worker.slots.event_loop import EventLoopThread
from django_ayework.worker.slots.line import Line
from django_ayework.worker.slots.loads import Load, is_async, run_load, without_outcome
from django_ayework.worker.slots.pace import Pace
from django_ayework.worker.slots.runners import Guest, SlotThread
from django_ayework.worker.slots.turns import NO_TURNS, AnyTurns

Finished = Callable[[Load, list[Ended]], None]


#: Seconds that a quick work may take before those behind it are given to other threads.
PATIENCE = 0.02
#: Seconds for which quick works are run one after the other while another thread waits for its turn.
LONGEST_TURN = 0.02


class Slots:
    """Runs deliveries and batches; ``finished(load, outcomes)`` is called when one has ended.

    A settlement is None when the delivery was withdrawn, or when the engine itself failed on it:
    then its lease will lapse, and it is delivered again. Threads are started as they are needed.

    What is quick shares one thread, which takes one after the other, while the others sleep: threads that
    take turns every few microseconds spend their time on taking turns. One that is not quick after all is
    left to its thread as soon as that shows, and another goes on; see ``relieve``, which is to be called soon
    after ``line.on_quick`` was. That thread may be the one that hands over, as a guest: then none is woken.
    But only while somebody watches, who calls ``line.take_leave_of`` for a guest that is stuck.
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
        self.line = Line(concurrency, pace or Pace(), self._start_async, self._new_thread)
        self._turns = turns
        self._threads: list[SlotThread] = []
        self._loop: EventLoopThread | None = None
        self._strangers: dict[int, threading.Event] = {}  # by the async load that runs there without a slot

    def submit(self, loads: Iterable[Load], guest: Guest | None = None) -> None:
        """Hand over what is to run; it starts as soon as a slot is free, in the order of handing over.

        A ``guest`` may have been given a slot afterwards, and is then to call ``run_as`` soon.
        """
        self.line.join(loads, guest)

    def relieve(self) -> None:
        """Let others go on behind works that were thought to be quick and are not (called now and then)."""
        self.line.relieve(PATIENCE)

    def pause(self) -> float:
        """Return in how many seconds to relieve."""
        return PATIENCE if self.line.is_to_be_relieved else float("inf")

    def run_as(self, guest: Guest) -> bool:
        """Run quick works in the calling thread, for a turn at most; return False if the guest has no slot.

        It keeps its slot while there are more: then this is to be called again soon. When ``guest.is_left``
        afterwards, it was stuck for a while, and others do meanwhile what its thread does otherwise.
        """
        if not guest.has_slot:
            return False
        with guest.connections:
            leave_connections(tidy_connections)
            until = time.monotonic() + LONGEST_TURN
            load = self.line.next_for_guest(guest)
            while load is not None:
                self._run(load)
                leave_connections(keep_connections)
                goes = time.monotonic() > until and self._turns.is_wanted
                load = self.line.next_for_guest(guest, load, goes)
            leave_connections(tidy_connections)
        return True

    def run_here(self, load: Load) -> None:
        """Run in the calling thread, without a slot; one that is async runs on the loop meanwhile."""
        if not is_async(load):
            leave_connections(tidy_connections)
            self._run(load)
            leave_connections(tidy_connections)
            return
        ended = threading.Event()
        with self.line.lock:
            self._strangers[id(load)] = ended
            self._start_async(load)
        ended.wait()

    @property
    def free(self) -> int:
        """How many slots are free now."""
        return self.concurrency - self.line.taken

    def stop(self, timeout: float) -> None:
        """End the threads once they are idle; wait at most ``timeout`` seconds for running handlers."""
        until = time.monotonic() + timeout
        for each in self._threads:
            each.inbox.put(None)
        for each in self._threads:
            each.thread.join(max(0.0, until - time.monotonic()))
        if self._loop is not None:
            self._loop.stop(timeout)

    def _new_thread(self) -> SlotThread:
        """Start another thread (under the lock of the line)."""
        self._threads.append(SlotThread(self._serve, f"ayework-slot-{len(self._threads)}"))
        return self._threads[-1]

    def _start_async(self, load: Load) -> None:
        """Start a load on the event loop, which is started when it is first needed (under the same lock)."""
        if self._loop is None:
            self._loop = EventLoopThread(self.services, self._finished_on_loop)
        self._loop.submit(load)

    def _serve(self, thread: SlotThread) -> None:
        """Run one load after the other, as long as there are any for this thread."""
        while (load := thread.inbox.get()) is not None:
            leave_connections(tidy_connections)  # they may have become too old meanwhile
            following: Load | None = load
            while following is not None:
                is_quick = self.line.is_quick_for(thread)
                with self._turns if is_quick else NO_TURNS:
                    following = self._run_series(thread, following, is_quick)
            leave_connections(tidy_connections)
        connections.close_all()

    def _run_series(self, thread: SlotThread, load: Load, is_quick: bool) -> Load | None:
        """Run loads that are alike quick, or not; return the next if others are to have their turn before."""
        thread.since = time.monotonic()  # not before: it may have waited for its turn
        until = thread.since + LONGEST_TURN
        following: Load | None = load
        while following is not None:
            self._run(following)
            leave_connections(keep_connections)
            following = self.line.next_for(thread, following)
            if self.line.is_quick_for(thread) != is_quick or (thread.since > until and self._turns.is_wanted):
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

    def _finished_on_loop(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass the slot of an async load on, or tell the thread that waits for it."""
        self.finished(load, outcomes)
        with self.line.lock:
            stranger = self._strangers.pop(id(load), None)
        if stranger is None:
            self.line.leave_slot()
        else:
            stranger.set()


def leave_connections(tidy: Callable[[], None]) -> None:
    """Leave the thread's connections as the next work expects them."""
    try:
        tidy()
    except Exception as error:
        report(error, "queue", "a connection could not be closed")
