"""The results of tasks: what the tables of the engine say, in the words of Django."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django_ayework.contrib.tasks.calls import Call, task_with, tasks
from django_ayework.contrib.tasks.framework import (
    AnyResult,
    AnyTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_ayework.define.handles import WorkState
from django_ayework.define.types import registry
from django_ayework.documentation import documented
from django_ayework.errors import InvalidWorkId
from django_ayework.flow.payloads import codec_of, decode_input
from django_ayework.flow.states import state_of
from django_ayework.models import Attempt
from django_ayework.rules.identity import require_work_id
from django_ayework.rules.states import Outcome, Reason, Status
from django_ayework.store.attempts import attempts_of
from django_ayework.store.rows import find_row

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
    if state.status is Status.SUCCESS:
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
            yield error(attempt.exception or FAILED, attempt.error, attempt.traceback)
    if state.status is Status.CANCELLED:
        yield error(CANCELLED, "the task was cancelled")
    elif state.status is Status.DEAD and not is_told(state, attempts):
        yield error(UNKNOWN if state.reason == Reason.UNKNOWN_TYPE else FAILED, state.error or "")


def is_told(state: WorkState, attempts: Sequence[Attempt]) -> bool:
    """Tell whether the last attempt is what a dead work died of."""
    if not attempts:
        return False
    by_loss = attempts[-1].outcome == Outcome.LOST and state.reason == Reason.EXHAUSTED
    return attempts[-1].outcome == Outcome.DIED or by_loss


def error(path: str, text: str, traceback: str = "") -> TaskError:
    """Return an error of a task; the traceback of one without any is its text."""
    return TaskError(exception_class_path=path, traceback=traceback or f"{path}: {text}\n")
