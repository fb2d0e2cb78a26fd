"""Works that say in which process they ran."""

import os
import signal
from pathlib import Path

from django_ayework import work
from django_ayework.signals import worker_started

memory: list[bytes] = []


@work(name="supervisor.where")
def where() -> int:
    return os.getpid()


@work(name="supervisor.streams")
def streams() -> list[str]:
    """Tell which files are the standard streams of the process."""
    return [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]


@work(name="supervisor.grow")
def grow(megabytes: int) -> int:
    """Take memory, and keep it."""
    memory.append(os.urandom(2**20) * megabytes)
    return os.getpid()


@work(name="supervisor.kill_once")
def kill_once(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die(**kwargs: object) -> None:
    os._exit(7)


if os.environ.get("TEST_DIES"):
    worker_started.connect(die)
