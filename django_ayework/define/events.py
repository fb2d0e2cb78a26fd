"""What hooks are told: events of works, and the facts of a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django_ayework.define.handles import WorkState


class Kind(StrEnum):
    """What can happen."""

    QUEUED = "queued"
    STARTED = "started"
    DEFERRED = "deferred"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    GROUP_DONE = "group-done"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEvent:
    """What ``ON_EVENT`` and a type's ``on_event`` are given.

    ``work`` is None for ``group-done``, which has ``group_id`` and ``value`` instead; ``extra`` holds what
    the signal of the same kind carries besides: ``error`` and ``will_retry``, or ``run_at``.
    """

    kind: Kind
    group_id: str
    at: datetime
    work: WorkState | None = None
    value: Any = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        """The work's id, or None."""
        return self.work.id if self.work else None

    @property
    def type(self) -> str | None:
        """The work's type name, or None."""
        return self.work.type if self.work else None


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """What ``on_failure`` is told besides the exception."""

    id: str
    type: str
    group_id: str
    attempt: int
    attempts: int
