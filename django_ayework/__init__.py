"""Durable background work and workflows for Django, kept in the project's own database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_ayework.define.context import Context
from django_ayework.define.decorators import batch_work, work
from django_ayework.define.handles import ChainState, Handle, WorkCount, WorkState
from django_ayework.define.instructions import Continue, Instruction, Queue, Result, Void
from django_ayework.define.options import EnqueueOptions
from django_ayework.define.requests import WorkRequest, dependency
from django_ayework.define.schedules import schedule
from django_ayework.define.types import BatchItem, WorkType, registry
from django_ayework.errors import (
    Abort,
    Aborted,
    AlreadyCompleted,
    AttemptTimeout,
    AyeworkError,
    BlockerReference,
    ChainNotFound,
    CronError,
    Defer,
    InvalidWorkId,
    NeverEnqueued,
    NotEncodable,
    NotRetryable,
    NotTriggerable,
    NotWaiting,
    PayloadTooLarge,
    Reschedule,
    UnknownWorkType,
    WaitInTransaction,
    WaitTimeout,
    WorkCancelled,
    WorkerNotFound,
    WorkFailed,
    WorkNotFound,
)
from django_ayework.rules.conditions import Count, condition_met
from django_ayework.rules.explain import Explanation
from django_ayework.rules.identity import Dedup
from django_ayework.rules.retry import Retry
from django_ayework.rules.schedules import next_after, parse_cron
from django_ayework.rules.states import Status

if TYPE_CHECKING:
    from django_ayework.api import (
        acancel,
        achange_priority,
        achange_queue,
        acommand_worker,
        acomplete,
        adelete_chains,
        aenqueue,
        aenqueue_many,
        aexplain,
        alimit,
        apause,
        aresume,
        aretry,
        astart_bulk_action,
        atrigger,
        awork_counts,
        cancel,
        change_priority,
        change_queue,
        command_worker,
        complete,
        completing,
        delete_chains,
        enqueue,
        enqueue_many,
        enqueue_on,
        explain,
        get_handle,
        limit,
        pause,
        resume,
        retry,
        start_bulk_action,
        trigger,
        work_counts,
    )
    from django_ayework.worker.worker import Worker


def __getattr__(name: str) -> Any:
    """Import a function of ``api``, or the Worker, on first use.

    They need Django's models, which cannot be imported before this package is loaded as an installed app.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = "django_ayework.worker.worker" if name == "Worker" else "django_ayework.api"
    return getattr(import_module(module), name)


__all__ = [
    "Abort",
    "Aborted",
    "AlreadyCompleted",
    "AttemptTimeout",
    "AyeworkError",
    "BatchItem",
    "BlockerReference",
    "ChainNotFound",
    "ChainState",
    "Context",
    "Continue",
    "Count",
    "CronError",
    "Dedup",
    "Defer",
    "EnqueueOptions",
    "Explanation",
    "Handle",
    "Instruction",
    "InvalidWorkId",
    "NeverEnqueued",
    "NotEncodable",
    "NotRetryable",
    "NotTriggerable",
    "NotWaiting",
    "PayloadTooLarge",
    "Queue",
    "Reschedule",
    "Result",
    "Retry",
    "Status",
    "UnknownWorkType",
    "Void",
    "WaitInTransaction",
    "WaitTimeout",
    "WorkCancelled",
    "WorkCount",
    "WorkFailed",
    "WorkNotFound",
    "WorkRequest",
    "WorkState",
    "WorkType",
    "Worker",
    "WorkerNotFound",
    "acancel",
    "achange_priority",
    "achange_queue",
    "acommand_worker",
    "acomplete",
    "adelete_chains",
    "aenqueue",
    "aenqueue_many",
    "aexplain",
    "alimit",
    "apause",
    "aresume",
    "aretry",
    "astart_bulk_action",
    "atrigger",
    "awork_counts",
    "batch_work",
    "cancel",
    "change_priority",
    "change_queue",
    "command_worker",
    "complete",
    "completing",
    "condition_met",
    "delete_chains",
    "dependency",
    "enqueue",
    "enqueue_many",
    "enqueue_on",
    "explain",
    "get_handle",
    "limit",
    "next_after",
    "parse_cron",
    "pause",
    "registry",
    "resume",
    "retry",
    "schedule",
    "start_bulk_action",
    "trigger",
    "work",
    "work_counts",
]
