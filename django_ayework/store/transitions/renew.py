"""Renewing: a work that waits is given a newer input, priority and start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.bulk import update_rows
from django_ayework.store.rows import WorkRow


def renew(waiting: Sequence[tuple[WorkRow, WorkRow]]) -> None:
    """Write what the second row of each pair brings on the first, which the caller has locked.

    Pending or scheduled, as the new start says; what is blocked stays blocked.
    """
    update_rows(Work, {old.id: changes_of(old, new) for old, new in waiting})


def changes_of(old: WorkRow, new: WorkRow) -> dict[str, Any]:
    """Return the columns to write."""
    blocked = old.status == Status.BLOCKED
    return {
        "status": old.status if blocked else new.status,
        "input": new.input,
        "priority": new.priority,
        "run_at": new.run_at,
    }
