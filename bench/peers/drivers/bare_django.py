"""A Django shell that has opened its connection and does nothing: what any process of a project weighs."""

from __future__ import annotations

from bench.peers.driver import Driver, WorkerCommand, module_command
from bench.peers.drivers.django_app import SETTINGS

#: Shows that it is up by the job that shows it of others.
IDLE = """
import time
from django.db import connection
from bench.peers.job import hit

connection.ensure_connection()
hit(-1)
while True:
    time.sleep(60)
"""


class BareDjango(Driver):
    """Has no queue."""

    def clear(self) -> None:
        """There is nothing to empty."""

    def enqueue_one(self, number: int) -> None:
        """The shell runs the job by itself."""

    def worker(self, setting: str) -> WorkerCommand:
        """Start a shell."""
        return WorkerCommand(
            module_command("django", "shell", "-c", IDLE), {"DJANGO_SETTINGS_MODULE": SETTINGS}
        )


def make_driver() -> Driver:
    """Return the driver."""
    return BareDjango()
