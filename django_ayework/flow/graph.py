"""Reads a workflow: the works of a group with all that links them, and what holds the group up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import InvalidWorkId, NotDecodable, WorkNotFound
from django_ayework.flow.explain import condition_of, explain_row
from django_ayework.flow.payloads import parsed
from django_ayework.models import Waiter
from django_ayework.rules.conditions import requirement
from django_ayework.rules.explain import Explanation
from django_ayework.rules.identity import require_work_id
from django_ayework.rules.states import LIVE, Status, is_terminal
from django_ayework.rules.workflow import (
    NEVER,
    PLANNED,
    UNKNOWN,
    Holding,
    Link,
    Member,
    NodeKind,
    Tie,
    holding,
)
from django_ayework.store.database import sync_only
from django_ayework.store.dependencies import EdgeRow, WaiterRow, read_waiters
from django_ayework.store.rows import GroupRow, find_group, find_row, find_rows
from django_ayework.store.workflows import (
    inputs_of,
    last_members,
    members_by_id,
    members_of,
    watched_by_these,
)

#: Works of a group that are read, and edges.
MOST_MEMBERS, MOST_EDGES = 6_000, 20_000
#: Works of other groups that are looked up; the others are only counted.
MOST_OUTSIDE = 500
#: Gates whose stored releases are read, works that they are to queue, and characters of one's input.
GATES_READ, MOST_PLANNED, LONGEST_INPUT = 100, 500, 200_000
#: Kinds of dead works that are explained, and running or waiting ones.
DEAD_NAMED, OTHERS_NAMED = 5, 2
#: The longest type that is shown of a work without a row.
LONGEST_TYPE = 128


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the condition of a waiter is: so many of ``needed`` have succeeded, or ended."""

    reached: int
    needed: int
    total: int
    counts_success: bool
    missed: int


@dataclass(frozen=True, slots=True)
class Workflow:
    """A group, or a work that is alone. ``unread`` is how many works of the group were not read."""

    id: str
    group: GroupRow | None
    members: tuple[Member, ...]
    links: tuple[Link, ...]
    standings: Mapping[str, Standing]
    unread: int = 0

    @property
    def own(self) -> Iterator[Member]:
        """The works of the group itself, which have a row."""
        return (member for member in self.members if member.kind in (NodeKind.WORK, NodeKind.GATE))


@dataclass(frozen=True, slots=True)
class Held:
    """The works that hold a workflow up, and why each does not go on."""

    holding: Holding
    reasons: Mapping[str, Explanation]


@sync_only
def read_workflow(id: str) -> Workflow:
    """Read the workflow of a group, or that a work belongs to. Raises WorkNotFound."""
    group = find_group(id)
    if group is None:
        row = find_row(id)
        if row is None:
            raise WorkNotFound(f"no group and no work has the id {id!r}.", id=id)
        group = find_group(row.group)
    if group is None:
        return workflow(id, None, members_by_id([id]))
    return workflow(group.id, group, members_of(group.id, group.total, MOST_MEMBERS))


def workflow(id: str, group: GroupRow | None, rows: Sequence[Member]) -> Workflow:
    """Return the workflow of works that were read."""
    ids = [row.id for row in rows]
    waiters = read_waiters(ids)
    watches = watched_by_these(list(waiters), MOST_EDGES)
    members = {row.id: row for row in rows}
    planned, releases = planned_by([row for row in rows if row.type == GATE_TYPE])
    members = {**members, **{each.id: each for each in planned if each.id not in members}}
    watched = known_by(watches, members)
    members = {**members, **{each.id: each for each in outside(watched, watches, members)}}
    links = [*lineage(members), *releases, *waits(watches, watched, members)]
    unread = 0 if group is None else max(0, group.total - len(rows))
    standings = {waiter.work_id: standing_of(waiter) for waiter in waiters.values()}
    return Workflow(id, group, tuple(members.values()), tuple(dict.fromkeys(links)), standings, unread)


def standing_of(waiter: WaiterRow | Waiter) -> Standing:
    """Return how far a waiter's condition is."""
    needed, counts_success = requirement(condition_of(waiter) or "all-done", waiter.total)
    reached = waiter.succeeded if counts_success else waiter.succeeded + waiter.missed
    return Standing(reached, needed, waiter.total, counts_success, waiter.missed)


# Works that gates are to queue


def planned_by(gates: Sequence[Member]) -> tuple[list[Member], list[Link]]:
    """Return the works that gates which have not opened would queue, nested gates included, with their links.

    The works have no rows yet. What cannot be read is passed over.
    """
    closed = [gate for gate in gates if gate.status != Status.SUCCESS][:GATES_READ]
    inputs = inputs_of([gate.id for gate in closed], LONGEST_INPUT)
    planned: list[Member] = []
    links: list[Link] = []
    for gate in closed:
        status = PLANNED if gate.status == Status.BLOCKED else NEVER
        open_ = [(gate.id, releases_in(inputs.get(gate.id)))]
        while open_ and len(planned) < MOST_PLANNED:
            source, releases = open_.pop()
            for plain in releases[: MOST_PLANNED - len(planned)]:
                if (member := planned_member(plain, source, status)) is not None:
                    planned.append(member)
                    links.append(Link(source, member.id, Tie.QUEUED))
                    open_.append((member.id, listed_in_gate(plain, "releases")))
                    watched = (id for id in listed_in_gate(plain, "watched") if isinstance(id, str))
                    links += [Link(id, member.id, Tie.WATCHED) for id in watched]
    return planned, links


