"""Writing outcomes to waiters, and rechecking waiters that may have missed one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from django.db.models import Exists, OuterRef, Q

from django_ayework.models import Edge, Waiter, Work
from django_ayework.rules.states import LIVE, Status, is_terminal
from django_ayework.store.bulk import update_rows
from django_ayework.store.database import atomic, chunked, connection, fetch, is_postgresql, rows, vendor
from django_ayework.store.dependencies import (
    EDGE,
    KNOWN,
    TELL,
    WAITER,
    WATCHERS,
    News,
    Told,
    WaiterRow,
    are_watched,
    facts_of,
    lock_waiters,
    watchers_of,
    write_outcomes,
)
from django_ayework.store.groups import chain_ends, chains_of_steps
from django_ayework.store.parameters import array_text
from django_ayework.store.prepared import keeps_plans
from django_ayework.store.rows import statuses_of

# --- telling ---
# Telling waiters how what they watch ended: under their locks their edges are written, and their counts.

#: Ends without success.
MISSED = [str(status) for status in Status if is_terminal(status) and status != Status.SUCCESS]


def resolve_waiters(undecided: Collection[str], news: News) -> dict[str, WaiterRow]:
    """Lock these waiters, and whoever watches what there is news of; tell them, and recount.

    Return the rows of all that may be decided now. Every settlement asks, so there is a short way for most
    of them, which have nobody to decide besides.
    """
    if is_postgresql() and not undecided:
        told = resolved_at_once(news) if keeps_plans(connection()) else resolve_if_watched(news)
        if told is not None:
            return told
    return record_outcomes(lock_concerned(undecided, news), news)


def resolve_if_watched(news: News) -> dict[str, WaiterRow] | None:
    """Do as told_at_once(), in a session that would plan its statement each time.

    That takes ten times as long as to see that nobody watches, which is so for most works that settle alone.
    Whoever begins to watch after this look is looked at again, as after any other.
    """
    return resolved_at_once(news) if are_watched(news.ids) else {}


#: The inner query is run once, before any row is locked; rows are locked in the order in which they come.
LOCK_CONCERNED = f"""
SELECT {", ".join(WaiterRow._fields)} FROM {WAITER}
WHERE work_id = ANY(%s::text[] || ARRAY({WATCHERS}))
ORDER BY work_id
FOR UPDATE
"""


def lock_concerned(waiters: Collection[str], news: News) -> dict[str, WaiterRow]:
    """Lock these waiters, and whoever watches what there is news of, as lock_waiters() does."""
    ids = list(news.ids)
    if not is_postgresql():
        return lock_waiters({*waiters, *watchers_of(ids)})
    found = fetch(LOCK_CONCERNED, [array_text(list(waiters)), array_text(ids)], often=True)
    return {row[0]: WaiterRow._make(row) for row in found}


#: What the counts of each waiter gain by the edges that were told, as ``counted``.
COUNTED = """
counted AS (
    SELECT waiter_id,
        sum((after = 'success')::int - (before = 'success')::int) AS succeeded,
        sum((after = ANY(ends.missed))::int - (before = ANY(ends.missed))::int) AS missed
    FROM told, (SELECT %s::text[] AS missed) AS ends
    GROUP BY waiter_id
)
"""
#: Under the waiters' locks, so nobody else counts, nor moves the rows whose places are looked up.
COUNT = f"""
UPDATE {WAITER} AS waiter
SET succeeded = waiter.succeeded + found.succeeded, missed = waiter.missed + found.missed
FROM (
    SELECT known.place, counted.succeeded, counted.missed
    FROM counted CROSS JOIN LATERAL (
        SELECT ctid AS place FROM {WAITER} WHERE work_id = counted.waiter_id OFFSET 0
    ) AS known
) AS found
WHERE waiter.ctid = found.place
RETURNING {", ".join(f"waiter.{name}" for name in WaiterRow._fields)}
"""
RECORD = f"{TELL}, {COUNTED} {COUNT}"


def record_outcomes(waiters: Mapping[str, WaiterRow], news: News) -> dict[str, WaiterRow]:
    """Write how what is watched ended, and recount; return the locked waiters' rows, mostly none."""
    if not waiters or not news.ids:
        return dict(waiters)
    recorded = record_set_based if is_postgresql() else record_one_by_one
    return {**waiters, **recorded(waiters, news)}


def record_set_based(waiters: Mapping[str, WaiterRow], news: News) -> dict[str, WaiterRow]:
    """One statement tells the edges and counts them."""
    params = [
        *(array_text(column) for column in facts_of(news)),
        array_text(list(waiters)),
        array_text(MISSED),
    ]
    return {row[0]: WaiterRow._make(row) for row in fetch(RECORD, params, often=True)}


