"""Waiters and their edges: what a gate or a blocked work waits for."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django_ayework.models import Edge, Waiter
from django_ayework.rules.conditions import Tally
from django_ayework.rules.states import Status
from django_ayework.store.database import SET, chunked, fetch, has_returning, is_postgresql, rows, vendor
from django_ayework.store.insert import insert_rows
from django_ayework.store.parameters import Source, array_text, source_of

# --- waiters ---
# Waiters and their edges.

WAITER = Waiter._meta.db_table
#: The columns of a new edge, and from how many edges on COPY is quicker.
EDGE_COLUMNS = ("waiter_id", "watched_id", "chain", "position", "outcome")
WORTH_COPYING = 200


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
        """How the watched works stand."""
        return Tally(self.total, self.succeeded, self.missed)


class Watch(NamedTuple):
    """What a new waiter watches: a work, or a whole chain; with its outcome, if it has ended before."""

    id: str
    chain: bool = False
    outcome: str = ""


def insert_waiters(waiters: Sequence[WaiterRow], watched: Mapping[str, Sequence[Watch]]) -> None:
    """Insert waiters, and an edge to each watched id in order."""
    rows(Waiter).bulk_create([Waiter(**waiter._asdict()) for waiter in waiters], batch_size=500)
    edges = [
        (waiter, watch.id, watch.chain, place, watch.outcome)
        for waiter, watches in watched.items()
        for place, watch in enumerate(watches)
    ]
    insert_rows(Edge, EDGE_COLUMNS, edges, copy_from=WORTH_COPYING)


def lock_waiters(ids: Iterable[str], skip_locked: bool = False) -> dict[str, WaiterRow]:
    """Lock waiters in id order, so that two settlements that meet at several cannot wait for each other."""
    locked: dict[str, WaiterRow] = {}
    for some in chunked(sorted(ids)):
        chosen = rows(Waiter).select_for_update(skip_locked=skip_locked).filter(work_id__in=some)
        chosen = chosen.order_by("work_id")
        locked.update((row[0], WaiterRow._make(row)) for row in chosen.values_list(*WaiterRow._fields))
    return locked


def read_waiters(ids: Iterable[str]) -> dict[str, WaiterRow]:
    """Read waiters without locking them."""
    chosen = rows(Waiter).filter(work_id__in=list(ids)).values_list(*WaiterRow._fields)
    return {row[0]: WaiterRow._make(row) for row in chosen}


def watched_by(waiter: str) -> list[tuple[str, str]]:
    """Return the ids a waiter watches, in order, each with its outcome ('' while open)."""
    edges = rows(Edge).filter(waiter_id=waiter).order_by("position")
    return list(edges.values_list("watched_id", "outcome"))


def missed_by(waiter: str, limit: int) -> list[tuple[str, str]]:
    """Return the first watched ids that ended without success, each with its outcome."""
    missed = rows(Edge).filter(waiter_id=waiter, outcome__in=[str(Status.DEAD), str(Status.CANCELLED)])
    return list(missed.order_by("position").values_list("watched_id", "outcome")[:limit])


def first_open(waiter: str, limit: int) -> list[Watch]:
    """Return the first works and chains whose end is not known."""
    edges = rows(Edge).filter(waiter_id=waiter, outcome="").order_by("position")
    return [Watch(*edge) for edge in edges.values_list("watched_id", "chain")[:limit]]


def watched_by_all(waiters: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return what each waiter watches, in order."""
    watched: dict[str, list[str]] = defaultdict(list)
    edges = rows(Edge).filter(waiter_id__in=list(waiters)).order_by("waiter_id", "position")
    for waiter, id in edges.values_list("waiter_id", "watched_id"):
        watched[waiter].append(id)
    return {waiter: tuple(ids) for waiter, ids in watched.items()}


# --- edges ---
# Edges: from a waiter to what it watches. They are told how that ended, under the waiter's lock.

EDGE = Edge._meta.db_table


class EdgeRow(NamedTuple):
    """An edge's row."""

    id: int
    waiter_id: str
    watched_id: str
    chain: bool
    outcome: str


class Told(NamedTuple):
    """So many edges of a waiter were told this outcome, and knew that one before ('' while open)."""

    waiter_id: str
    before: str
    after: str
    number: int


