"""The row by which everybody else knows of a worker."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_ayework.flow.events import report
from django_ayework.flow.readiness import require_usable_database
from django_ayework.models import WorkerProcess
from django_ayework.store import processes
from django_ayework.store.clock import clock
from django_ayework.worker.recovery import Recovery, twice

logger = logging.getLogger("django_ayework")

#: Seconds to wait for a database that is away when the worker starts, growing to the second figure.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


class Presence:
    """Writes the row of one worker: when it starts, while it lives, and when it stops."""

    def __init__(self, worker_id: str, name: str, queues: tuple[str, ...], concurrency: int) -> None:
        self.worker_id = worker_id
        self.name = name
        self.queues = queues
        self.concurrency = concurrency
        #: Says which threads of the worker are stuck.
        self.troubles: Callable[[], list[str]] = list

    def announce(self, stopping: threading.Event, on_try: Callable[[Exception | None], object]) -> None:
        """Register once the database answers; give up when asked to stop.

        Raises ImproperlyConfigured for a database on which workers cannot run.
        """
        recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        while not stopping.is_set():
            try:
                require_usable_database()
                clock.synchronise()
                self.register()
                on_try(None)
                return
            except ImproperlyConfigured:
                connections.close_all()
                raise
            except Exception as error:
                report(error, "queue", "the worker waits for the database", brief=recovery.goes_on)
                connections.close_all()
                on_try(error)
            stopping.wait(recovery.fail())

    def register(self, running: int = 0) -> None:
        """Insert the row."""
        now = clock.now()
        process = WorkerProcess(
            id=self.worker_id,
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=",".join(self.queues),
            concurrency=self.concurrency,
            running=running,
            started_at=now,
            seen_at=now,
        )
        processes.register(process)

    @property
    def trouble(self) -> str:
        """Which threads are stuck, as far as that fits its column."""
        return "; ".join(self.troubles())[:500]

    def beat(self, running: int) -> None:
        """Tell that the worker is alive; one that was silent for so long that it was forgotten is back."""
        if not processes.heartbeat(self.worker_id, clock.now(), running, self.trouble):
            self.register(running)

    def leave(self, left: int) -> None:
        """Note the end, if the database is there to hear it; say how many works are left to their leases."""
        try:
            twice(lambda: processes.stopped(self.worker_id, clock.now()))
        except Exception as error:
            report(error, "queue", "the worker could not note that it stopped")
        connections.close_all()
        if left:
            logger.error(
                "Worker %s leaves %d works to their leases, as it stopped without the database: "
                "they run again once those have lapsed.", self.worker_id, left,
            )  # fmt: skip
        logger.info("Worker %s stopped.", self.worker_id)
