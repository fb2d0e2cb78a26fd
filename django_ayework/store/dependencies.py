"""Waiters and their edges: what gates and blocked works wait for, and how outcomes are recorded there.

A waiter has one row with its condition and its counts, and one edge to each work or chain that it watches. An
edge has the outcome of the watched work, or '' while it is open. Edges and counts are written under the
lock of their waiter's row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q

from django_ayework.models import Edge, Waiter, Work
from django_ayework.rules.conditions import Tally
from django_ayework.rules.states import LIVE, Status, is_terminal
from django_ayework.store.connections import keeps_plans
from django_ayework.store.database import atomic, chunked, connection, dialect, fetch, matching, rows
from django_ayework.store.dialects import array_text
from django_ayework.store.insert import insert_rows
from django_ayework.store.many_rows import rows_with, update_rows
from django_ayework.store.rows import chain_ends, chains_of_steps, statuses_of

WAITER = Waiter._meta.db_table
EDGE = Edge._meta.db_table
#: The columns of a new edge.
EDGE_COLUMNS = ("waiter_id", "watched_id", "chain", "position", "outcome")


class WaiterRow(NamedTuple):
    """A waiter's row."""

    work_id: str
    condition: str
    on_unmet: str
    total: int
    succeeded: int
    missed: int
    recheck: bool

    @property
    def tally(self) -> Tally:
        """The counts that the condition is decided by."""
        return Tally(self.total, self.succeeded, self.missed)


class Watch(NamedTuple):
    """A work or a whole chain that a waiter watches; with its outcome, if that is known."""

    id: str
    chain: bool = False
    outcome: str = ""


def insert_waiters(waiters: Sequence[WaiterRow], watched: Mapping[str, Sequence[Watch]]) -> None:
    """Insert waiters, and their edges in the order in which ids are watched."""
    rows(Waiter).bulk_create([Waiter(**waiter._asdict()) for waiter in waiters], batch_size=500)
    edges = [
        (waiter, watch.id, watch.chain, place, watch.outcome)
        for waiter, watches in watched.items()
        for place, watch in enumerate(watches)
    ]
    insert_rows(Edge, EDGE_COLUMNS, edges)


def lock_waiters(ids: Iterable[str], skip_locked: bool = False) -> dict[str, WaiterRow]:
    """Lock waiters in id order, so that two settlements that share several waiters cannot deadlock."""
    waiters = rows(Waiter).select_for_update(skip_locked=skip_locked).order_by("work_id")
    locked = matching(waiters, "work_id", sorted(ids), *WaiterRow._fields)
    return {row[0]: WaiterRow._make(row) for row in locked}


def read_waiters(ids: Collection[str]) -> dict[str, WaiterRow]:
    """Read waiters without locking them."""
    found = rows_with(Waiter, "work_id", ids, WaiterRow._fields)
    return {row[0]: WaiterRow._make(row) for row in found}


def watched_by(waiter: str, limit: int | None = None) -> list[tuple[str, str]]:
    """Return the first ids that a waiter watches, in order, each with its outcome ('' while open)."""
    edges = rows(Edge).filter(waiter_id=waiter).order_by("position")
    return list(edges.values_list("watched_id", "outcome")[:limit])


def missed_by(waiter: str, limit: int) -> list[tuple[str, str]]:
    """Return the first watched ids that ended without success, each with its outcome."""
    missed = rows(Edge).filter(waiter_id=waiter, outcome__in=[str(Status.DEAD), str(Status.CANCELLED)])
    return list(missed.order_by("position").values_list("watched_id", "outcome")[:limit])


def first_open(waiter: str, limit: int) -> list[Watch]:
    """Return the first works and chains whose outcome is not known."""
    edges = rows(Edge).filter(waiter_id=waiter, outcome="").order_by("position")
    return [Watch(*edge) for edge in edges.values_list("watched_id", "chain")[:limit]]


def blocked_behind(waiters: Collection[str], limit: int) -> list[tuple[str, str]]:
    """Return the blocked works behind some open edges of waiters, each with its waiter before it.

    The edges are in no order, as MariaDB would sort them all. Behind an edge is the work that it watches, or
    the blocked step of the chain.
    """
    open = rows(Edge).filter(waiter_id__in=waiters, outcome="")
    edges = list(open.values_list("waiter_id", "watched_id", "chain")[:limit])
    works = rows(Work).filter(status=Status.BLOCKED)
    blocked = {id: id for (id,) in matching(works, "id", {id for _, id, _ in edges}, "id")}
    steps = blocked | dict(
        matching(works, "chain_id", {id for _, id, chain in edges if chain}, "chain_id", "id")
    )
    found = [(waiter, (steps if chain else blocked).get(id)) for waiter, id, chain in edges]
    return [(waiter, id) for waiter, id in found if id is not None]


