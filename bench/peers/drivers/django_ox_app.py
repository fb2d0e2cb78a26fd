"""django-ox and its ``ox_worker``. A setting is the worker's concurrency."""

from __future__ import annotations

from bench.peers.driver import Driver, WorkerCommand
from bench.peers.drivers.django_app import TasksApp


class DjangoOx(TasksApp):
    """Django's tasks, kept by django-ox."""

    app = "django_ox"

    def __init__(self) -> None:
        super().__init__()
        from django_ox.models import OxTask

        self.model = OxTask

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue all in one call of its own."""
        from django_ox.bulk import enqueue_many

        from bench.peers.django_jobs import hit

        enqueue_many(hit, [((number,), {}) for number in range(count)])

    def worker(self, setting: str) -> WorkerCommand:
        """Start its worker."""
        return self.command("ox_worker", "--concurrency", setting, "--verbosity", "0")


def make_driver() -> Driver:
    """Set up Django."""
    return DjangoOx()
