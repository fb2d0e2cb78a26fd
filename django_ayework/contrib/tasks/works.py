"""Works of tasks: how they are queued, their attempts, and the signals of tasks at either."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal

from django_ayework.compat import after_fork_in_child, has_other_receivers
from django_ayework.contrib.tasks.calls import Call, name_of, options_of, tasks
from django_ayework.contrib.tasks.framework import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    TaskContext,
    normalize_json,
    signals,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_ayework.contrib.tasks.results import get_result, result_of
from django_ayework.define.handles import Kind, WorkEvent, WorkState
from django_ayework.define.options import checked
from django_ayework.define.types import registry
from django_ayework.documentation import logged
from django_ayework.errors import WorkCancelled, WorkFailed, ends_process
from django_ayework.flow.enqueue import insert
from django_ayework.flow.identity import require_identity_fits
from django_ayework.flow.new_works import build_new_works
from django_ayework.flow.states import state_of
from django_ayework.rules.durations import later
from django_ayework.rules.retry import Retry
from django_ayework.store.attempts import attempts_of
from django_ayework.store.connections import project_code
from django_ayework.store.database import clock, savepoints, sync_only

logger = logging.getLogger("django.dispatch")

#: The number of attempts to keep. The engine announces no end of an attempt that another worker has taken
#: over, so the oldest attempts are dropped above this number.
MOST_KEPT = 2000
#: The ids of the functions among which are the framework's own receivers.
OWN_RECEIVERS = frozenset(map(id, vars(signals).values()))
ENDS = frozenset({Kind.SUCCEEDED, Kind.FAILED, Kind.EXPIRED, Kind.CANCELLED})


@sync_only
def enqueue(task: AnyTask, args: Any, kwargs: Any, alias: str, retry: Retry) -> AnyResult:
    """Queue a validated task; return its result, or that of the task that was queued before in its place.

    ``alias`` names the backend, ``retry`` is its policy. All that can be wrong is found before any SQL.
    """
    moment = moment_of(task.run_after)
    call = Call(
        args=cast(list[Any], normalize_json(list(args))),
        kwargs=cast(dict[str, Any], normalize_json(kwargs)),
        alias=alias,
        takes_context=task.takes_context,
        run_after=None if moment is None else moment.isoformat(),
    )
    request = registry.get(name_of(task.func)).request(asdict(call))
    [new_work] = build_new_works([request], given=queue_options(task, call, moment, retry))
    require_identity_fits(new_work, on_commit=False)
    [handle] = insert([new_work], together=False, own_id=None)
    if handle.deduplicated:
        return get_result(handle.id)
    result = result_of(state_of(new_work.row), call, task)
    send(task_enqueued, result)
    return result


def queue_options(task: AnyTask, call: Call, moment: datetime | None, retry: Retry) -> Mapping[str, Any]:
    """Return the options to queue a task with: what the ``Task`` says, then its function, then OPTIONS."""
    options = options_of(task.func)
    own = options.settings.retry
    return checked(
        {
            "queue": task.queue_name,
            "priority": int(task.priority),
            "run_at": moment,
            "retry": retry if own is None else own.over(retry),
            "dedup": options.dedup_of(call.args, call.kwargs),
        }
    )


def moment_of(run_after: datetime | timedelta | None) -> datetime | None:
    """Return the moment before which a task does not start; a duration counts from now."""
    return later(clock.read(), run_after) if isinstance(run_after, timedelta) else run_after


# Attempts


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


def run(function: Callable[..., Any], id: str, call: Call) -> Any:
    """Call a plain function; return what JSON makes of its result. Raises TypeError for another result."""
    given = arguments(call, started(id, call))
    try:
        return normalize_json(function(*given, **call.kwargs))
    except BaseException as error:
        keep(id, error)
        raise


async def arun(function: Callable[..., Any], id: str, call: Call) -> Any:
    """Await an async function; see run()."""
    from django_ayework.worker.handlers import in_thread

    given = arguments(call, await in_thread(partial(started, id, call)))
    try:
        return normalize_json(await function(*given, **call.kwargs))
    except Exception as error:
        keep(id, error)
        raise


def keep(id: str, error: BaseException) -> None:
    """Keep what an attempt raised, for the signal of its end."""
    if (kept := attempts.find(id)) is not None:
        kept.error = error


def started(id: str, call: Call) -> AnyResult:
    """Send ``task_started``; return the result that the attempt begins with."""
    kept = attempts.find(id)
    if kept is None:
        result = get_result(id)
    else:
        kept.call = call
        state = kept.state
        result = result_of(state, call, tasks[state.type]) if state.attempt <= 1 else get_result(id)
    send(task_started, result)
    return result


def arguments(call: Call, result: AnyResult) -> list[Any]:
    """Return the positional arguments, the context first if the task takes one."""
    return [TaskContext(task_result=result), *call.args] if call.takes_context else call.args


# Signals


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
    """Send a signal of the framework; a receiver that raises changes nothing, whatever it raises.

    An error of the database marks the transaction for a rollback, and ``send_robust`` catches the error. The
    savepoint takes that mark, so the caller's rows and the task stay.
    """
    values: dict[str, Any] = {"sender": sender_of(result), "task_result": result}
    try:
        with project_code(), savepoints() if has_other_receivers(signal, OWN_RECEIVERS) else nullcontext():
            signal.send_robust(**values)
    except BaseException as error:
        logger.exception("A receiver of a signal of tasks raised. %s", logged("task-receiver-raised"))
        if ends_process(error):
            raise


def sender_of(result: AnyResult) -> type[BaseTaskBackend]:
    """Return the class of the backend that has queued a task, else of the one that the task names."""
    try:
        return type(task_backends[result.backend])
    except ImproperlyConfigured:  # the settings do not name it any more
        return type(tasks[name_of(result.task.func)].get_backend())
