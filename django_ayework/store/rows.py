"""Rows of works and groups as plain values: cheap to make by the thousand, safe to hand to another thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Exists, Model, OuterRef, QuerySet

from django_ayework.models import Group, Work
from django_ayework.rules.controls import FairnessKey
from django_ayework.rules.states import LASTING, Status, Transition, is_terminal
from django_ayework.store.database import atomic, chunked, matching, rows
from django_ayework.store.many_rows import update_rows

# Works


class WorkRow(NamedTuple):
    """Every column of a work; first those in which works differ that are queued together.

    The defaults are those of a work that is new.
    """

    id: str
    input: str
    type: str
    queue: str
    reason: str = ""
    priority: int = 0
    fairness: str = ""
    group_id: str | None = None
    parent_id: str | None = None
    chain_id: str | None = None
    chain_index: int = 0
    about_type: str | None = None
    about_id: str | None = None
    options: str = ""
    error: str = ""
    progress: str | None = None
    attempt: int = 0
    delivery: int = 0
    deadline: datetime | None = None
    queued_at: datetime = datetime.max
    run_at: datetime = datetime.max
    dedup_key: str | None = None
    dedup_type: str | None = None
    unit: str | None = None
    sort_key: str = ""
    #: From here on: columns that are empty while a work waits for a worker, then columns that a claim writes.
    #: A claim does not read them.
    result: str | None = None
    ended_at: datetime | None = None
    completed_by: str | None = None
    status: str = Status.PENDING
    worker: str | None = None
    leased_until: datetime | None = None
    started_at: datetime | None = None

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
            fairness_key=self.fairness_key if status is Status.PENDING else None,
            **stays,
            **changes,
        )

    def after(self, transition: Transition) -> WorkRow:
        """Return the row as a transition leaves it."""
        return self._replace(**transition.written, **{name: getattr(transition, name) for name in LASTING})

    @property
    def fairness_key(self) -> FairnessKey | None:
        """Where the work takes turns with those of other labels; None if it goes by unit, or by age alone."""
        if not self.fairness or self.sort_key in ("", self.unit):
            return None
        return FairnessKey(self.queue, self.type, self.priority, self.fairness)

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
    works = rows(Work).select_for_update().order_by("id")
    return {values[0]: WorkRow._make(values) for values in matching(works, "id", sorted(ids), *COLUMNS)}


def overdue_ids(now: datetime, limit: int) -> list[str]:
    """Return blocked works that are past their deadline and not locked, the longest first."""
    overdue = rows(Work).filter(status=Status.BLOCKED, deadline__lt=now).order_by("deadline")
    return free_ids(overdue, limit)


def free_ids(works: QuerySet[Work], limit: int) -> list[str]:
    """Return the ids of the first of these works that nobody else has locked; ours are released at once."""
    with atomic():
        return list(works.select_for_update(skip_locked=True).values_list("id", flat=True)[:limit])


def lock_overdue(ids: Sequence[str], now: datetime) -> list[WorkRow]:
    """Lock those of these works that are blocked and past their deadline, and that nobody else has locked."""
    overdue = rows(Work).filter(id__in=ids, status=Status.BLOCKED, deadline__lt=now).order_by("id")
    return rows_of(overdue.select_for_update(skip_locked=True))


def locked_by_others(model: type[Model], keys: Iterable[str]) -> set[str]:
    """Return the keys of those rows that other transactions have locked; none of ours stays locked.

    On SQLite nobody else has locked anything while this transaction lasts.
    """
    wanted = sorted(set(keys))
    with atomic():
        free = matching(rows(model).select_for_update(skip_locked=True), "pk", wanted, "pk")
        there = matching(rows(model).all(), "pk", wanted, "pk") if len(free) < len(wanted) else free
    return {key for (key,) in {*there} - {*free}}


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


# Groups: counts and value.


class GroupRow(NamedTuple):
    """A group's row."""

    id: str
    open: int = 0
    total: int = 0
    dead: int = 0
    value: str | None = None
    final: bool = False
    done_at: datetime | None = None

    def adding(self, open: int, total: int, dead: int, now: datetime) -> GroupRow:
        """Return the group with so many more members, or less; it is done when the last one ends."""
        still_open = self.open + open
        return self._replace(
            open=still_open,
            total=self.total + total,
            dead=self.dead + dead,
            done_at=None if still_open > 0 else self.done_at if self.done_at and not open else now,
        )