@dataclass(frozen=True, slots=True)
class News:
    """How works and chains ended, by id; None undoes an end."""

    works: Mapping[str, Status | None]
    chains: Mapping[str, Status | None]

    @property
    def ids(self) -> set[str]:
        """Every id there is news of."""
        return {*self.works, *self.chains}

    def undoes(self) -> bool:
        """Tell whether something that had ended is live again."""
        return None in self.works.values() or None in self.chains.values()

    def concerns(self, edge: EdgeRow) -> bool:
        """Tell whether there is news of what the edge watches."""
        return edge.watched_id in (self.chains if edge.chain else self.works)

    def outcome(self, edge: EdgeRow) -> str:
        """Return the edge's new outcome."""
        return str((self.chains if edge.chain else self.works)[edge.watched_id] or "")


#: The edges to what there is news of, each with what it knew and what it is to know; NULL if there is no news
#: for it. OFFSET 0 keeps the inner query whole, so that it reads the index once per id: of a gate that was
#: born a moment ago the planner has no statistics, takes its ids for common ones, and would read every edge.
#: Edges are known by their place: nobody moves them without their waiter's lock, and no plan reads them all.
KNOWN = f"""
SELECT known.place, known.waiter_id, known.outcome AS before, known.after
FROM unnest(%s::text[], %s::text[], %s::text[]) AS news(watched_id, of_work, of_chain)
CROSS JOIN LATERAL (
    SELECT ctid AS place, waiter_id, outcome,
        CASE WHEN chain THEN news.of_chain ELSE news.of_work END AS after
    FROM {EDGE} WHERE watched_id = news.watched_id OFFSET 0
) AS known
"""
#: Tells edges of these waiters, as ``told``.
TELL = f"""
WITH told AS (
    UPDATE {EDGE} AS edge
    SET outcome = stale.after
    FROM ({KNOWN} WHERE known.waiter_id = ANY(%s::text[]) AND known.outcome <> known.after) AS stale
    WHERE edge.ctid = stale.place
    RETURNING edge.waiter_id, stale.before, stale.after
)
"""


#: As in KNOWN, OFFSET 0 keeps the planner from reading every edge.
WATCHERS = f"""
SELECT DISTINCT known.waiter_id
FROM unnest(%s::text[]) AS ended(id)
CROSS JOIN LATERAL (SELECT waiter_id FROM {EDGE} WHERE watched_id = ended.id OFFSET 0) AS known
"""


#: SQLite keeps the order of a CROSS JOIN: it reads the index once per id.
WATCHERS_SQLITE = f"""
SELECT DISTINCT edge.waiter_id FROM json_each(%s) AS ended CROSS JOIN {EDGE} AS edge
WHERE edge.watched_id = ended.value
"""
WATCHERS_BY_ID = f"SELECT DISTINCT waiter_id FROM {EDGE} WHERE watched_id IN ({{}})"


def watchers_mysql(source: Source) -> str:
    """Return the same for MySQL and MariaDB, which look for each id of an IN twice: once while they plan."""
    join = f"{source.sql} STRAIGHT_JOIN {EDGE} AS edge ON edge.watched_id = v.v0"
    return f"SELECT DISTINCT edge.waiter_id FROM {join}"


def watchers_of(ids: Iterable[str]) -> set[str]:
    """Return the works that watch any of these ids. Every settlement asks."""
    wanted = list(ids)
    if is_postgresql():
        found = [fetch(WATCHERS, [array_text(some)], often=True) for some in chunked(wanted, SET)]
    elif has_returning():
        found = [fetch(WATCHERS_SQLITE, [json.dumps(wanted)])]
    elif vendor() == "mysql":
        source = source_of([Edge._meta.get_field("watched_id")], [wanted])
        found = [fetch(watchers_mysql(source), source.params)]
    else:
        statement = WATCHERS_BY_ID.format
        found = [fetch(statement(", ".join(["%s"] * len(some))), some) for some in chunked(wanted)]
    return {row[0] for rows_ in found for row in rows_}


#: It ends with the first edge that it finds.
IS_WATCHED = f"""
SELECT EXISTS (
    SELECT FROM unnest(%s::text[]) AS ended(id)
    CROSS JOIN LATERAL (SELECT FROM {EDGE} WHERE watched_id = ended.id OFFSET 0) AS known
)
"""


