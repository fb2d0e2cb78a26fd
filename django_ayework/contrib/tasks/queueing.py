"""From a task and its arguments to a work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, cast

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
from django_ayework.rules.retry import Retry
from django_ayework.store.clock import clock
from django_ayework.store.database import sync_only


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
    return clock.now() + run_after if isinstance(run_after, timedelta) else run_after
