"""Obeying what operators tell one worker: to be quiet, to resume, to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django_ayework.store import attempts
from django_ayework.worker.health import WorkerRegistration
from django_ayework.worker.maintenance import MaintenanceThread

logger = logging.getLogger("django_ayework")


@dataclass(eq=False)
class Commands:
    """Obeys the commands of one worker, which its polls read.

    A quiet worker claims nothing more. What runs goes on, and all other duties of the worker go on, too.
    """

    registration: WorkerRegistration
    maintenance: MaintenanceThread
    request_stop: Callable[[], object]
    #: Whether a command has stopped the worker, so that nobody is to start another in its place.
    has_stopped: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be claimed."""
        return self.registration.quiet

    def obey(self, command: str) -> None:
        """Obey a command; an unknown one, of a newer version, is left alone."""
        if command == "stop":
            self._stop()
        elif command in ("quiet", "resume"):
            self._be_quiet(command == "quiet", command)

    def _stop(self) -> None:
        """Stop in order. The command stays until the worker signs off: so the admin shows that it stops."""
        logger.info("Worker %s was told to stop.", self.registration.worker_id)
        self.has_stopped = True
        self.request_stop()

    def _be_quiet(self, is_quiet: bool, command: str) -> None:
        """Claim nothing more, or claim again; then note that the command was obeyed.

        The note comes last: a worker that fails before it reads the command again, and obeys again.
        """
        self.registration.quiet = is_quiet
        if is_quiet:
            self.maintenance.release_unstarted()
        attempts.note_obeyed(self.registration.worker_id, command, is_quiet)
        logger.info("Worker %s was told: %s.", self.registration.worker_id, command)