#: Finds, locks, tells and counts by one statement, which reads each edge once. It sees everything as it was
#: when it began, also what it has waited for: so it tells nobody if a waiter's row is another one once it is
#: locked. Whoever writes edges writes their waiter's row, too: if none has changed, no edge has. The locks
#: are taken, in order, before the first edge is written, for that asks whether all is ``fresh``.
AT_ONCE = f"""
WITH known AS MATERIALIZED ({KNOWN}), seen AS MATERIALIZED (
    SELECT work_id, ctid AS version FROM {WAITER}
    WHERE work_id = ANY(ARRAY(SELECT DISTINCT waiter_id FROM known))
), locked AS MATERIALIZED (
    SELECT work_id, ctid AS version FROM {WAITER}
    WHERE work_id = ANY(ARRAY(SELECT work_id FROM seen))
    ORDER BY work_id
    FOR UPDATE
), fresh AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT FROM locked WHERE version NOT IN (SELECT version FROM seen)) AS is_so
), told AS (
    UPDATE {EDGE} AS edge
    SET outcome = known.after
    FROM known
    WHERE edge.ctid = known.place AND known.before <> known.after AND (SELECT is_so FROM fresh)
    RETURNING edge.waiter_id, known.before, known.after
), {COUNTED}, recounted AS ({COUNT})
SELECT fresh.is_so, recounted.* FROM fresh LEFT JOIN recounted ON true
"""


def resolved_at_once(news: News) -> dict[str, WaiterRow] | None:
    """Tell whoever watches what there is news of; return the rows of those to whom it is new.

    None, with all of them locked and nothing told, if one had to be waited for and has changed meanwhile.
    """
    params = [*(array_text(column) for column in facts_of(news)), array_text(MISSED)]
    found = fetch(AT_ONCE, params, often=True)
    if not found[0][0]:
        return None
    return {row[1]: WaiterRow._make(row[1:]) for row in found if row[1] is not None}


def record_one_by_one(waiters: Mapping[str, WaiterRow], news: News) -> dict[str, WaiterRow]:
    """Tell the edges, then write the counts."""
    recounted: dict[str, WaiterRow] = {}
    for told in write_outcomes(waiters, news):
        waiter = recounted.get(told.waiter_id, waiters[told.waiter_id])
        recounted[told.waiter_id] = recount(waiter, told)
    write_tallies(recounted.values())
    return recounted


def recount(waiter: WaiterRow, told: Told) -> WaiterRow:
    """Return the waiter with its counts moved by edges that were told."""
    succeeded = (told.after == Status.SUCCESS) - (told.before == Status.SUCCESS)
    missed = is_missed(told.after) - is_missed(told.before)
    return waiter._replace(
        succeeded=waiter.succeeded + succeeded * told.number, missed=waiter.missed + missed * told.number
    )


def is_missed(outcome: str) -> bool:
    """Tell whether this outcome is an end without success."""
    return outcome in MISSED


def write_tallies(waiters: Iterable[WaiterRow]) -> None:
    """Write the counts of locked waiters."""
    update_rows(Waiter, {w.work_id: {"succeeded": w.succeeded, "missed": w.missed} for w in waiters})


# --- second looks ---
# What rechecks and the sweep read: open edges of waiters, and how what they lead to has ended.

#: A page of the sweep: blocked works, and edges that they have unless it is a single one's.
WAITERS, EDGES = 1000, 20_000


class OpenEdge(NamedTuple):
    """An edge whose outcome is not known."""

    id: int
    waiter_id: str
    watched_id: str
    chain: bool


class Ends(NamedTuple):
    """How works or chains ended, those that have; of those that are ``held``, nobody can tell now."""

    ended: dict[str, Status]
    held: set[str]


def waiters_to_recheck(limit: int, after: str = "") -> list[str]:
    """Return waiters that are to be rechecked: those after this id, then from the first one on."""
    flagged = rows(Waiter).filter(recheck=True).order_by("work_id").values_list("work_id", flat=True)
    found = list(flagged.filter(work_id__gt=after)[:limit])
    return found + list(flagged.filter(work_id__lte=after)[: limit - len(found)]) if after else found


def clear_recheck(waiters: Iterable[str]) -> None:
    """Note that these waiters, which the caller has locked, were rechecked."""
    for some in chunked(list(waiters)):
        rows(Waiter).filter(work_id__in=some).update(recheck=False)


def flag_for_recheck(waiters: Sequence[str]) -> int:
    """Note that a worker is to recheck these waiters; return how many."""
    return rows(Waiter).filter(work_id__in=lock_waiters(waiters)).update(recheck=True)


def open_edges(waiters: Sequence[str]) -> list[OpenEdge]:
    """Return the edges of these waiters whose outcome is not known."""
    found: list[OpenEdge] = []
    for some in chunked(waiters):
        edges = rows(Edge).filter(waiter_id__in=some, outcome="")
        found += map(OpenEdge._make, edges.values_list(*OpenEdge._fields))
    return found


def edges_by_id(ids: Sequence[int]) -> list[tuple[OpenEdge, str]]:
    """Return those of these edges that are there, each with its outcome."""
    found: list[tuple[OpenEdge, str]] = []
    for some in chunked(ids):
        edges = rows(Edge).filter(id__in=some).values_list(*OpenEdge._fields, "outcome")
        found += [(OpenEdge._make(edge), outcome) for *edge, outcome in edges]
    return found


