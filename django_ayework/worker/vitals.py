"""What a worker shows of itself: written by its claiming loop, read by whoever asks for its health."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from django_ayework.rules.health import Phase, Signs
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.memory import resident_bytes


class Vitals:
    """The signs of life of one worker. A turn that failed is progress too: the loop carries on."""

    def __init__(
        self, worker_id: str, concurrency: int, holdings: Holdings, threads: Sequence[threading.Thread]
    ) -> None:
        self.phase = Phase.STARTING
        #: Called whenever the phase has changed.
        self.listeners: list[Callable[[], object]] = []
        self._worker_id = worker_id
        self._concurrency = concurrency
        self._holdings = holdings
        self._threads = threads
        self._moved_at = time.monotonic()
        self._trouble = ""

    def enter(self, phase: Phase) -> None:
        """Note that a part of the worker's life begins."""
        if phase is not self.phase:
            self.phase = phase
            for listener in self.listeners:
                listener()

    def progress(self, trouble: BaseException | None = None, rest: float = 0.0) -> None:
        """Note that the claiming loop has made a turn, what it met, and for how many seconds it will rest."""
        self._moved_at = time.monotonic() + rest
        self._trouble = "" if trouble is None else f"{type(trouble).__name__}: {trouble}".strip()

    def signs(self) -> Signs:
        """Return how things stand; safe in any thread, and without a question to the database."""
        working = self.phase in (Phase.WORKING, Phase.RETIRING)
        return Signs(
            worker=self._worker_id,
            pid=os.getpid(),
            phase=self.phase,
            silent=max(0.0, time.monotonic() - self._moved_at),
            trouble=self._trouble,
            dead=tuple(thread.name for thread in self._threads if working and not thread.is_alive()),
            running=self._holdings.active,
            concurrency=self._concurrency,
            attempts=self._holdings.finished,
            memory=resident_bytes(),
        )
