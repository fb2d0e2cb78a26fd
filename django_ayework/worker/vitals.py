"""What a worker shows of itself: its phase, its threads, and what troubles it."""

from __future__ import annotations

import os
from collections.abc import Callable

from django_ayework.rules.health import ALIVE, Phase, Signs
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.memory import resident_bytes
from django_ayework.worker.watchdog import Watchdog


class Vitals:
    """The signs of life of one worker."""

    def __init__(self, worker_id: str, concurrency: int, holdings: Holdings, watchdog: Watchdog) -> None:
        self.phase = Phase.STARTING
        #: Called whenever the phase has changed.
        self.listeners: list[Callable[[], object]] = []
        self._worker_id = worker_id
        self._concurrency = concurrency
        self._holdings = holdings
        self._watchdog = watchdog
        self._trouble = ""

    def enter(self, phase: Phase) -> None:
        """Note that a part of the worker's life begins."""
        if phase is not self.phase:
            self.phase = phase
            self.notify()

    def notify(self) -> None:
        """Call the listeners: something else has changed that they should look at."""
        for listener in self.listeners:
            listener()

    def note(self, trouble: BaseException | None) -> None:
        """Note what the claiming loop met in its last turn, if it was an error."""
        self._trouble = "" if trouble is None else f"{type(trouble).__name__}: {trouble}".strip()

    def signs(self) -> Signs:
        """Return how things stand; safe in any thread, and without a question to the database."""
        threads = self._watchdog.signs() if self.phase in ALIVE or self._watchdog.lost else []
        return Signs(
            worker=self._worker_id,
            pid=os.getpid(),
            phase=self.phase,
            silent={each.name: each.silence for each in threads if each.silence is not None},
            trouble=self._trouble,
            dead=tuple(each.name for each in threads if each.silence is None),
            running=self._holdings.active,
            concurrency=self._concurrency,
            attempts=self._holdings.finished,
            memory=resident_bytes(),
        )
