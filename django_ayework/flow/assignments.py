"""What a context shows of a work."""

from __future__ import annotations

from typing import Any

from django_ayework.define.context import Assignment
from django_ayework.rules.unknown import error_before
from django_ayework.store.rows import WorkRow


def assignment_of(row: WorkRow, dependents: tuple[str, ...], blockers: tuple[Any, ...]) -> Assignment:
    """Return the facts a handler may read, with what its gate had waited for and its blockers' results."""
    return Assignment(
        id=row.id,
        type=row.type,
        group_id=row.group,
        chain_id=row.chain,
        attempt=row.attempt,
        parent=row.parent_id,
        dependents=dependents,
        blockers=blockers,
        last_error=error_before(row.error) or None,
        deadline=row.deadline,
        unit=row.unit,
    )