def releases_in(text: str | None) -> list[Any]:
    """Return the releases in a gate's input as plain data."""
    with suppress(NotDecodable, RecursionError):
        return list(parsed(text or "")["queue"])
    return []


def planned_member(plain: Any, gate: str, status: str) -> Member | None:
    """Return one release, or None when it cannot be read."""
    if not isinstance(plain, dict):
        return None
    with suppress(InvalidWorkId):
        type = str(plain.get("type"))[:LONGEST_TYPE]
        return Member(
            id=require_work_id(plain.get("id")), type=type, status=status, kind=NodeKind.PLANNED, parent=gate
        )
    return None


def listed_in_gate(plain: Mapping[str, Any], name: str) -> list[Any]:
    """Return the releases of a gate among the releases, or the ids that it is to watch."""
    gate = plain.get("gate")
    found = gate.get(name) if isinstance(gate, dict) else None
    return found if isinstance(found, list) else []


# Links


def lineage(members: Mapping[str, Member]) -> Iterator[Link]:
    """Return the links from parents to children, which are steps where both are of one chain."""
    for member in members.values():
        parent = members.get(member.parent or "")
        if parent is not None and parent.id != member.id and member.kind is not NodeKind.OUTSIDE:
            is_step = member.step > 0 and member.chain == (parent.chain or parent.id)
            yield Link(parent.id, member.id, Tie.STEP if is_step else Tie.QUEUED)


def known_by(watches: Iterable[EdgeRow], members: Mapping[str, Member]) -> dict[str, str]:
    """Return the work that stands for each watched chain: its last step among the members."""
    chains = {watch.watched_id for watch in watches if watch.chain}
    last = {id: members[id] for id in chains if id in members}
    for member in members.values():
        if member.chain in chains and member.step >= (last[member.chain].step if member.chain in last else 0):
            last[member.chain] = member
    return {chain: member.id for chain, member in last.items()}


def outside(
    last_steps: Mapping[str, str], watches: Sequence[EdgeRow], members: Mapping[str, Member]
) -> Iterator[Member]:
    """Return the watched works that are no members, with their known status."""
    missing = {
        watch.watched_id: watch
        for watch in watches
        if watch.watched_id not in members and not (watch.chain and watch.watched_id in last_steps)
    }
    some = list(missing)[:MOST_OUTSIDE]
    found = {row.id: row for row in members_by_id(some)}
    for step in last_members([id for id in some if missing[id].chain]):
        known = found.get(step.chain or "")
        if step.chain is not None and (known is None or step.step >= known.step):
            found[step.chain] = step
    for id, watch in missing.items():
        row = found.get(id)
        if row is None:
            yield Member(id=id, type="", status=watch.outcome or UNKNOWN, kind=NodeKind.OUTSIDE)
        else:
            yield replace(row, id=id, kind=NodeKind.OUTSIDE)


def waits(
    watches: Iterable[EdgeRow], last_steps: Mapping[str, str], members: Mapping[str, Member]
) -> Iterator[Link]:
    """Return the links from watched works to their waiters."""
    for watch in watches:
        source = last_steps.get(watch.watched_id, watch.watched_id) if watch.chain else watch.watched_id
        if source in members and source != watch.waiter_id:
            yield Link(source, watch.waiter_id, Tie.WATCHED)


# Works that hold it up


@sync_only
def hold_up(workflow: Workflow) -> Held:
    """Return what holds a workflow up; each work that is named is explained."""
    found = holding(workflow.own, DEAD_NAMED, OTHERS_NAMED)
    rows = find_rows(member.id for member in found.members)
    return Held(found, {id: explain_row(row) for id, row in rows.items()})


def standing_sentence(workflow: Workflow) -> str:
    """Return in a sentence how a workflow stands."""
    counts = Counter(member.status for member in workflow.own)
    group = workflow.group
    total = counts.total() if group is None else group.total
    open_ = sum(counts[str(status)] for status in LIVE) if group is None else group.open
    if open_:
        text = _("%(ended)d of %(total)d works have ended.")
    elif missed := counts[str(Status.DEAD)] + counts[str(Status.CANCELLED)]:
        text = _("All %(total)d works have ended, %(missed)d of them dead or cancelled.")
        return text % {"total": total, "missed": missed}
    else:
        text = ngettext("The work has succeeded.", "All %(total)d works have succeeded.", total)
    return text % {"ended": total - open_, "total": total}


def is_over(workflow: Workflow) -> bool:
    """Tell whether every work has ended."""
    if workflow.group is not None:
        return workflow.group.open == 0
    return all(is_terminal(member.status) for member in workflow.own)
