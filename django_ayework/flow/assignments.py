"""What a context shows of a work."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django_ayework.define.context import Assignment
from django_ayework.flow.blockers import blockers_of
from django_ayework.flow.options import decode_options
from django_ayework.flow.states import dependents_of
from django_ayework.rules.unknown import error_before
from django_ayework.store.rows import WorkRow
from django_ayework.store.threads import read


class WaitedFor:
    """What a work had waited for, which may be very many ids: read once it is asked for, and kept."""

    def __init__(self, row: WorkRow) -> None:
        self._row = row

    @cached_property
    def dependents(self) -> tuple[str, ...]:
        """The ids that the gate which released the work had waited for."""
        return read(lambda: dependents_of(self._row))

    @cached_property
    def blockers(self) -> tuple[Any, ...]:
        """The results of the chains that had blocked the work."""
        if not decode_options(self._row.options).blocked:
            return ()
        return read(lambda: blockers_of([self._row.id])[self._row.id])

    def look_up(self) -> None:
        """Read everything now."""
        _ = self.dependents, self.blockers


def assignment_of(row: WorkRow, waited_for: WaitedFor | None = None) -> Assignment:
    """Return the facts a handler may read."""
    waited_for = waited_for or WaitedFor(row)
    return Assignment(
        row.id, row.type, row.group, row.chain, row.attempt, row.parent_id,
        lambda: waited_for.dependents, lambda: waited_for.blockers,
        error_before(row.error) or None, row.deadline, row.unit,
    )  # fmt: skip
