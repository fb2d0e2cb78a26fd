"""Rows to fill in: most works are queued with their input alone, so their rows differ in little else."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.requests import WorkRequest
from django_ayework.flow.births import ALONE, NOTHING_GIVEN, work_row
from django_ayework.flow.direct import skips_queue
from django_ayework.flow.options import resolve
from django_ayework.rules.backoff import Retry
from django_ayework.store.clock import clock
from django_ayework.store.rows import PLACE, WorkRow

INPUT, QUEUED_AT, RUN_AT = PLACE["input"], PLACE["queued_at"], PLACE["run_at"]


@dataclass(frozen=True, slots=True)
class Blank:
    """A row without what is a work's own: its id, its input, and the moment at which it is queued and due."""

    before: tuple[Any, ...]  # the columns between id and input
    between: tuple[Any, ...]  # those between input and queued_at, which run_at follows
    after: tuple[Any, ...]

    @classmethod
    def of(cls, row: WorkRow) -> Blank:
        """Return the blank of works that are queued as this one."""
        return cls(row[1:INPUT], row[INPUT + 1 : QUEUED_AT], row[RUN_AT + 1 :])

    def row(self, id: str, input: str, now: datetime) -> WorkRow:
        """Return the row of another work."""
        return WorkRow._make((id, *self.before, input, *self.between, now, now, *self.after))


def blank_of(request: WorkRequest[Any, Any]) -> Blank | None:
    """Return the blank of works of a request's type; None if there is more to say of this one."""
    work_type = registry.find(request.type)
    if work_type is None or request.options:
        return None
    return blank_of_type(work_type, get_settings().retry)


@functools.lru_cache(maxsize=1024)
def blank_of_type(work_type: AnyWorkType, lowest: Retry) -> Blank | None:
    """Return the blank of a type's works; None if they expire, or are started by who queues them."""
    sample = WorkRequest[Any, Any](type=work_type.name, input={}, id="")
    resolved = resolve(sample, NOTHING_GIVEN, released=False)
    if skips_queue(sample, NOTHING_GIVEN) or resolved.stored.expires is not None:
        return None
    return Blank.of(work_row(sample, resolved, ALONE, clock.now(), text=""))
