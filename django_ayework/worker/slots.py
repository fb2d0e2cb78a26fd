"""Where handlers run: so many at a time, plain functions in threads, async ones on one event loop."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from django.db import close_old_connections, connections, reset_queries

from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.worker.batches.running import Ended
from django_ayework.worker.event_loop import EventLoopThread
from django_ayework.worker.loads import Load, is_async, run_load, without_outcome

Finished = Callable[[Load, list[Ended]], None]


class Slots:
    """Runs deliveries and batches; ``finished(load, outcomes)`` is called when one has ended.

    A settlement is None when the delivery was withdrawn, or when the engine itself failed on it:
    then its lease will lapse, and it is delivered again. Threads are started as they are needed.
    """

    def __init__(self, concurrency: int, services: EngineServices, finished: Finished) -> None:
        self.concurrency = concurrency
        self.services = services
        self.finished = finished
        self._lock = threading.Lock()
        self._waiting: deque[Load] = deque()
        self._taken = 0  # slots in use
        self._plain = 0  # of these, by plain functions
        self._inbox: queue.SimpleQueue[Load | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._loop: EventLoopThread | None = None
        self._guests: dict[int, threading.Event] = {}  # by the async load that runs there without a slot

    def submit(self, load: Load) -> None:
        """Hand over what is to run; it starts as soon as a slot is free, in the order of handing over."""
        with self._lock:
            if self._taken == self.concurrency:
                self._waiting.append(load)
                return
            self._taken += 1
            self._begin(load)

    def run_here(self, load: Load) -> None:
        """Run in the calling thread, without a slot; one that is async runs on the loop meanwhile."""
        if not is_async(load):
            self._run(load)
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
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._loop is not None:
            self._loop.stop(timeout)

    def _begin(self, load: Load) -> None:
        """Start what has a slot (under the lock)."""
        if is_async(load):
            self._event_loop().submit(load)
            return
        self._plain += 1
        if self._plain > len(self._threads):
            name = f"ayework-slot-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()
        self._inbox.put(load)

    def _event_loop(self) -> EventLoopThread:
        """Return the loop, started when it is first needed (under the lock)."""
        if self._loop is None:
            self._loop = EventLoopThread(self.services, self._finished_on_loop)
        return self._loop

    def _serve(self) -> None:
        """Run one load after the other, as long as there are any for this thread."""
        while (load := self._inbox.get()) is not None:
            following: Load | None = load
            while following is not None:
                self._run(following)
                following = self._next_for_thread()
        connections.close_all()

    def _run(self, load: Load) -> None:
        """Run one load. Connections live in this thread, and are cared for in it."""
        outcomes = without_outcome(load)
        try:
            if load.start():
                close_old_connections()
                outcomes = run_load(load, self.services)
        except BaseException as error:
            report(error, "queue", f"the engine failed on {load}")
        finally:
            self.finished(load, outcomes)
            tidy_connections()

    def _next_for_thread(self) -> Load | None:
        """Pass this thread's slot on to the next load; return it if it runs in a thread."""
        with self._lock:
            if self._waiting and not is_async(self._waiting[0]):
                return self._waiting.popleft()
            self._plain -= 1
            self._pass_on()
            return None

    def _finished_on_loop(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass the slot of an async load on, or tell the thread that waits for it."""
        self.finished(load, outcomes)
        with self._lock:
            guest = self._guests.pop(id(load), None)
            if guest is None:
                self._pass_on()
        if guest is not None:
            guest.set()

    def _pass_on(self) -> None:
        """Give a slot that has become free to the next load, if there is one (under the lock)."""
        if self._waiting:
            self._begin(self._waiting.popleft())
        else:
            self._taken -= 1


def tidy_connections() -> None:
    """Drop broken and outlived connections, and the query log that DEBUG keeps."""
    try:
        close_old_connections()
        reset_queries()
    except Exception as error:
        report(error, "queue", "a connection could not be closed")
