"""Durable background work and workflows for Django, kept in the project's own database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_ayework.define.context import Context
from django_ayework.define.decorators import batch_work, work
from django_ayework.define.handles import ChainState, Handle, WorkState
from django_ayework.define.instructions import Instruction, Queue, Result, Void
from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest, dependency
from django_ayework.define.types import BatchItem, WorkType
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
    PayloadTooLarge,
    Reschedule,
    UnknownWorkType,
    WaitInTransaction,
    WaitTimeout,
    WorkCancelled,
    WorkFailed,
    WorkNotFound,
)
from django_ayework.rules.conditions import Count, condition_met
from django_ayework.rules.identity import Dedup
from django_ayework.rules.reasons import Explanation
from django_ayework.rules.retry import Retry
from django_ayework.rules.states import Status

if TYPE_CHECKING:
    from django_ayework.api import (
        acancel,
        acomplete,
        adelete_chains,
        aenqueue,
        aenqueue_many,
        aexplain,
        alimit,
        apause,
        aresume,
        aretry,
        atrigger,
        cancel,
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
        trigger,
    )
    from django_ayework.define.schedules import schedule
    from django_ayework.rules.schedules import next_after, parse_cron
    from django_ayework.worker.worker import Worker

#: Names that need Django's models: imported when first used, so that INSTALLED_APPS can load this package.
LAZY = {
    "acancel": "django_ayework.api",
    "acomplete": "django_ayework.api",
    "adelete_chains": "django_ayework.api",
    "atrigger": "django_ayework.api",
    "cancel": "django_ayework.api",
    "complete": "django_ayework.api",
    "completing": "django_ayework.api",
    "delete_chains": "django_ayework.api",
    "trigger": "django_ayework.api",
    "aenqueue": "django_ayework.api",
    "aenqueue_many": "django_ayework.api",
    "aexplain": "django_ayework.api",
    "alimit": "django_ayework.api",
    "apause": "django_ayework.api",
    "aresume": "django_ayework.api",
    "aretry": "django_ayework.api",
    "enqueue": "django_ayework.api",
    "enqueue_many": "django_ayework.api",
    "enqueue_on": "django_ayework.api",
    "explain": "django_ayework.api",
    "get_handle": "django_ayework.api",
    "limit": "django_ayework.api",
    "next_after": "django_ayework.rules.schedules",
    "parse_cron": "django_ayework.rules.schedules",
    "pause": "django_ayework.api",
    "resume": "django_ayework.api",
    "retry": "django_ayework.api",
    "schedule": "django_ayework.define.schedules",
    "Worker": "django_ayework.worker.worker",
}


def __getattr__(name: str) -> Any:
    """Import a lazy name from its module."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(LAZY[name]), name)


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
    "Count",
    "CronError",
    "Dedup",
    "Defer",
    "Explanation",
    "Handle",
    "Instruction",
    "InvalidWorkId",
    "NeverEnqueued",
    "NotEncodable",
    "NotRetryable",
    "NotTriggerable",
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
    "WorkFailed",
    "WorkNotFound",
    "WorkRequest",
    "WorkState",
    "WorkType",
    "Worker",
    "acancel",
    "acomplete",
    "adelete_chains",
    "aenqueue",
    "aenqueue_many",
    "aexplain",
    "alimit",
    "apause",
    "aresume",
    "aretry",
    "atrigger",
    "batch_work",
    "cancel",
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
    "trigger",
    "work",
]
