"""Deleting works: chains on demand, ended works after their retention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q, QuerySet

from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import Attempt, Edge, Group, InputRevision, Waiter, Work
from django_ayework.rules.states import LIVE, Status
from django_ayework.store.database import atomic, chunked, matching, rows
from django_ayework.store.rows import delete_emptied, lock_groups, with_status, write_groups


class Step(NamedTuple):
    """The columns of a work that its deletion needs; its input and result stay in the database."""

    id: str
    type: str
    status: str
    group_id: str | None
    chain_id: str | None

    @property
    def chain(self) -> str:
        """The id of the chain, which is that of its first work."""
        return self.chain_id or self.id


def steps_among(chain_ids: Sequence[str]) -> list[Step]:
    """Read the works of those of these chains that exist."""
    alone = steps_matching(rows(Work).filter(chain_id=None), "id", chain_ids)
    return alone + steps_matching(rows(Work).all(), "chain_id", chain_ids)


def steps_in_group(group_id: str, statuses: Collection[str]) -> list[Step]:
    """Read the works of a group that have one of these statuses; a work that is alone is its own group."""
    works = rows(Work).filter(status__in=[str(status) for status in statuses])
    alone = works.filter(id=group_id, group_id=None)
    return selected(works.filter(group_id=group_id).order_by("id")) or selected(alone)


def steps_with_ids(ids: Sequence[str]) -> list[Step]:
    """Read those of these works that exist."""
    return steps_matching(rows(Work).all(), "id", ids)


def live_steps(type: str | None) -> list[Step]:
    """Read the works that have not ended, of a type or of all types."""
    found: list[Step] = []
    for status in sorted(LIVE):
        works = rows(Work).filter(status=str(status))
        found += selected(works.filter(type=type) if type else works)
    return found


def lock_steps(ids: Iterable[str]) -> list[Step]:
    """Lock works in id order; those that are gone are left out."""
    return steps_matching(rows(Work).select_for_update().order_by("id"), "id", sorted(ids))


def steps_matching(works: QuerySet[Work], field: str, values: Sequence[str]) -> list[Step]:
    """Return those of some works whose field has one of these values."""
    return [Step._make(row) for row in matching(works, field, values, *Step._fields)]


def selected(works: QuerySet[Work]) -> list[Step]:
    """Run a query over works."""
    return [Step._make(values) for values in works.values_list(*Step._fields)]


def blocking(waiters: Sequence[str]) -> list[str]:
    """Return the chains that block, or had blocked, any of these works, each once."""
    edges = rows(Edge).filter(chain=True).order_by("waiter_id", "position")
    return list(dict.fromkeys(id for (id,) in matching(edges, "waiter_id", waiters, "watched_id")))


def references_to(chain_ids: Sequence[str], sparing: Collection[str]) -> list[tuple[str, str]]:
    """Return each of these chains with each work that it blocks, or had blocked, the spared ones left out."""
    edges = rows(Edge).filter(chain=True).order_by("watched_id", "waiter_id")
    found = matching(edges, "watched_id", chain_ids, "watched_id", "waiter_id")
    return [(chain, waiter) for chain, waiter in found if waiter not in sparing]


def erase(ids: Sequence[str]) -> int:
    """Delete works whose rows the caller has locked, their attempts, former inputs, waiters and edges.

    Edges of others that watch them stay: they tell how a work ended, and may be there before it. Returns how
    many works there were.
    """
    deleted = 0
    for some in chunked(ids):
        rows(Attempt).filter(work_id__in=some).delete()
        rows(InputRevision).filter(work_id__in=some).delete()
        rows(Edge).filter(waiter_id__in=some).delete()
        rows(Waiter).filter(work_id__in=some).delete()
        deleted += rows(Work).filter(id__in=some).delete()[0]
    return deleted


# Deleting rows whose retention has passed.


class Ended(NamedTuple):
    """Where an ended work stands among those of its status and type: by its end, then by its id."""

    ended_at: datetime
    id: str


def page_of_ended(status: str, type: str, before: datetime, after: Ended | None, limit: int) -> list[Ended]:
    """Return the next works of a terminal status and a type that ended before, the longest ended first.

    These are up to ``limit`` works behind ``after``, or the first ones.
    """
    ended = rows(Work).filter(status=status, type=type, ended_at__lt=before).order_by("ended_at", "id")
    if after is not None:
        ended = ended.filter(ended_at__gte=after.ended_at).exclude(ended_at=after.ended_at, id__lte=after.id)
    return list(map(Ended._make, ended.values_list("ended_at", "id")[:limit]))


def delete_unneeded(status: str, ids: Sequence[str]) -> int:
    """Delete those of these works of a terminal status that nothing may still need; return how many.

    Works that a transaction has locked are left out. A dead work leaves the count of its group, so that the
    group's gates are no longer kept for its retry.
    """
    works = rows(Work).filter(status=status).select_for_update(skip_locked=True)
    with atomic():
        found = matching(works, "id", unneeded(ids), "id", "group_id")
        deleted = erase([id for id, _ in found])
        members = Counter(group for _, group in found if group)
        locked = lock_groups(members)
        if status == Status.DEAD:
            write_groups(row._replace(dead=row.dead - members[row.id]) for row in locked.values())
        delete_emptied(locked)
    return deleted


def unneeded(ids: Sequence[str]) -> list[str]:
    """Return those of these ended works that nothing may still need.

    Needed are: the works of an open group; works that a live, dead or cancelled work had waited for, which
    reads them in its attempts; those of an opened gate whose works may run or be retried, with the gate; and
    the last step of a chain as long as there is another one, as it says how the chain has ended.
    """
    chain = rows(Work).filter(chain_id=OuterRef("chain_id"))
    before = chain.filter(chain_index__lt=OuterRef("chain_index"))
    after = chain.filter(chain_index__gt=OuterRef("chain_index"))
    steps = rows(Work).filter(~Exists(before) | Exists(after))
    found = matching(steps, "id", ids, "id", "type", "status", "group_id", "chain_id")
    # Groups and edges are read by the ids: joined, some plans would compare each work with all of them.
    groups = {group for *_, group, _ in found if group}
    counts = {
        id: (open, dead) for id, open, dead in matching(rows(Group).all(), "id", groups, "id", "open", "dead")
    }
    may_run = rows(Group).filter(Q(open__gt=0) | Q(dead__gt=0), id=OuterRef("group_id"))
    waiter = rows(Work).filter(
        ~Q(status=Status.SUCCESS) | Q(type=GATE_TYPE) & Exists(may_run), id=OuterRef("waiter_id")
    )
    watched_ids = [*ids, *{chain for *_, chain in found if chain}]
    edges = matching(rows(Edge).filter(Exists(waiter)), "watched_id", watched_ids, "watched_id")
    watched = {id for (id,) in edges}

    def is_needed(id: str, type: str, status: str, group: str | None, chain: str | None) -> bool:
        open, dead = counts.get(group, (0, 0))
        has_opened = type == GATE_TYPE and status == Status.SUCCESS
        return open > 0 or (dead > 0 and has_opened) or not watched.isdisjoint((id, chain))

    return [work[0] for work in found if not is_needed(*work)]


def types_ended(status: str) -> Iterator[tuple[str, datetime]]:
    """Yield each type that has works of a terminal status, and when the first of them ended.

    Each is found by one entry of an index, however many works a type has.
    """
    ended = with_status(rows(Work).order_by("type", "ended_at"), status).values_list("type", "ended_at")
    found: Any = ended.first()
    while found is not None:
        yield found
        found = ended.filter(type__gt=found[0]).first()
