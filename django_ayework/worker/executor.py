"""The executor: runs attempts, so many at a time; plain handlers in threads, async ones on one event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, TypeAlias, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async

from django_ayework.compat import hand_over, has_thread
from django_ayework.define.requests import watch
from django_ayework.documentation import logged
from django_ayework.doers.base import NOT_CLOSED, guarded
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.hooks import report
from django_ayework.heartbeat import Heartbeat
from django_ayework.logs import logger
from django_ayework.store.connections import close_all_connections, keep_connections, tidy_connections
from django_ayework.worker.attempt import Ended, arun, escaped, run
from django_ayework.worker.handlers import put_off
from django_ayework.worker.in_flight import Batch, Delivery
from django_ayework.worker.interruption import end_connections, leave_clean
from django_ayework.worker.leases import Beginning

#: A load takes a slot: one work, or a batch of works.
Load: TypeAlias = Delivery | Batch
#: Called after each load, with how its attempts ended.
Finished = Callable[[Load, list[Ended]], None]
T = TypeVar("T")


def is_async(load: Load) -> bool:
    """Tell whether the handler runs on the event loop."""
    return load.work_type is not None and load.work_type.is_async


def without_outcome(load: Load) -> list[Ended]:
    """Return the outcomes of works that did not run, or on which the engine itself failed."""
    return [(delivery, None) for delivery in load.deliveries]


def put_off_all(load: Load, error: BaseException) -> list[Ended]:
    """Put off the works of a load that cannot begin their last attempts."""
    why = "could not begin its last attempt"
    return [(each, put_off(each.row, error, why) if each.may_run else None) for each in load.deliveries]


class TendedThreads(ThreadPoolExecutor):
    """Threads for calls of async handlers that do not run in the thread of a work.

    They outlast the work, and nothing tells them when they end, so each call closes its connections.
    """

    def submit(self, call: Callable[..., T], /, *args: Any, **more: Any) -> Future[T]:
        """Call this in one of the threads."""
        return super().submit(self._tended, partial(call, *args, **more))

    def _tended(self, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            guarded(partial(end_connections, "an async work"), NOT_CLOSED)


#: Seconds between two beats of the event loop.
BEAT_EVERY = 1.0


class EventLoopThread:
    """One event loop, in a thread, for all async handlers; ``finished`` is called on the loop."""

    def __init__(self, services: EngineServices, finished: Finished, beginning: Beginning) -> None:
        self.services = services
        self._beginning = beginning
        self._one_begins = asyncio.Lock()
        self.finished = finished
        #: Beats while the loop goes round. A handler that blocks it is code of the project.
        self.heartbeat = Heartbeat("event loop")
        self.heartbeat.is_in_project_code = True
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(TendedThreads(thread_name_prefix="ayework-async-call"))
        #: Queries of tasks that have outlived their handlers.
        self._late_calls = TendedThreads(1, "ayework-async-late")
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="ayework-async", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._loop.close()
            raise

    def submit(self, load: Load, on_end: Callable[[], None]) -> None:
        """Hand over a load, from any thread; ``on_end`` is called on the loop, unless the loop has ended.

        The context of the caller may be that of another handler, so the load gets one of its own.
        """
        with self._lock:
            if self._is_over:
                raise RuntimeError("the event loop of the worker has ended")
            self._loop.call_soon_threadsafe(self._spawn, load, on_end, context=Context())

    def stop(self, timeout: float) -> None:
        """Cancel what still runs, then end the loop; do not wait for longer than ``timeout`` seconds."""
        with self._lock:
            self._is_over = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)

    @property
    def is_gone(self) -> bool:
        """Whether the thread has ended before its time."""
        return not self._thread.is_alive() and not self._is_over

    def _run(self) -> None:
        """Run the loop; asyncio ends it when a task of a handler raises SystemExit or KeyboardInterrupt.

        At its end no load comes any more. Those that were handed over are spawned before they are cancelled.
        """
        asyncio.set_event_loop(self._loop)
        self.heartbeat.thread = threading.get_ident()
        self._beat()
        has_ended = False
        while not has_ended:
            try:
                if self._is_over:
                    self._loop.run_until_complete(self._task_of(self._cancel_all()))
                    has_ended = True
                else:
                    self._loop.run_forever()
            except BaseException as error:
                report(error, "queue", "a task of a handler tried to end the event loop, which goes on")
        self._loop.close()
        self._late_calls.shutdown(wait=False)

    def _beat(self) -> None:
        """Beat again and again; a loop that is blocked does not."""
        self.heartbeat.beat(rest=BEAT_EVERY)
        self._loop.call_later(BEAT_EVERY, self._beat)

    def _spawn(self, load: Load, on_end: Callable[[], None]) -> None:
        outcomes: list[Ended] = []
        task = self._task_of(self._attempt(load, outcomes))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, load, on_end, outcomes))

    def _task_of(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Return a task that a factory set by a handler has no part in."""
        return asyncio.Task(coroutine, loop=self._loop)

    def _ended(
        self, load: Load, on_end: Callable[[], None], outcomes: list[Ended], task: asyncio.Task[None]
    ) -> None:
        """Hand on the outcomes; or begin anew, if a handler has cancelled the task before its first step.

        A task that its handler has cancelled in its last step ends as cancelled, too, and has its outcomes.
        """
        self._tasks.discard(task)
        if not outcomes and not self._is_over:
            self._spawn(load, on_end)
            return
        try:
            self.finished(load, outcomes or without_outcome(load))
        finally:
            on_end()

    async def _attempt(self, load: Load, outcomes: list[Ended]) -> None:
        """Run one load; add its outcomes in any case.

        A worker that stops gives a work back whose task it has cancelled. Who else cancels the task before
        the handler is called fails the attempt.
        """
        try:
            error = await self._why_not(load)
            if not load.start():
                outcomes += without_outcome(load)
            else:
                outcomes += await self._isolated(load) if error is None else put_off_all(load, error)
        except asyncio.CancelledError as error:
            outcomes += [(each, None if self._is_over else escaped(each, error)) for each in load.deliveries]
        except BaseException as error:
            report(error, "queue", f"the engine failed on {load}")
            outcomes += [(each, escaped(each, error)) for each in load.deliveries]

    async def _why_not(self, load: Load) -> BaseException | None:
        """Return why last attempts cannot begin. One load begins at a time, once the one before was called.

        So a handler that kills the process takes no others along. Who cancels this task is not the worker.
        """
        while any(delivery.is_last_attempt for delivery in load.deliveries):
            try:
                async with self._one_begins:
                    begun = self._beginning.begin(load)
                    return None if begun is None else await asyncio.shield(asyncio.wrap_future(begun))
            except asyncio.CancelledError:
                if self._is_over or (task := asyncio.current_task()) is None:
                    raise
                task.uncancel()
        return None

    async def _isolated(self, load: Load) -> list[Ended]:
        """Give each load a thread of its own for what it runs with ``sync_to_async``, such as queries.

        A work that blocks that thread, or was cancelled while it was busy, then holds up no other work.
        """
        context = ThreadSensitiveContext()
        try:
            async with context:
                try:
                    return await arun(load, self.services)
                finally:
                    if has_thread(context):
                        # A cancellation comes too late here: an attempt that has ended keeps its outcome.
                        with suppress(asyncio.CancelledError):
                            await asyncio.shield(sync_to_async(end_connections)(load))
        finally:
            hand_over(context, self._late_calls)

    async def _cancel_all(self) -> None:
        """Cancel the tasks, and let them end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SlotThread:
    """A thread of the executor. It does the tasks of its inbox; None ends it."""

    def __init__(self, name: str) -> None:
        self.inbox: queue.SimpleQueue[Callable[[SlotThread], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (task := self.inbox.get()) is not None:
            task(self)
        close_all_connections()


class Executor:
    """Runs deliveries and batches in ``concurrency`` slots; calls ``finished(load, outcomes)`` after each.

    An outcome is None when the delivery was withdrawn. An error of the engine itself fails the attempt.
    Loads start in the order of :meth:`submit`, from one queue. A thread that has ended a load takes the next
    one from it. Threads are started when they are first needed.
    """

    def __init__(self, concurrency: int, services: EngineServices, finished: Finished) -> None:
        watch.start()  # handlers that drop a work fail
        self.concurrency = concurrency
        self.services = services
        self.finished = finished
        #: Notes that last attempts begin.
        self.beginning = Beginning()
        #: The event loop of async handlers, once one was submitted.
        self.loop: EventLoopThread | None = None
        self._lock = threading.Lock()
        self._ready: deque[Load] = deque()
        self._taken = 0  # slots in use
        self._is_refused = False
        self._is_over = False  # then no queued load starts any more, and no event loop
        self._threads: list[SlotThread] = []
        self._idle: list[SlotThread] = []  # the last to become idle is the first to be woken

    def submit(self, loads: Iterable[Load]) -> None:
        """Queue loads; each starts as soon as a slot is free. Without loads, try again to start those."""
        with self._lock:
            self._ready.extend(loads)
            self._fill()

    def run_here(self, load: Load) -> None:
        """Run a load in the calling thread, without a slot; one that is async runs on the loop meanwhile."""
        if not is_async(load):
            guarded(tidy_connections, NOT_CLOSED)
            self._run(load)
            guarded(tidy_connections, NOT_CLOSED)
            return
        ended = threading.Event()
        try:
            with self._lock:
                self._event_loop().submit(load, ended.set)
        except Exception as error:
            report(error, "queue", f"{load} could not be started")
            self.finished(load, without_outcome(load))
            return
        ended.wait()

    @property
    def free(self) -> int:
        """How many slots are free now."""
        return self.concurrency - self._taken

    def stop(self, timeout: float) -> None:
        """End the threads once they are idle; wait at most ``timeout`` seconds for running handlers."""
        until = time.monotonic() + timeout
        with self._lock:
            self._is_over = True
        for each in self._threads:
            each.inbox.put(None)
        for each in self._threads:
            each.thread.join(max(0.0, until - time.monotonic()))
        if self.loop is not None:
            self.loop.stop(timeout)
        self.beginning.request_stop()

    def _fill(self) -> None:
        """Start queued loads in free slots (under the lock).

        If the system has no thread left, the next end of a load or the next ``submit`` tries again; only
        the first refusal is logged.
        """
        while (
            not self._is_over and self._taken < self.concurrency and (load := self._next_ready()) is not None
        ):
            try:
                if is_async(load):
                    self._event_loop().submit(load, self._free_slot)
                else:
                    if not self._idle:
                        self._threads.append(SlotThread(f"ayework-slot-{len(self._threads)}"))
                        self._idle.append(self._threads[-1])
                    self._idle.pop().inbox.put(partial(self._serve, load))
            except Exception as refused:
                if not self._is_refused:
                    logger.error(
                        "A slot could not start its thread; %s waits for another: %s %s",
                        load, refused, logged("thread-not-started"),
                    )  # fmt: skip
                self._is_refused = True
                self._ready.appendleft(load)
                return
            self._is_refused = False
            self._taken += 1

    def _next_ready(self) -> Load | None:
        """Take the next queued load, with or without the lock."""
        try:
            return self._ready.popleft()
        except IndexError:
            return None

    def _event_loop(self) -> EventLoopThread:
        """Return the thread of the event loop, which is started when it is first needed (under the lock)."""
        if self.loop is None:
            if self._is_over:
                raise RuntimeError("the executor has ended")
            self.loop = EventLoopThread(self.services, self.finished, self.beginning)
        return self.loop

    def _serve(self, first: Load, thread: SlotThread) -> None:
        """Run this load, then queued ones, until there is none for the thread."""
        guarded(tidy_connections, NOT_CLOSED)  # they may have become too old meanwhile
        load: Load | None = first
        while load is not None:
            self._run(load)
            guarded(keep_connections, NOT_CLOSED)
            load = self._next_for(thread)
        guarded(tidy_connections, NOT_CLOSED)

    def _next_for(self, thread: SlotThread) -> Load | None:
        """Return what the thread runs next in its slot; or free the slot, and note that it is idle.

        Without the lock while loads are queued: slots that wait for it take longer than a quick handler.
        """
        if (load := self._next_ready()) is not None:
            if not is_async(load):
                return load
            self._ready.appendleft(load)
        with self._lock:
            self._taken -= 1
            self._idle.append(thread)
            self._fill()
            return None

    def _run(self, load: Load) -> None:
        """Run one load; ``finished`` is called in any case."""
        outcomes: list[Ended] = []
        try:
            begun = self.beginning.begin(load)
            error = None if begun is None else begun.result()
            if load.start():
                try:
                    outcomes = run(load, self.services) if error is None else put_off_all(load, error)
                finally:
                    leave_clean(load)
        except BaseException as error:
            report(error, "queue", f"the engine failed on {load}")
            outcomes = outcomes or [(each, escaped(each, error)) for each in load.deliveries]
        finally:
            self.finished(load, outcomes or without_outcome(load))

    def _free_slot(self) -> None:
        """Free the slot of an async load."""
        with self._lock:
            self._taken -= 1
            self._fill()
