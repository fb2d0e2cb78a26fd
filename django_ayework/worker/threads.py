"""The threads of the engine: each with a heartbeat and, if it asks the database, a session of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django_ayework.flow.events import report
from django_ayework.heartbeat import Heartbeat
from django_ayework.store.sessions import engine_session

#: Seconds until a loop that was ended by an error begins again.
BEGIN_AGAIN_AFTER = 0.2


class EngineThread:
    """Runs ``serve(heartbeat)`` until that returns; an error that it lets through does not end the thread.

    ``waits_for_locks`` is for threads that no other thread depends on, see ``engine_session``.
    """

    def __init__(self, name: str, serve: Callable[[Heartbeat], None], waits_for_locks: bool = False) -> None:
        self.heartbeat = Heartbeat(name)
        self._serve = serve
        self._waits_for_locks = waits_for_locks
        self.thread = threading.Thread(target=self._run, name=f"ayework-{name}", daemon=True)
        #: Whether the thread has done what it was to do.
        self.has_ended = False

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, if it was started."""
        if self.was_started:
            self.thread.join(timeout)

    @property
    def was_started(self) -> bool:
        """Whether the thread was started."""
        return self.thread.ident is not None

    def is_alive(self) -> bool:
        """Tell whether the thread runs."""
        return self.thread.is_alive()

    @property
    def is_gone(self) -> bool:
        """Whether the thread was started, and has ended before its time."""
        return self.was_started and not self.is_alive() and not self.has_ended

    def _run(self) -> None:
        """Serve in a session of the engine's own, again after whatever is raised in the loop.

        What a receiver, a hook or a middleware raises may be no Exception. A thread that it ended would be
        missed by every work.
        """
        with self.heartbeat.of_this_thread(), engine_session(self._waits_for_locks):
            while not self.has_ended:
                try:
                    self._serve(self.heartbeat)
                    self.has_ended = True
                except BaseException as error:
                    report(error, "queue", f"the thread {self.heartbeat.name!r} failed and begins again")
                    time.sleep(BEGIN_AGAIN_AFTER)
