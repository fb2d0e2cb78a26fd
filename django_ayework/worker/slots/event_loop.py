"""One event loop, in a thread, for all async handlers of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.heartbeat import Heartbeat
from django_ayework.worker.attempts.attempt import escaped
from django_ayework.worker.attempts.leaks import end_connections
from django_ayework.worker.batches.running import Ended
from django_ayework.worker.slots.loads import Load, arun_load, deliveries_in, without_outcome

#: Seconds between two signs of life of the loop.
BEAT_EVERY = 1.0


class EventLoopThread:
    """Runs async deliveries and batches; ``finished(load, outcomes)`` is called on the loop at the end."""

    def __init__(self, services: EngineServices, finished: Callable[[Load, list[Ended]], None]) -> None:
        self.services = services
        self.finished = finished
        #: Beats while the loop goes round. A handler that blocks it is the project's code.
        self.heartbeat = Heartbeat("event loop")
        self.heartbeat.is_in_project_code = True
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="ayework-async", daemon=True)
        self._thread.start()

    def submit(self, load: Load) -> None:
        """Hand over what is to run, from any thread."""
        self._loop.call_soon_threadsafe(self._spawn, load)

    def stop(self, timeout: float) -> None:
        """Cancel what still runs, then end the loop; do not wait for longer than ``timeout`` seconds."""
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop)
        self._thread.join(timeout)

    def _run(self) -> None:
        """Run the loop; asyncio ends it when a task of a handler raises SystemExit or KeyboardInterrupt."""
        asyncio.set_event_loop(self._loop)
        self._beat()
        while not self._is_over:
            try:
                self._loop.run_forever()
            except BaseException as error:
                report(error, "queue", "a task of a handler tried to end the event loop, which goes on")
        self._loop.close()

    @property
    def is_gone(self) -> bool:
        """Whether the thread has ended before its time."""
        return not self._thread.is_alive() and not self._is_over

    def _beat(self) -> None:
        """Beat, and again in a while: a loop that is blocked does not come to it."""
        self.heartbeat.beat(rest=BEAT_EVERY)
        self._loop.call_later(BEAT_EVERY, self._beat)

    def _spawn(self, load: Load) -> None:
        task = self._loop.create_task(self._attempt(load))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, load: Load) -> None:
        """Run one load; whatever happens, its end is told."""
        outcomes = without_outcome(load)
        try:
            if load.start():
                outcomes = await self._isolated(load)
        except asyncio.CancelledError:  # the worker stops, and gives the work back
            pass
        except BaseException as error:
            report(error, "queue", f"the engine failed on {load}")
            outcomes = [(each, escaped(each, error)) for each in deliveries_in(load)]
        finally:
            self.finished(load, outcomes)

    async def _isolated(self, load: Load) -> list[Ended]:
        """Give each load a thread of its own for what it runs with ``sync_to_async``, such as queries.

        A work that blocks that thread, or was cancelled while it was busy, then holds up no other work.
        """
        async with ThreadSensitiveContext() as context:
            try:
                return await arun_load(load, self.services)
            finally:
                if context in SyncToAsync.context_to_thread_executor:
                    await asyncio.shield(sync_to_async(end_connections)(load))

    async def _cancel_all(self) -> None:
        """Cancel the tasks, let them end, then stop the loop."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._is_over = True
        self._loop.call_soon(self._loop.stop)
