"""Edges: from a waiter to what it watches. They are told how that ended, under the waiter's lock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django_ayework.models import Edge
from django_ayework.rules.states import Status
from django_ayework.store.arrays import array_text
from django_ayework.store.database import CHUNK, SET, chunked, fetch, is_postgresql, rows

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


#: Tells edges, as ``told``. OFFSET 0 keeps the inner query whole, so that it reads the index once per id: of
#: a gate that was born a moment ago the planner has no statistics, takes its ids for common ones, and would
#: read every edge.
TELL = f"""
WITH news AS (
    SELECT * FROM unnest(%s::text[], %s::boolean[], %s::text[]) AS news(watched_id, chain, outcome)
), told AS (
    UPDATE {EDGE} AS edge
    SET outcome = stale.after
    FROM (
        SELECT known.id, known.outcome AS before, news.outcome AS after
        FROM news CROSS JOIN LATERAL (
            SELECT id, waiter_id, chain, outcome FROM {EDGE} WHERE watched_id = news.watched_id OFFSET 0
        ) AS known
        WHERE known.chain = news.chain AND known.waiter_id = ANY(%s::text[])
            AND known.outcome <> news.outcome
    ) AS stale
    WHERE edge.id = stale.id
    RETURNING edge.waiter_id, stale.before, stale.after
)
"""


#: As in TELL, OFFSET 0 keeps the planner from reading every edge.
WATCHERS = f"""
SELECT DISTINCT known.waiter_id
FROM unnest(%s::text[]) AS ended(id)
CROSS JOIN LATERAL (SELECT waiter_id FROM {EDGE} WHERE watched_id = ended.id OFFSET 0) AS known
"""


WATCHERS_BY_ID = f"SELECT DISTINCT waiter_id FROM {EDGE} WHERE watched_id IN ({{}})"


def watchers_of(ids: Iterable[str]) -> set[str]:
    """Return the works that watch any of these ids. Every settlement asks."""
    found: set[str] = set()
    for some in chunked(list(ids), SET if is_postgresql() else CHUNK):
        if is_postgresql():
            watchers = fetch(WATCHERS, [array_text(some)], often=True)
        else:
            watchers = fetch(WATCHERS_BY_ID.format(", ".join(["%s"] * len(some))), some)
        found.update(row[0] for row in watchers)
    return found


def facts_of(news: News) -> list[str]:
    """Return news as the columns that TELL wants."""
    facts = [(id, False, str(end or "")) for id, end in news.works.items()]
    facts += [(id, True, str(end or "")) for id, end in news.chains.items()]
    return [array_text(column) for column in (zip(*facts, strict=True) if facts else ((), (), ()))]


def tell_edges(waiters: Collection[str], news: News) -> list[Told]:
    """Write how what is watched ended on the edges of these waiters, which the caller has locked.

    The edges are read here, after the locks, so that no rival's outcome is missed or counted twice.
    """
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
