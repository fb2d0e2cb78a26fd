"""What a context shows of a work."""

from __future__ import annotations

from typing import Any

from django_ayework.define.context import Assignment
from django_ayework.rules.unknown import error_before
from django_ayework.store.rows import WorkRow


def assignment_of(row: WorkRow, dependents: tuple[str, ...], blockers: tuple[Any, ...]) -> Assignment:
    """Return the facts a handler may read, with what its gate had waited for and its blockers' results."""
    return Assignment(
        row.id, row.type, row.group, row.chain, row.attempt, row.parent_id,
        dependents, blockers, error_before(row.error) or None, row.deadline, row.unit,
    )  # fmt: skip
