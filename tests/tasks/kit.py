"""Tasks as Django's documentation has them, and what tests see of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django_ayework import Abort, Retry
from django_ayework.contrib.tasks import AyeworkBackend, task_options
from django_ayework.models import Work
from django_ayework.testing import drain

NAME = LOGGER = "django.tasks" if find_spec("django.tasks") else "django_tasks"
framework = import_module(NAME)
signals = import_module(f"{NAME}.signals")
exceptions = import_module(f"{NAME}.exceptions")
InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
InvalidBackend = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError
task = framework.task
tries: dict[str, int] = {}


class Unpicklable(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")
        self.hold = sys._getframe()


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task()
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task()
def nothing() -> None:
    pass


@task(takes_context=True)
def with_context(context: Any, number: int) -> list[Any]:
    result = context.task_result
    return [number, context.attempt, result.id, str(result.status), result.worker_ids]


@task()
async def later(a: int) -> int:
    return a + 1


@task(takes_context=True)
async def later_with_context(context: Any) -> int:
    return context.attempt


@task()
def fail(text: str = "no luck") -> None:
    raise ValueError(text)


@task()
async def fail_later() -> None:
    raise ValueError("no luck")


@task()
def fail_unpicklably() -> None:
    raise Unpicklable("no", "luck")


@task()
def fail_locally() -> None:
    class Local(Exception):
        pass

    raise Local("no luck")


@task()
def leave() -> None:
    raise SystemExit("no luck")


@task()
def unstorable() -> object:
    return object()


@task()
@task_options(retry=Retry(attempts=3, base=0, jitter=0))
def fail_twice(key: str) -> int:
    tries[key] = tries.get(key, 0) + 1
    if tries[key] < 3:
        raise LookupError(f"try {tries[key]}")
    return tries[key]


@task()
@task_options(retry=Retry(attempts=3))
def give_up() -> None:
    raise Abort("no luck")


@task()
@task_options(redact=["password"])
def log_in(name: str, password: str) -> None: ...


@task()
@task_options(timeout=0.2)
async def sleep_long() -> None:
    await asyncio.sleep(30)


@task()
async def wait_for_cancel() -> None:
    await asyncio.sleep(30)


@task()
@task_options(dedup=lambda order: f"order {order}")
def ship(order: int) -> int:
    return order


@task()
@task_options(atomic=True)
def write_then_fail(key: str) -> None:
    from django.contrib.auth.models import Group

    Group.objects.create(name=key)
    raise ValueError("undone")


@task()
@task_options(expires=3600, max_running=1)
def soon() -> None:
    pass


@contextmanager
def record() -> Iterator[list[tuple[str, Any]]]:
    """Note each signal by its name, with the status at that moment, and the error that is being handled."""
    seen: list[tuple[str, Any]] = []

    def receiver(signal: Any, sender: Any, task_result: Any, **keywords: Any) -> None:
        error = sys.exc_info()[1]
        seen.append((names[signal], {"sender": sender, "result": task_result, "error": error}))

    names = {getattr(signals, name): name for name in ("task_enqueued", "task_started", "task_finished")}
    for signal in names:
        signal.connect(receiver)
    yield seen
    for signal in names:
        signal.disconnect(receiver)


def count() -> int:
    return Work.objects.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedTask(framework.base.Task):  # type: ignore[misc, name-defined]
    """A task with a field of a project's own."""

    note: str = ""


class NotingBackend(AyeworkBackend):
    """A backend of a project's own."""

    task_class = NotedTask


def finished(result: Any) -> Any:
    """Run what is due; return the result as it stands then."""
    drain(raises=False)
    result.refresh()
    return result
