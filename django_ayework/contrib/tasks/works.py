"""Works of tasks: how they are queued, their attempts, the signals of tasks at either, and their results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal

from django_ayework.compat import after_fork_in_child, has_other_receivers
from django_ayework.contrib.tasks.calls import Call, name_of, options_of, task_with, tasks
from django_ayework.contrib.tasks.framework import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    signals,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_ayework.define.handles import Kind, WorkEvent, WorkState
from django_ayework.define.options import checked
from django_ayework.define.types import registry
from django_ayework.documentation import documented, logged
from django_ayework.errors import InvalidWorkId, WorkCancelled, WorkFailed, ends_process
from django_ayework.flow.enqueue import insert
from django_ayework.flow.new_works import build_new_works
from django_ayework.flow.payloads import codec_of, decode_input
from django_ayework.flow.states import state_of
from django_ayework.models import Attempt
from django_ayework.rules.durations import later
from django_ayework.rules.identity import require_work_id
from django_ayework.rules.retry import Retry
from django_ayework.rules.states import Outcome, Reason, Status
from django_ayework.store.attempts import attempts_of
from django_ayework.store.connections import project_code
from django_ayework.store.database import clock, savepoints, sync_only
from django_ayework.store.rows import find_row

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


# Results: what the tables of the engine say, in the words of Django

STATUSES = {
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.SUCCESS: TaskResultStatus.SUCCESSFUL,
    Status.DEAD: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}
#: The exceptions that stand for ends which no exception brought about.
CANCELLED = "django_ayework.errors.WorkCancelled"
FAILED = "django_ayework.errors.WorkFailed"
UNKNOWN = "django_ayework.errors.UnknownWorkType"


def get_result(id: str) -> AnyResult:
    """Read the result of a task as it stands.

    Raises TaskResultDoesNotExist for an unknown id, for the id of a work that is no task, and for a task
    whose function this process does not know.
    """
    try:
        row = find_row(require_work_id(id))
    except InvalidWorkId:
        row = None
    if row is None:
        raise TaskResultDoesNotExist(id)
    if row.type not in tasks:
        registry.load()
    if row.type not in tasks:
        raise documented(
            TaskResultDoesNotExist(f"{id}: no task is named {row.type!r} here"), "task-result-unreadable"
        )
    call = Call(**decode_input(row.input, codec_of(registry.find(row.type))))
    return result_of(state_of(row), call, tasks[row.type], attempts_of(row.id) if row.attempt else ())


def result_of(state: WorkState, call: Call, task: AnyTask, attempts: Sequence[Attempt] = ()) -> AnyResult:
    """Return the result of a work that is in this state; ``attempts`` are its recorded ones, in order."""
    counted = latest_life(attempts, state.attempt)
    workers = [attempt.worker for attempt in counted]
    if state.status is Status.RUNNING:
        workers.append(state.worker or "")
    elif state.status is Status.SUCCESS and state.completed_by is not None:
        workers.append(state.completed_by)
    last_start = state.started_at if state.attempt else None
    result: AnyResult = TaskResult(
        task=task_of(state, call, task),
        id=state.id,
        status=STATUSES.get(state.status, TaskResultStatus.READY),
        enqueued_at=state.queued_at,
        started_at=counted[0].started_at if counted else last_start,
        last_attempted_at=last_start,
        finished_at=state.ended_at,
        args=call.args,
        kwargs=call.kwargs,
        backend=call.alias,
        errors=[*errors_of(state, counted)],
        worker_ids=workers,
    )
    object.__setattr__(result, "_return_value", state.result)
    return result


def task_of(state: WorkState, call: Call, task: AnyTask) -> AnyTask:
    """Return the task as it was enqueued, in the queue and with the priority that it has by now."""
    return task_with(
        task,
        priority=state.priority,
        queue_name=state.queue,
        backend=call.alias,
        takes_context=call.takes_context,
        run_after=None if call.run_after is None else datetime.fromisoformat(call.run_after),
    )


def latest_life(attempts: Sequence[Attempt], number: int) -> list[Attempt]:
    """Return the recorded attempts since the work last began; a dead work that is retried counts from 1.

    ``number`` is that of the present attempt. A deferral is no attempt. A success, which few types keep, is
    that of the work itself.
    """
    found: list[Attempt] = []
    for attempt in reversed(attempts):
        if attempt.outcome in (Outcome.DEFERRED, Outcome.SUCCESS):
            continue
        if attempt.number > number:
            break
        found.append(attempt)
        number = attempt.number - 1
    return found[::-1]


def errors_of(state: WorkState, attempts: Sequence[Attempt]) -> Iterable[TaskError]:
    """Yield the error of each attempt, and that of an end which no attempt brought about."""
    for attempt in attempts:
        if attempt.outcome != Outcome.REVOKED:
            yield task_error(attempt.exception or FAILED, attempt.error, attempt.traceback)
    if state.status is Status.CANCELLED:
        yield task_error(CANCELLED, "the task was cancelled")
    elif state.status is Status.DEAD and not is_told(state, attempts):
        yield task_error(UNKNOWN if state.reason == Reason.UNKNOWN_TYPE else FAILED, state.error or "")


def is_told(state: WorkState, attempts: Sequence[Attempt]) -> bool:
    """Tell whether the last attempt is what a dead work died of."""
    if not attempts:
        return False
    by_loss = attempts[-1].outcome == Outcome.LOST and state.reason == Reason.EXHAUSTED
    return attempts[-1].outcome == Outcome.DIED or by_loss


def task_error(path: str, text: str, traceback: str = "") -> TaskError:
    """Return an error of a task; the traceback of one without any is its text."""
    return TaskError(exception_class_path=path, traceback=traceback or f"{path}: {text}\n")
