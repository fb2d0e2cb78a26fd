"""Rows for the graph of a workflow: the works of a group with few columns, their waiters and edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Case, F, QuerySet, Value, When
from django.db.models.functions import Length

from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import Edge, Work
from django_ayework.rules.states import Status
from django_ayework.rules.workflow import Member, NodeKind
from django_ayework.store.database import chunked, rows
from django_ayework.store.dependencies import EdgeRow
from django_ayework.store.many_rows import rows_with

#: Ids in one statement: a workflow of some thousand works is read by few statements.
IDS = 2500
#: The largest group whose works are sorted to choose those that are read.
SORTED = 50_000


#: The columns of a work that its place in a workflow depends on, in the order of the fields of ``Member``.
COLUMNS = (
    *("id", "type", "status", "reason", "cause", "parent_id", "chain_id", "chain_index"),
    *("queued_at", "run_at", "started_at", "ended_at"),
)


#: The order in which works of a group are chosen that has more than are read: the first work and the gates,
#: which hold the workflow together, then those that did not succeed.
CHOICE = Case(
    When(id=F("group_id"), then=Value(0)),
    When(type=GATE_TYPE, then=Value(0)),
    When(status=str(Status.SUCCESS), then=Value(2)),
    default=Value(1),
)


def members_of(group: str, total: int, limit: int) -> list[Member]:
    """Read works of a group of so many, in the order in which they were queued if all are read.

    Of more than ``limit`` works those come first that others hang on, and those that did not succeed. Of
    more than ``SORTED`` works the dead come first, and the others as the index has them.
    """
    works = rows(Work).filter(group_id=group)
    if total <= limit:
        return members_in(works[: limit + 1])
    if total <= SORTED:
        return members_in(works.order_by(CHOICE, "id")[:limit])
    dead = members_in(works.filter(status=str(Status.DEAD))[:limit])
    known = {row.id for row in dead}
    others = [row for row in members_in(works[:limit]) if row.id not in known]
    return sorted([*dead, *others[: limit - len(dead)]], key=by_queueing)


def members_in(works: QuerySet[Work]) -> list[Member]:
    """Run a query over works and return few of their columns, in the order of queueing."""
    found = [
        Member(*[*columns, NodeKind.GATE if columns[1] == GATE_TYPE else NodeKind.WORK])
        for columns in works.values_list(*COLUMNS)
    ]
    return sorted(found, key=by_queueing)


def by_queueing(member: Member) -> tuple[datetime | None, str]:
    """Return what puts works in the order in which they were queued."""
    return member.queued_at, member.id


def members_by_id(ids: Iterable[str]) -> list[Member]:
    """Read those of these works that exist."""
    found: list[Member] = []
    for some in chunked(list(ids), IDS):
        found += members_in(rows(Work).filter(id__in=some))
    return found


def last_members(chain_ids: Sequence[str]) -> list[Member]:
    """Read the works of chains that other works wait for; the caller bounds the number of chains."""
    return members_in(rows(Work).filter(chain_id__in=chain_ids)[:IDS]) if chain_ids else []


def watched_by_these(waiters: Sequence[str], limit: int) -> list[EdgeRow]:
    """Read what waiters watch, up to so many edges in all."""
    return list(map(EdgeRow._make, rows_with(Edge, "waiter_id", waiters, EdgeRow._fields, limit)))


def inputs_of(ids: Sequence[str], longest: int) -> dict[str, str]:
    """Read the inputs of works, but for those of more than so many characters."""
    works: Any = rows(Work).filter(id__in=ids).annotate(size=Length("input")).filter(size__lte=longest)
    return dict(works.values_list("id", "input"))