def insert_groups(groups: Iterable[GroupRow]) -> None:
    """Insert new groups."""
    rows(Group).bulk_create([Group(**group._asdict()) for group in groups])


def lock_groups(ids: Iterable[str]) -> dict[str, GroupRow]:
    """Lock groups in id order."""
    groups = rows(Group).select_for_update().order_by("id")
    return {row[0]: GroupRow._make(row) for row in matching(groups, "id", sorted(ids), *GroupRow._fields)}


def write_groups(groups: Iterable[GroupRow]) -> None:
    """Write locked groups."""
    names = GroupRow._fields[1:]
    update_rows(Group, {group.id: {name: getattr(group, name) for name in names} for group in groups})


def find_group(id: str) -> GroupRow | None:
    """Read a group; a work that is alone has none."""
    found = rows(Group).filter(id=id).values_list(*GroupRow._fields).first()
    return GroupRow._make(found) if found else None


def delete_emptied(ids: Iterable[str]) -> list[str]:
    """Delete those of these groups that have no work left; return their ids.

    The caller has locked them: of two transactions that delete the last works of one, the later sees it.
    """
    members = rows(Work).filter(group_id=OuterRef("id"))
    emptied = [id for (id,) in matching(rows(Group).filter(~Exists(members)), "id", sorted(ids), "id")]
    for some in chunked(emptied):
        rows(Group).filter(id__in=some).delete()
    return emptied


# Chains: a first work and its continuations.


def last_step(chain_id: str) -> WorkRow | None:
    """Read the last work of a chain; None when there is no such chain.

    The first work is read first: a step ends and its continuation is inserted in one commit, so if none is
    seen in the later statement, there was none when the step was read.
    """
    first = find_row(chain_id)
    steps = rows_of(rows(Work).filter(chain_id=chain_id).order_by("-chain_index")[:1])
    return steps[0] if steps else first


def steps_from(chain_id: str, start: int, limit: int) -> list[WorkRow]:
    """Read works of a chain in order, from this index on; none of a chain whose first work is alone."""
    steps = rows(Work).filter(chain_id=chain_id, chain_index__gte=start)
    return rows_of(steps.order_by("chain_index")[:limit])


def last_steps(chain_ids: Iterable[str]) -> dict[str, WorkRow]:
    """Read the last work of each chain that exists; for chains that have ended."""
    found = find_rows(id for id, _ in last_of_chains(chain_ids).values())
    return {row.chain: row for row in found.values()}


def chain_ends(chain_ids: Iterable[str]) -> dict[str, Status]:
    """Return the status of the last work of each chain that exists."""
    return {chain: Status(status) for chain, (_, status) in last_of_chains(chain_ids).items()}


def last_of_chains(chain_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the id and the status of the last work of each chain; the first works first, as in last_step().

    All steps are read, in one statement, so only these columns are.
    """
    ids = list(chain_ids)
    columns = ("chain_id", "id", "status")
    firsts = matching(rows(Work).all(), "id", ids, *columns)
    later = matching(rows(Work).order_by("chain_id", "chain_index"), "chain_id", ids, *columns)
    return {chain or id: (id, status) for chain, id, status in (*firsts, *later)}


def chains_of(work_ids: Iterable[str]) -> dict[str, str]:
    """Read the chains of those works that exist."""
    return {id: chain or id for id, chain in matching(rows(Work).all(), "id", work_ids, "id", "chain_id")}


def chains_of_steps(chain_ids: Iterable[str]) -> dict[str, str]:
    """Return the chain of each work of these chains that has not succeeded, and of the first works.

    The id of a chain is that of its first work, which may be gone.
    """
    firsts = {id: id for id in chain_ids}
    steps = rows(Work).exclude(status=Status.SUCCESS)
    return firsts | dict(matching(steps, "chain_id", firsts, "id", "chain_id"))
