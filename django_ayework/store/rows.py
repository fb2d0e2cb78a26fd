"""A work's row as a plain value: cheap to make by the thousand, safe to hand to another thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import QuerySet

from django_ayework.models import Work
from django_ayework.rules.controls import Place
from django_ayework.rules.states import LASTING, Status, Transition, is_terminal
from django_ayework.store.database import matching, rows


class WorkRow(NamedTuple):
    """Every column of a work."""

    id: str
    type: str
    queue: str
    reason: str
    priority: int
    fairness: str
    group_id: str | None
    parent_id: str | None
    chain_id: str | None
    chain_index: int
    about_type: str | None
    about_id: str | None
    input: str
    options: str
    error: str
    progress: str | None
    attempt: int
    delivery: int
    deadline: datetime | None
    queued_at: datetime
    run_at: datetime
    dedup_key: str | None
    dedup_type: str | None
    unit: str | None
    sort_key: str
    #: From here on: columns that are empty while a work waits for a worker, then columns that a claim writes.
    #: A claim does not read them.
    result: str | None
    ended_at: datetime | None
    completed_by: str | None
    status: str
    worker: str | None
    leased_until: datetime | None
    started_at: datetime | None

    def becoming(self, status: Status, **changes: Any) -> Transition:
        """Return the transition to a status, for a row as it was read; columns that are not named stay.

        Exceptions are what belongs to one status alone (``reason``, ``error``, ``result``, ``ended_at``,
        ``completed_by``): they are empty unless named.
        """
        stays = {name: getattr(self, name) for name in LASTING if name not in changes}
        return Transition(
            id=self.id,
            delivery=self.delivery,
            worker=self.worker,
            leaves=frozenset({Status(self.status)}),
            status=status,
            renews=tuple(name for name in LASTING if name in changes),
            place=self.place if status is Status.PENDING else None,
            **stays,
            **changes,
        )

    def after(self, transition: Transition) -> WorkRow:
        """Return the row as a transition leaves it: no worker holds it any more."""
        return self._replace(
            status=transition.status,
            attempt=transition.attempt,
            run_at=transition.run_at,
            deadline=transition.deadline,
            group_id=transition.group_id,
            chain_id=transition.chain_id,
            reason=str(transition.reason),
            error=transition.error,
            result=transition.result,
            ended_at=transition.ended_at,
            completed_by=transition.completed_by,
            worker=None,
            leased_until=None,
        )

    @property
    def place(self) -> Place | None:
        """Where the work takes turns with those of other labels; None if it goes by unit, or by age alone."""
        if not self.fairness or self.sort_key in ("", self.unit):
            return None
        return Place(self.queue, self.type, self.priority, self.fairness)

    @property
    def chain(self) -> str:
        """The id of the chain, which is that of its first work."""
        return self.chain_id or self.id

    @property
    def group(self) -> str:
        """The id of the group, which is the work's own while it is alone."""
        return self.group_id or self.id


class End(NamedTuple):
    """How a work ended, and which delivery to which worker brought that."""

    status: str
    delivery: int
    worker: str | None


COLUMNS = WorkRow._fields
#: The columns that are empty while a work is pending, those that a claim writes anew, those that it reads.
EMPTY = ("result", "ended_at", "completed_by")
LEASED = ("status", "worker", "leased_until", "started_at")
READ = COLUMNS[: -len(EMPTY + LEASED)]


def rows_of(works: QuerySet[Work]) -> list[WorkRow]:
    """Run a query over works and return rows."""
    return [WorkRow._make(values) for values in works.values_list(*COLUMNS)]


def with_status(works: QuerySet[Work], status: str) -> QuerySet[Work]:
    """Return the works of a status; the condition is one that its index serves."""
    found = works.filter(status=status)
    return found.filter(ended_at__isnull=False) if is_terminal(status) else found


def find_row(id: str) -> WorkRow | None:
    """Read one work."""
    found = rows_of(rows(Work).filter(id=id))
    return found[0] if found else None


def find_rows(ids: Iterable[str]) -> dict[str, WorkRow]:
    """Read those works that exist."""
    return {values[0]: WorkRow._make(values) for values in matching(rows(Work).all(), "id", ids, *COLUMNS)}


def lock_rows(ids: Iterable[str]) -> dict[str, WorkRow]:
    """Lock works against every other writer, in id order so that two lockers cannot wait for each other."""
    locked = rows(Work).select_for_update().filter(id__in=list(ids)).order_by("id")
    return {row.id: row for row in rows_of(locked)}


def lock_free_rows(ids: Iterable[str]) -> set[str]:
    """Lock works that nobody else has locked; return their ids. SQLite has one lock for all of them."""
    free = rows(Work).select_for_update(skip_locked=True).filter(id__in=list(ids)).order_by("id")
    return set(free.values_list("id", flat=True))


def ends_of(ids: Iterable[str]) -> dict[str, End]:
    """Read how works ended that did, by which delivery and worker."""
    ended = rows(Work).filter(completed_by__isnull=False)
    found = matching(ended, "id", ids, "id", "status", "delivery", "completed_by")
    return {id: End(*end) for id, *end in found}


def groups_of(ids: Iterable[str]) -> dict[str, str]:
    """Read the groups of those works that exist; a work that is alone is its own group."""
    return {id: group or id for id, group in matching(rows(Work).all(), "id", ids, "id", "group_id")}


def statuses_of(ids: Iterable[str]) -> dict[str, Status]:
    """Read the statuses of those works that exist."""
    return {id: Status(status) for id, status in matching(rows(Work).all(), "id", ids, "id", "status")}


def options_of(ids: Sequence[str]) -> list[str]:
    """Read the stored options of those works that exist, in no order."""
    return [options for (options,) in matching(rows(Work).all(), "id", ids, "options")]
