"""django-tasks-db and its ``db_worker``.

A setting is the interval of its looks in seconds, after ``fresh`` if it makes a connection for each.
"""

from __future__ import annotations

from bench.peers.driver import Driver, WorkerCommand, chunks
from bench.peers.drivers.django_app import TasksApp


class DjangoTasksDb(TasksApp):
    """Django's tasks, kept by django-tasks-db."""

    app = "django_tasks_db"

    def __init__(self) -> None:
        super().__init__()
        from django_tasks_db.models import DBTaskResult

        self.model = DBTaskResult

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue one by one in one transaction, as it has nothing for many."""
        from django.db import transaction

        with transaction.atomic():
            self.enqueue_each(count)

    def fill(self, count: int) -> None:
        """Insert rows like the one that it makes itself."""
        self.enqueue_one(0)
        example = self.model.objects.get()
        columns = ("priority", "task_path", "queue_name", "backend_name", "run_after")
        common = {name: getattr(example, name) for name in columns}
        for numbers in chunks(count - 1, 2000):
            self.model.objects.bulk_create(
                self.model(args_kwargs={"args": [number + 1], "kwargs": {}}, **common) for number in numbers
            )

    def worker(self, setting: str) -> WorkerCommand:
        """Start its worker."""
        interval = setting.removeprefix("fresh ")
        kept = interval == setting
        return self.command("db_worker", "--interval", interval, "--verbosity", "0", kept=kept)


def make_driver() -> Driver:
    """Set up Django."""
    return DjangoTasksDb()