def are_watched(ids: Iterable[str]) -> bool:
    """Tell whether anybody watches any of these ids; on PostgreSQL."""
    return bool(fetch(IS_WATCHED, [array_text(list(ids))])[0][0])


def facts_of(news: News) -> tuple[list[str], list[str | None], list[str | None]]:
    """Return news by column: ids, outcomes of works, outcomes of chains; None where there is no such news."""
    ids = list(news.ids)
    of_works = texts_of(news.works, ids)
    return ids, of_works, of_works if news.works == news.chains else texts_of(news.chains, ids)


def texts_of(ends: Mapping[str, Status | None], ids: Iterable[str]) -> list[str | None]:
    """Return how these works or chains ended, as texts; None for those of which there is no news."""
    texts = {end: str(end or "") for end in set(ends.values())}
    return [texts[ends[id]] if id in ends else None for id in ids]


def write_outcomes(waiters: Collection[str], news: News) -> list[Told]:
    """Write how what is watched ended on the edges of these waiters, which the caller has locked.

    The edges are read here, after the locks, so that no rival's outcome is missed or counted twice.
    """
    return (
        write_outcomes_sqlite(waiters, news) if has_returning() else write_outcomes_one_by_one(waiters, news)
    )


#: The edges that have not heard yet how all of these works, and their chains, ended; NULL is no news. They
#: are written by their ids: joined with the news itself, all edges would be read for each row anew.
STALE_SQLITE = f"""
SELECT edge.id, edge.waiter_id, edge.outcome AS before, CASE WHEN edge.chain THEN %s ELSE %s END AS after
FROM json_each(%s) AS ended CROSS JOIN {EDGE} AS edge
WHERE edge.watched_id = ended.value AND edge.outcome <> after
    AND edge.waiter_id IN (SELECT value FROM json_each(%s))
"""
COUNT_SQLITE = f"SELECT waiter_id, before, after, count(*) FROM ({STALE_SQLITE}) GROUP BY 1, 2, 3"
TELL_SQLITE = f"""
UPDATE {EDGE} SET outcome = CASE WHEN chain THEN %s ELSE %s END
WHERE id IN (SELECT id FROM ({STALE_SQLITE}))
"""


def write_outcomes_sqlite(waiters: Collection[str], news: News) -> list[Told]:
    """Count what each waiter is told, then tell it: the transaction is the only one that writes.

    Most works end alike; for those that do, how is said once.
    """
    alike: dict[tuple[str | None, str | None], list[str]] = defaultdict(list)
    for id, of_work, of_chain in zip(*facts_of(news), strict=True):
        alike[of_chain, of_work].append(id)
    told: list[Told] = []
    for ends, ids in alike.items():
        given = [*ends, json.dumps(ids), json.dumps(list(waiters))]
        counted = [Told(*row) for row in fetch(COUNT_SQLITE, given)]
        if counted:
            fetch(TELL_SQLITE, [*ends, *given])
        told += counted
    return told


def write_outcomes_one_by_one(waiters: Collection[str], news: News) -> list[Told]:
    """Read the edges, and write those that have not heard the news yet."""
    stale: dict[str, list[int]] = defaultdict(list)
    told: Counter[tuple[str, str, str]] = Counter()
    for edge in edges_between(waiters, news.ids):
        if news.concerns(edge) and edge.outcome != (outcome := news.outcome(edge)):
            stale[outcome].append(edge.id)
            told[edge.waiter_id, edge.outcome, outcome] += 1
    for outcome, ids in stale.items():
        for some in chunked(sorted(ids)):
            rows(Edge).filter(id__in=some).update(outcome=outcome)
    return [Told(*what, number) for what, number in told.items()]


def edges_between(waiters: Collection[str], watched: Iterable[str]) -> list[EdgeRow]:
    """Return the edges from these waiters to these ids."""
    found = []
    for some in chunked(list(watched)):
        edges = rows(Edge).filter(watched_id__in=some).values_list(*EdgeRow._fields)
        found += [EdgeRow._make(edge) for edge in edges if edge[1] in waiters]
    return found
