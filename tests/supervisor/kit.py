"""Looking at a supervisor's children."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django_ayework.models import WorkerProcess
from tests.processes import eventually, worker_process


@contextmanager
def supervisor(
    env: dict[str, str], *arguments: str, processes: int = 2, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """Run a supervisor in a group of its own, as a terminal or a service manager does; none of it is left."""
    arguments = ("--processes", str(processes), *arguments)
    with worker_process(env, *arguments, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)


def at_work() -> list[int]:
    """Return the process ids of the children that have registered and not stopped, oldest first."""
    return list(WorkerProcess.objects.filter(stopped_at=None).order_by("id").values_list("pid", flat=True))


def children(count: int = 2) -> list[int]:
    """Wait for so many children; return their process ids."""
    return eventually(lambda: found if len(found := at_work()) == count else [])


def is_alive(pid: int) -> bool:
    """Tell whether there is such a process."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