def open_watchers(ids: Sequence[str]) -> list[str]:
    """Return the waiters that have an open edge to any of these ids."""
    found: set[str] = set()
    for some in chunked(ids):
        edges = rows(Edge).filter(watched_id__in=some, outcome="")
        found.update(edges.values_list("waiter_id", flat=True))
    return sorted(found)


def settled_statuses(ids: Collection[str]) -> Ends:
    """Return how these works ended; a row that somebody holds is passed over.

    A settlement locks the work before it looks for edges. So once the row of a work can be locked, a
    settlement that has missed a committed edge is over and its outcome is seen; a later one finds the edge.
    Each lock is released at once. A success is final and needs none. SQLite has one writer at a time: no
    settlement is in flight once an edge is committed.
    """
    seen = statuses_of(sorted(ids))
    if vendor() == "sqlite":
        return Ends(ended_among(seen), set())
    unlocked = [id for id, status in seen.items() if status is not Status.SUCCESS]
    held = set(unlocked)
    for some in chunked(unlocked):
        with atomic():
            free = rows(Work).select_for_update(skip_locked=True).filter(id__in=some)
            locked = {id: Status(status) for id, status in free.values_list("id", "status")}
        seen.update(locked)
        held -= locked.keys()
    return Ends(ended_among(seen, held), held)


def ended_among(statuses: dict[str, Status], sparing: Collection[str] = ()) -> dict[str, Status]:
    """Return the statuses that are ends."""
    return {id: status for id, status in statuses.items() if is_terminal(status) and id not in sparing}


def settled_chains(ids: Collection[str]) -> Ends:
    """Return how these chains ended; a chain is held while one of its works is.

    A work that joins a chain after they were read is settled later than the edge was committed.
    """
    if not ids:
        return Ends({}, set())
    chains = chains_of_steps(ids)
    held = {chains[step] for step in settled_statuses(chains.keys()).held}
    return Ends(ended_among(ends_of_blockers(ids), held), held)


def ends_of_blockers(chain_ids: Iterable[str]) -> dict[str, Status]:
    """Return the status of the last work of each chain that somebody waits for.

    All of them were there when that began, so one that is gone was deleted: it counts as cancelled.
    """
    ids = list(chain_ids)
    return dict.fromkeys(ids, Status.CANCELLED) | chain_ends(ids)


class Place(NamedTuple):
    """Where a blocked work stands among all of them: by its deadline, those without one first, then by id."""

    deadline: datetime | None
    id: str


class BlockedPage(NamedTuple):
    """Blocked works, and the place behind which the next page begins; None behind the last one."""

    ids: list[str]
    next: Place | None


def blocked_page(after: Place | None) -> BlockedPage:
    """Return the next blocked works: as many as watch no more than ``EDGES`` others, and at least one."""
    places = blocked_after(after or Place(None, ""), WAITERS)
    ids = [place.id for place in places]
    totals = dict(rows(Waiter).filter(work_id__in=ids).values_list("work_id", "total"))
    edges = list(accumulate(totals.get(id, 0) for id in ids))
    taken = max(1, bisect_right(edges, EDGES))
    is_last = len(places) < WAITERS and taken >= len(places)
    return BlockedPage(ids[:taken], None if is_last else places[min(taken, len(places)) - 1])


def blocked_after(place: Place, limit: int) -> list[Place]:
    """Return the places of the blocked works behind a place, from their index alone and in its order.

    PostgreSQL sorts what has no deadline, unless it is to come by deadline first; MariaDB sorts it if so.
    """
    by_id = ("id",) if vendor() == "mysql" else ("deadline", "id")
    blocked = rows(Work).filter(status=Status.BLOCKED).values_list("deadline", "id")
    same = Q(deadline__isnull=True) if place.deadline is None else Q(deadline=place.deadline)
    later = Q(deadline__isnull=False) if place.deadline is None else Q(deadline__gt=place.deadline)
    found = list(blocked.filter(same, id__gt=place.id).order_by(*by_id)[:limit])
    if len(found) < limit:
        found += blocked.filter(later).order_by("deadline", "id")[: limit - len(found)]
    return list(map(Place._make, found))


def stranded_among(waiters: Sequence[str]) -> list[str]:
    """Return those of these waiters that seem to have been left behind.

    They have an open edge to what has ended, and no flag. To see that takes several statements, between which
    things move on: only a recheck under the waiters' locks can tell.
    """
    ended = rows(Work).filter(id=OuterRef("watched_id")).exclude(status__in=[str(s) for s in LIVE])
    edges: list[tuple[str, str, bool]] = []
    for some in chunked(waiters):
        open_to_ended = rows(Edge).filter(Exists(ended), waiter_id__in=some, outcome="")
        edges += open_to_ended.values_list("waiter_id", "watched_id", "chain")
    ends = chain_ends({id for _, id, chain in edges if chain})
    suspects = {waiter for waiter, id, chain in edges if not chain or is_terminal(ends.get(id))}
    found: list[str] = []
    for some in chunked(sorted(suspects)):
        found += rows(Waiter).filter(work_id__in=some, recheck=False).values_list("work_id", flat=True)
    return sorted(found)
