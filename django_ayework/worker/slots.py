"""Where handlers run: threads for plain functions, one event loop for async ones."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries

from django_ayework.define.registry import registry
from django_ayework.define.signal import AbortReason
from django_ayework.flow.events import report
from django_ayework.flow.settle import Settlement
from django_ayework.worker.attempt import arun, run
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.services import EngineServices

Finished = Callable[[Delivery, Settlement | None], None]


class Slots:
    """Runs deliveries; ``finished(delivery, settlement)`` is called when an attempt has ended.

    The settlement is None when the delivery was withdrawn, or when the engine itself failed on it: then its
    lease will lapse, and it is delivered again.
    """

    def __init__(self, concurrency: int, services: EngineServices, finished: Finished) -> None:
        self.concurrency = concurrency
        self.services = services
        self.finished = finished
        self._queue: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"ayework-slot-{number}", daemon=True)
            for number in range(concurrency)
        ]
        self._loop: EventLoopThread | None = None

    def start(self) -> None:
        """Start the threads; the event loop starts with the first async work."""
        for thread in self._threads:
            thread.start()

    def submit(self, delivery: Delivery) -> None:
        """Hand over a delivery; it starts as soon as a slot is free."""
        work_type = registry.find(delivery.row.type)
        if work_type is not None and work_type.is_async:
            self._event_loop().submit(delivery)
        else:
            self._queue.put(delivery)

    def stop(self, timeout: float) -> None:
        """End the threads once they are idle; running handlers are not waited for longer than ``timeout``."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout / len(self._threads))
        if self._loop is not None:
            self._loop.stop(timeout)

    def _event_loop(self) -> EventLoopThread:
        if self._loop is None:
            self._loop = EventLoopThread(self.concurrency, self.services, self.finished)
        return self._loop

    def _serve(self) -> None:
        """Run deliveries one after the other. Connections live in this thread, and are cared for in it."""
        while (delivery := self._queue.get()) is not None:
            settlement = None
            try:
                if delivery.start():
                    close_old_connections()
                    settlement = run(delivery, self.services)
            except BaseException as error:
                report(error, "queue", f"the engine failed on work {delivery.row.id}")
            finally:
                self.finished(delivery, settlement)
                tidy_connections()
        connections.close_all()


def tidy_connections() -> None:
    """Drop broken and outlived connections, and the query log that DEBUG keeps."""
    try:
        close_old_connections()
        reset_queries()
    except Exception as error:
        report(error, "queue", "a connection could not be closed")


class EventLoopThread:
    """One event loop for all async handlers of the process."""

    def __init__(self, concurrency: int, services: EngineServices, finished: Finished) -> None:
        self.services = services
        self.finished = finished
        self.loop = asyncio.new_event_loop()
        self.limit = asyncio.Semaphore(concurrency)
        self.tasks: set[asyncio.Task[None]] = set()
        self.thread = threading.Thread(target=self._run, name="ayework-async", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def submit(self, delivery: Delivery) -> None:
        """Hand over a delivery, from any thread."""
        self.loop.call_soon_threadsafe(self._spawn, delivery)

    def _spawn(self, delivery: Delivery) -> None:
        task = self.loop.create_task(self._attempt(delivery))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _attempt(self, delivery: Delivery) -> None:
        """Run one delivery; whatever happens, its end is reported."""
        settlement = None
        try:
            async with self.limit:
                if delivery.start():
                    settlement = await self._isolated(delivery)
        except asyncio.CancelledError:
            delivery.abort(AbortReason.SHUTDOWN)
        except BaseException as error:
            report(error, "queue", f"the engine failed on work {delivery.row.id}")
        finally:
            self.finished(delivery, settlement)

    async def _isolated(self, delivery: Delivery) -> Settlement:
        """Give each work its own thread for what it runs with ``sync_to_async``, database calls included.

        A work that blocks that thread, or was cancelled while it was busy, then holds up no other work.
        """
        async with ThreadSensitiveContext() as context:
            try:
                return await arun(delivery, self.services)
            finally:
                if context in SyncToAsync.context_to_thread_executor:
                    await asyncio.shield(sync_to_async(connections.close_all)())

    def stop(self, timeout: float) -> None:
        """Cancel what still runs, then end the loop."""
        self.loop.call_soon_threadsafe(self._cancel_all)
        self.thread.join(timeout)

    def _cancel_all(self) -> None:
        tasks: list[asyncio.Task[Any]] = list(self.tasks)
        for task in tasks:
            task.cancel()

        async def finish() -> None:
            await asyncio.gather(*tasks, return_exceptions=True)
            self.loop.stop()

        self._finishing = self.loop.create_task(finish())
