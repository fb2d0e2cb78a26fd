"""The executor: runs attempts, so many at a time; plain handlers in threads, async ones on one event loop."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from django.db import connections

from django_ayework.define.dropped import watch
from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.store.threads import keep_connections, tidy_connections
from django_ayework.worker.batches.running import Ended
from django_ayework.worker.slots.event_loop import EventLoopThread
from django_ayework.worker.slots.loads import Load, is_async, run_load, without_outcome

Finished = Callable[[Load, list[Ended]], None]

#: Seconds that a load takes at most if it may be left to one thread to run such loads one after the other.
QUICK = 0.0001
#: Seconds for which a queued load may wait for that thread while a slot is free.
PATIENCE = 0.001


class Watch:
    """Tells a thread to watch the queue."""


WATCH = Watch()


class SlotThread:
    """A thread of the executor. A load wakes it, ``WATCH`` makes it watch the queue, None ends it."""

    def __init__(self, serve: Callable[[SlotThread], None], name: str) -> None:
        self.inbox: queue.SimpleQueue[Load | Watch | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=serve, args=(self,), name=name, daemon=True)
        self.thread.start()


class Executor:
    """Runs deliveries and batches in ``concurrency`` slots; calls ``finished(load, outcomes)`` after each.

    A settlement is None when the delivery was withdrawn, or when the engine itself failed on it: then its
    lease lapses, and it is delivered again. Loads start in the order of :meth:`submit`, from one queue. A
    thread that has ended a load takes the next one from it. Threads are started when they are first needed.

    Quick loads run one after the other in one thread, as threads that share them would wait for the
    interpreter longer than they run. Another thread watches the queue meanwhile, and fills all free slots
    when a load is not quick.
    """

    def __init__(self, concurrency: int, services: EngineServices, finished: Finished) -> None:
        watch.start()  # handlers that drop a work fail
        self.concurrency = concurrency
        self.services = services
        self.finished = finished
        #: The event loop of async handlers, once one was submitted.
        self.loop: EventLoopThread | None = None
        self._lock = threading.Lock()
        self._ready: deque[Load] = deque()
        self._taken = 0  # slots in use
        self._threads: list[SlotThread] = []
        self._idle: list[SlotThread] = []  # the last to become idle is the first to be woken
        self._quick: SlotThread | None = None  # runs quick loads, and takes all of them
        self._is_watched = False  # a thread watches the queue while loads wait although a slot is free
        self._without_slot: dict[int, threading.Event] = {}  # async loads of doers, by id()

    def submit(self, loads: Iterable[Load]) -> None:
        """Queue loads; each starts as soon as a slot is free."""
        with self._lock:
            was_empty = not self._ready
            self._ready.extend(loads)
            if was_empty:
                self._fill()

    def run_here(self, load: Load) -> None:
        """Run a load in the calling thread, without a slot; one that is async runs on the loop meanwhile."""
        if not is_async(load):
            self._run_in_thread(load)
            return
        ended = threading.Event()
        with self._lock:
            self._without_slot[id(load)] = ended
            self._start_async(load)
        ended.wait()

    @property
    def free(self) -> int:
        """How many slots are free now."""
        return self.concurrency - self._taken

    def stop(self, timeout: float) -> None:
        """End the threads once they are idle; wait at most ``timeout`` seconds for running handlers."""
        until = time.monotonic() + timeout
        for each in self._threads:
            each.inbox.put(None)
        for each in self._threads:
            each.thread.join(max(0.0, until - time.monotonic()))
        if self.loop is not None:
            self.loop.stop(timeout)

    def _fill(self, every: bool = False) -> None:
        """Start queued loads in free slots (under the lock).

        Unless ``every`` slot is to be filled, one load is given to a thread, and the others are watched.
        """
        threads = self.concurrency if every else int(self._quick is None)
        while self._ready and self._taken < self.concurrency:
            if is_async(self._ready[0]):
                self._start_async(self._ready.popleft())
            elif threads:
                threads -= 1
                self._idle_thread().inbox.put(self._ready.popleft())
            else:
                if not self._is_watched:
                    self._is_watched = True
                    self._idle_thread().inbox.put(WATCH)
                return
            self._taken += 1

    def _idle_thread(self) -> SlotThread:
        """Return a thread that has nothing to do, started now if need be (under the lock)."""
        if self._idle:
            return self._idle.pop()
        self._threads.append(SlotThread(self._serve, f"ayework-slot-{len(self._threads)}"))
        return self._threads[-1]

    def _start_async(self, load: Load) -> None:
        """Start a load on the event loop, which is started when it is first needed (under the lock)."""
        if self.loop is None:
            self.loop = EventLoopThread(self.services, self._finished_on_loop)
        self.loop.submit(load)

    def _serve(self, thread: SlotThread) -> None:
        """Run the load that wakes the thread, then what is queued, until there is nothing for a thread."""
        while (load := thread.inbox.get()) is not None:
            if isinstance(load, Watch):
                self._watch(thread)
                continue
            tend_connections(tidy_connections)  # they may have become too old meanwhile
            following: Load | None = load
            while following is not None:
                began = time.monotonic()
                self._run(following)
                tend_connections(keep_connections)
                following = self._next_for(thread, time.monotonic() - began <= QUICK)
            tend_connections(tidy_connections)
        connections.close_all()

    def _next_for(self, thread: SlotThread, was_quick: bool) -> Load | None:
        """Return what the thread runs next in its slot; or free the slot, and note that it is idle."""
        with self._lock:
            if self._quick in {None, thread}:
                self._quick = thread if was_quick else None
            if self._ready and not is_async(self._ready[0]) and (self._quick is thread or not was_quick):
                return self._ready.popleft()
            if self._quick is thread:
                self._quick = None
            self._taken -= 1
            self._idle.append(thread)
            self._fill()
            return None

    def _watch(self, thread: SlotThread) -> None:
        """Fill the free slots as soon as no thread takes quick loads, or its load is not quick."""
        head = None
        while True:
            time.sleep(PATIENCE)
            with self._lock:
                if self._quick is not None and self._ready and self._ready[0] is not head:
                    head = self._ready[0]
                    continue
                self._quick = None
                self._is_watched = False
                self._idle.append(thread)
                self._fill(every=True)
                return

    def _run_in_thread(self, load: Load) -> None:
        """Run one load between two looks at the connections of the calling thread."""
        tend_connections(tidy_connections)
        self._run(load)
        tend_connections(tidy_connections)

    def _run(self, load: Load) -> None:
        """Run one load; ``finished`` is called whatever happens."""
        outcomes: list[Ended] | None = None
        try:
            if load.start():
                outcomes = run_load(load, self.services)
        except BaseException as error:
            report(error, "queue", f"the engine failed on {load}")
        finally:
            self.finished(load, without_outcome(load) if outcomes is None else outcomes)

    def _finished_on_loop(self, load: Load, outcomes: list[Ended]) -> None:
        """Free the slot of an async load, or wake the thread that waits for it."""
        self.finished(load, outcomes)
        with self._lock:
            waiting = self._without_slot.pop(id(load), None)
            if waiting is None:
                self._taken -= 1
                self._fill()
        if waiting is not None:
            waiting.set()


def tend_connections(tend: Callable[[], None]) -> None:
    """Leave the thread's connections as the next work expects them."""
    try:
        tend()
    except Exception as error:
        report(error, "queue", "a connection could not be closed")
