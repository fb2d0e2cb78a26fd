"""Where works that skip the queue arrive, from whichever thread has committed them."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence

from django_ayework.conf import get_settings
from django_ayework.forking import after_fork_in_child
from django_ayework.store.rows import WorkRow
from django_ayework.worker.direct.crew import Crew


class Intake:
    """Gives works to the crew of this process, and forms a new one when the last has ended."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process, which has none of the threads and perhaps a locked lock."""
        self._lock = threading.Lock()
        self._crew: Crew | None = None
        self._is_closed = False

    def offer(self, works: Sequence[WorkRow]) -> None:
        """Start committed works soon, in other threads; what there is no room for stays in the queue."""
        concurrency = get_settings().skip_queue_concurrency
        with self._lock:
            if self._is_closed or not concurrency:
                return
            if self._crew is None or not self._crew.give(works):
                crew = Crew(concurrency)
                crew.give(works)
                crew.start()
                self._crew = crew

    @property
    def is_idle(self) -> bool:
        """Whether no threads are there to run anything."""
        return self._crew is None or self._crew.is_over

    def close(self) -> None:
        """Take no more works, and ask the crew to end; return at once."""
        with self._lock:
            self._is_closed = True
            if self._crew is not None:
                self._crew.request_stop()

    def stop(self) -> bool:
        """Let what runs end within the grace, give the rest back; return whether all of that was done."""
        self.close()
        return self._crew is None or self._crew.stop()


intake = Intake()
after_fork_in_child(intake.forget)
# Before the executors of asyncio are shut down, without which async handlers cannot reach their ends. Python
# itself ends them by the same list, which it goes through backwards; atexit comes after that.
getattr(threading, "_register_atexit", atexit.register)(intake.stop)
