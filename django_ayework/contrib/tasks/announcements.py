"""The signals of tasks, sent with the events of their works."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from django_ayework.compat import after_fork_in_child
from django_ayework.contrib.tasks.calls import Call, tasks
from django_ayework.contrib.tasks.framework import AnyResult, task_backends, task_finished
from django_ayework.contrib.tasks.results import get_result, result_of
from django_ayework.define.handles import Kind, WorkEvent, WorkState
from django_ayework.documentation import logged
from django_ayework.errors import WorkCancelled, WorkFailed
from django_ayework.store.attempts import attempts_of

logger = logging.getLogger("django.dispatch")

#: The number of attempts to keep. The engine announces no end of an attempt that another worker has taken
#: over, so the oldest attempts are dropped above this number.
MOST_KEPT = 2000
ENDS = frozenset({Kind.SUCCEEDED, Kind.FAILED, Kind.EXPIRED, Kind.CANCELLED})


@dataclass(slots=True)
class Kept:
    """An attempt of this process: the work as it started, its call, and the exception that it raised."""

    state: WorkState
    call: Call | None = None
    error: BaseException | None = None


class Attempts:
    """The attempts of this process whose ends were not announced yet, by the ids of their works."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, with a new lock: a forked process has none of the attempts."""
        self._lock = threading.Lock()
        self._kept: dict[str, Kept] = {}

    def began(self, state: WorkState) -> None:
        """Note a work that starts."""
        with self._lock:
            self._kept.pop(state.id, None)
            self._kept[state.id] = Kept(state)
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]

    def find(self, id: str) -> Kept | None:
        """Return the kept attempt of a work."""
        return self._kept.get(id)

    def take(self, id: str) -> Kept | None:
        """Remove and return the kept attempt of a work."""
        with self._lock:
            return self._kept.pop(id, None)


attempts = Attempts()
after_fork_in_child(attempts.reset)


def on_event(event: WorkEvent) -> None:
    """Note the start of an attempt of a task; send ``task_finished`` for its last end."""
    if event.work is None:
        return
    if event.kind is Kind.STARTED:
        attempts.began(event.work)
    elif event.kind in ENDS:
        kept = attempts.take(event.work.id)
        if not event.extra.get("will_retry"):
            finished(event.work, kept)


def finished(state: WorkState, kept: Kept | None) -> None:
    """Send ``task_finished``; for a failure while the error is the one that is being handled."""
    result = ended_result(state, kept)
    if state.status == "success":
        send(task_finished, result)
        return
    error = error_of(state, kept)
    trace = error.__traceback__
    try:
        raise error
    except BaseException:
        send(task_finished, result)
    finally:
        error.__traceback__ = trace  # drain() may raise it yet


def ended_result(state: WorkState, kept: Kept | None) -> AnyResult:
    """Return the result of a work that has ended, without a query if its first attempt did and succeeded."""
    if kept is None or kept.call is None:
        return get_result(state.id)
    is_first_success = state.status == "success" and state.attempt <= 1
    recorded = () if is_first_success else attempts_of(state.id)
    return result_of(state, kept.call, tasks[state.type], recorded)


def error_of(state: WorkState, kept: Kept | None) -> BaseException:
    """Return the exception that a task ended with, or one that says how it ended."""
    if kept is not None and kept.error is not None and state.status == "dead":
        return kept.error
    return WorkCancelled("the task was cancelled") if state.status == "cancelled" else WorkFailed(state.error)


def send(signal: Signal, result: AnyResult) -> None:
    """Send a signal of the framework; a receiver that raises changes nothing, whatever it raises."""
    values: dict[str, Any] = {"sender": type(task_backends[result.backend]), "task_result": result}
    try:
        signal.send_robust(**values)
    except BaseException:
        logger.exception("A receiver of a signal of tasks raised. %s", logged("task-receiver-raised"))
