"""From a task and its arguments to a work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from django_ayework.contrib.tasks.announcements import send
from django_ayework.contrib.tasks.calls import Call, name_of
from django_ayework.contrib.tasks.framework import AnyResult, AnyTask, normalize_json, task_enqueued
from django_ayework.contrib.tasks.options import options_of
from django_ayework.contrib.tasks.results import get_result, result_of
from django_ayework.define.options import checked
from django_ayework.define.types import registry
from django_ayework.flow.enqueue import insert
from django_ayework.flow.identity import require_identity_fits
from django_ayework.flow.new_works import build_new_works
from django_ayework.flow.states import state_of
from django_ayework.store.clock import clock
from django_ayework.store.database import sync_only

if TYPE_CHECKING:
    from django_ayework.contrib.tasks.backend import AyeworkBackend


@sync_only
def enqueue(backend: AyeworkBackend, task: AnyTask, args: Any, kwargs: Any) -> AnyResult:
    """Queue a validated task; return its result, or that of the task that was queued before in its place.

    Everything that can be wrong is found before any SQL.
    """
    moment = moment_of(task.run_after)
    call = Call(
        args=cast(list[Any], normalize_json(list(args))),
        kwargs=cast(dict[str, Any], normalize_json(kwargs)),
        alias=backend.alias,
        takes_context=task.takes_context,
        run_after=None if moment is None else moment.isoformat(),
    )
    request = registry.get(name_of(task.func)).request(asdict(call))
    [new_work] = build_new_works([request], given=queue_options(backend, task, call, moment))
    require_identity_fits(new_work, on_commit=False)
    [handle] = insert([new_work], together=False, own_id=None)
    if handle.deduplicated:
        return get_result(handle.id)
    result = result_of(state_of(new_work.row), call, task)
    send(task_enqueued, result)
    return result


def queue_options(
    backend: AyeworkBackend, task: AnyTask, call: Call, moment: datetime | None
) -> Mapping[str, Any]:
    """Return the options to queue a task with: what the ``Task`` says, then its function, then OPTIONS."""
    options = options_of(task.func)
    own = options.settings.retry
    return checked(
        {
            "queue": task.queue_name,
            "priority": int(task.priority),
            "run_at": moment,
            "retry": backend.retry if own is None else own.over(backend.retry),
            "dedup": options.dedup_of(call.args, call.kwargs),
        }
    )


def moment_of(run_after: datetime | timedelta | None) -> datetime | None:
    """Return the moment before which a task does not start; a duration counts from now."""
    return clock.now() + run_after if isinstance(run_after, timedelta) else run_after