def watched_by_all(waiters: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids that each waiter watches, in order."""
    watched: dict[str, list[str]] = defaultdict(list)
    edges = rows(Edge).filter(waiter_id__in=list(waiters)).order_by("waiter_id", "position")
    for waiter, id in edges.values_list("waiter_id", "watched_id"):
        watched[waiter].append(id)
    return {waiter: tuple(ids) for waiter, ids in watched.items()}


class EdgeRow(NamedTuple):
    """An edge's row."""

    id: int
    waiter_id: str
    watched_id: str
    chain: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How works and chains ended, by id; None undoes an end."""

    works: Mapping[str, Status | None]
    chains: Mapping[str, Status | None]

    @property
    def ids(self) -> set[str]:
        """The ids of all works and chains."""
        return {*self.works, *self.chains}

    def undoes(self) -> bool:
        """Tell whether a work or chain that had ended is live again."""
        return None in self.works.values() or None in self.chains.values()

    def of(self, edge: EdgeRow) -> str:
        """Return the outcome of what an edge watches; the one that it has, if there is no newer one."""
        ends = self.chains if edge.chain else self.works
        return str(ends[edge.watched_id] or "") if edge.watched_id in ends else edge.outcome


def edges_to(watched: Collection[str]) -> list[EdgeRow]:
    """Return all edges to these works and chains."""
    return list(map(EdgeRow._make, rows_with(Edge, "watched_id", watched, EdgeRow._fields, often=True)))


def watchers_of(ids: Collection[str]) -> set[str]:
    """Return the waiters that watch any of these works and chains."""
    return {edge.waiter_id for edge in edges_to(ids)}


#: Ends without success.
MISSED = [str(status) for status in Status if is_terminal(status) and status != Status.SUCCESS]


def resolve_waiters(undecided: Collection[str], outcomes: Outcomes) -> dict[str, WaiterRow]:
    """Lock these waiters and the waiters of ended works; write the outcomes, and recount.

    Return the rows of all waiters that may be decided now. Every settlement calls this, and mostly nobody
    watches. In sessions of PostgreSQL that keep plans one statement does everything; to plan it each time
    would take ten times as long as to see that nobody watches.
    """
    if not undecided and dialect().has_arrays and keeps_plans(connection()):
        resolved = resolve_at_once(outcomes)
        if resolved is not None:
            return resolved
    waiters = {*undecided, *watchers_of(outcomes.ids)}
    return record_outcomes(lock_waiters(waiters), outcomes) if waiters else {}


#: Finds waiters, locks them, writes their edges and counts, and reads each edge once. The statement sees
#: everything as it was when it began, also what it has waited for. So it writes nothing if a waiter's row is
#: another one once it is locked (``fresh``): every transaction that writes edges writes their waiter's row,
#: too, so if no row has changed, no edge has. The locks are taken, in id order, before the first edge is
#: written, as that needs ``fresh``. Under the locks nobody moves edges and waiters, so they are found by
#: their places (ctid), and no plan reads all of them. OFFSET 0: see ``LATERAL`` in ``store.many_rows``. An
#: outcome that is NULL is not known.
RESOLVE = f"""
WITH known AS MATERIALIZED (
    SELECT edge.place, edge.waiter_id, edge.outcome AS before, edge.after
    FROM unnest(%s::text[], %s::text[], %s::text[]) AS ended(id, of_work, of_chain)
    CROSS JOIN LATERAL (
        SELECT ctid AS place, waiter_id, outcome,
            CASE WHEN chain THEN ended.of_chain ELSE ended.of_work END AS after
        FROM {EDGE} WHERE watched_id = ended.id OFFSET 0
    ) AS edge
), seen AS MATERIALIZED (
    SELECT work_id, ctid AS version FROM {WAITER}
    WHERE work_id = ANY(ARRAY(SELECT DISTINCT waiter_id FROM known))
), locked AS MATERIALIZED (
    SELECT work_id, ctid AS version FROM {WAITER}
    WHERE work_id = ANY(ARRAY(SELECT work_id FROM seen))
    ORDER BY work_id
    FOR UPDATE
), fresh AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT FROM locked WHERE version NOT IN (SELECT version FROM seen)) AS is_so
), written AS (
    UPDATE {EDGE} AS edge
    SET outcome = known.after
    FROM known
    WHERE edge.ctid = known.place AND known.before <> known.after AND (SELECT is_so FROM fresh)
    RETURNING edge.waiter_id, known.before, known.after
), counted AS (
    SELECT waiter_id,
        sum((after = 'success')::int - (before = 'success')::int) AS succeeded,
        sum((after = ANY(ends.missed))::int - (before = ANY(ends.missed))::int) AS missed
    FROM written, (SELECT %s::text[] AS missed) AS ends
    GROUP BY waiter_id
), recounted AS (
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
)
SELECT fresh.is_so, recounted.* FROM fresh LEFT JOIN recounted ON true
"""


def resolve_at_once(outcomes: Outcomes) -> dict[str, WaiterRow] | None:
    """Resolve in one statement of PostgreSQL; return the rows of the waiters whose edges it has written.

    None, with all of them locked and nothing written, if one was locked by others and has changed meanwhile.
    """
    ids = list(outcomes.ids)
    columns: list[Sequence[Any]] = [
        ids,
        texts_of(outcomes.works, ids),
        texts_of(outcomes.chains, ids),
        MISSED,
    ]
    found = fetch(RESOLVE, [*map(array_text, columns)], often=True)
    if not found[0][0]:
        return None
    return {row[1]: WaiterRow._make(row[1:]) for row in found if row[1] is not None}


def texts_of(ends: Mapping[str, Status | None], ids: Iterable[str]) -> list[str | None]:
    """Return the outcomes of these works or chains as texts; None for those that are not among the ends."""
    texts = {end: str(end or "") for end in set(ends.values())}
    return [texts[ends[id]] if id in ends else None for id in ids]


def record_outcomes(waiters: Mapping[str, WaiterRow], outcomes: Outcomes) -> dict[str, WaiterRow]:
    """Write outcomes on the edges of waiters that the caller has locked, and count them; return their rows.

    The edges are read here, after the locks, so that no rival's outcome is missed or counted twice. A row is
    written whenever one of its edges is: ``RESOLVE`` relies on that.
    """
    recounted: dict[str, WaiterRow] = {}
    written: dict[str, list[int]] = defaultdict(list)
    for edge in edges_to(outcomes.ids) if waiters else ():
        if edge.waiter_id in waiters and (outcome := outcomes.of(edge)) != edge.outcome:
            waiter = recounted.get(edge.waiter_id, waiters[edge.waiter_id])
            recounted[edge.waiter_id] = recount(waiter, edge.outcome, outcome)
            written[outcome].append(edge.id)
    for outcome, ids in written.items():
        for some in chunked(sorted(ids)):
            rows(Edge).filter(id__in=some).update(outcome=outcome)
    counts = {id: {"succeeded": w.succeeded, "missed": w.missed} for id, w in recounted.items()}
    update_rows(Waiter, counts)
    return {**waiters, **recounted}


def recount(waiter: WaiterRow, before: str, after: str) -> WaiterRow:
    """Return a waiter with its counts moved by one edge."""
    return waiter._replace(
        succeeded=waiter.succeeded + (after == Status.SUCCESS) - (before == Status.SUCCESS),
        missed=waiter.missed + (after in MISSED) - (before in MISSED),
    )


class Ends(NamedTuple):
    """How works or chains ended; ``locked`` are those whose end is not known now."""

    ended: dict[str, Status]
    locked: set[str]


def waiters_to_recheck(limit: int, after: str = "") -> list[str]:
    """Return flagged waiters: those after this id, then from the first one on."""
    flagged = rows(Waiter).filter(recheck=True).order_by("work_id").values_list("work_id", flat=True)
    found = list(flagged.filter(work_id__gt=after)[:limit])
    return found + list(flagged.filter(work_id__lte=after)[: limit - len(found)]) if after else found


def clear_recheck(waiters: Iterable[str]) -> None:
    """Clear the flag of waiters that were rechecked, and that the caller has locked."""
    for some in chunked(list(waiters)):
        rows(Waiter).filter(work_id__in=some).update(recheck=False)


def flag_for_recheck(waiters: Sequence[str]) -> int:
    """Flag waiters for a recheck by a worker; return how many there are."""
    return rows(Waiter).filter(work_id__in=lock_waiters(waiters)).update(recheck=True)


def open_edges(waiters: Sequence[str]) -> list[EdgeRow]:
    """Return the edges of these waiters whose outcome is not known."""
    open = rows(Edge).filter(outcome="")
    return list(map(EdgeRow._make, matching(open, "waiter_id", waiters, *EdgeRow._fields)))


def edges_by_id(ids: Sequence[int]) -> list[EdgeRow]:
    """Return those of these edges that are there."""
    return list(map(EdgeRow._make, matching(rows(Edge).all(), "id", ids, *EdgeRow._fields)))


def open_watchers(ids: Sequence[str]) -> list[str]:
    """Return the waiters that have an open edge to any of these ids."""
    open = rows(Edge).filter(outcome="")
    return sorted({waiter for (waiter,) in matching(open, "watched_id", ids, "waiter_id")})


def settled_statuses(ids: Collection[str]) -> Ends:
    """Return how these works ended; locked rows are passed over.

    A settlement locks the work before it looks for edges. So once the row of a work can be locked, a
    settlement that has missed a committed edge is over and its outcome is seen; a later one finds the edge.
    Each lock is released at once. A success is final and needs none. SQLite has one writer at a time: no
    settlement is in flight once an edge is committed.
    """
    statuses = statuses_of(sorted(ids))
    if not connection().features.has_select_for_update:
        return Ends(ended_among(statuses), set())
    not_final = [id for id, status in statuses.items() if status is not Status.SUCCESS]
    locked = set(not_final)
    for some in chunked(not_final):
        with atomic():
            free = rows(Work).select_for_update(skip_locked=True).filter(id__in=some)
            found = {id: Status(status) for id, status in free.values_list("id", "status")}
        statuses.update(found)
        locked -= found.keys()
    return Ends(ended_among(statuses, locked), locked)


def ended_among(statuses: dict[str, Status], sparing: Collection[str] = ()) -> dict[str, Status]:
    """Return the statuses that are ends."""
    return {id: status for id, status in statuses.items() if is_terminal(status) and id not in sparing}


def settled_chains(ids: Collection[str]) -> Ends:
    """Return how these chains ended; a chain is locked while one of its works is.

    A work that joins a chain after they were read is settled later than the edge was committed.
    """
    chains = chains_of_steps(ids)
    locked = {chains[step] for step in settled_statuses(chains.keys()).locked}
    return Ends(ended_among(ends_of_blockers(ids), locked), locked)


def ends_of_blockers(chain_ids: Iterable[str]) -> dict[str, Status]:
    """Return the status of the last work of each chain that blocks a work.

    All chains were there when the work was queued, so one that is gone was deleted: it counts as cancelled.
    """
    ids = list(chain_ids)
    return dict.fromkeys(ids, Status.CANCELLED) | chain_ends(ids)


#: A page of the sweep: so many blocked works, and so many edges unless a single work has more.
WAITERS, EDGES = 1000, 20_000


class BlockedCursor(NamedTuple):
    """Where a blocked work stands among all of them: by its deadline, those without one first, then by id."""

    deadline: datetime | None
    id: str


class BlockedPage(NamedTuple):
    """Blocked works, and the cursor behind which the next page begins; None behind the last one."""

    ids: list[str]
    next: BlockedCursor | None


def blocked_page(after: BlockedCursor | None) -> BlockedPage:
    """Return the next blocked works: as many as watch no more than ``EDGES`` others, and at least one."""
    cursors = blocked_after(after or BlockedCursor(None, ""), WAITERS)
    ids = [cursor.id for cursor in cursors]
    totals = dict(rows(Waiter).filter(work_id__in=ids).values_list("work_id", "total"))
    edges = list(accumulate(totals.get(id, 0) for id in ids))
    taken = max(1, bisect_right(edges, EDGES))
    is_last = len(cursors) < WAITERS and taken >= len(cursors)
    return BlockedPage(ids[:taken], None if is_last else cursors[min(taken, len(cursors)) - 1])


def blocked_after(cursor: BlockedCursor, limit: int) -> list[BlockedCursor]:
    """Return the cursors of the blocked works behind a cursor, from their index alone and in its order.

    PostgreSQL sorts works without a deadline, unless it is to come by deadline first; MariaDB sorts it if so.
    """
    blocked = rows(Work).filter(status=Status.BLOCKED).values_list("deadline", "id")
    same = Q(deadline__isnull=True) if cursor.deadline is None else Q(deadline=cursor.deadline)
    later = Q(deadline__isnull=False) if cursor.deadline is None else Q(deadline__gt=cursor.deadline)
    found = list(blocked.filter(same, id__gt=cursor.id).order_by(*dialect().order_of_blocked)[:limit])
    if len(found) < limit:
        found += blocked.filter(later).order_by("deadline", "id")[: limit - len(found)]
    return list(map(BlockedCursor._make, found))


def stranded_among(waiters: Sequence[str]) -> list[str]:
    """Return waiters that seem to be stranded: they have an open edge to an ended work, and no flag.

    This takes several statements, between which other transactions commit: only a recheck under the waiters'
    locks can tell.
    """
    ended = rows(Work).filter(id=OuterRef("watched_id")).exclude(status__in=[str(s) for s in LIVE])
    open_to_ended = rows(Edge).filter(Exists(ended), outcome="")
    edges = matching(open_to_ended, "waiter_id", waiters, "waiter_id", "watched_id", "chain")
    ends = chain_ends({id for _, id, chain in edges if chain})
    suspects = {waiter for waiter, id, chain in edges if not chain or is_terminal(ends.get(id))}
    unflagged = rows(Waiter).filter(recheck=False)
    return sorted(id for (id,) in matching(unflagged, "work_id", suspects, "work_id"))
