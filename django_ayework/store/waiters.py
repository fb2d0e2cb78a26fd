"""Waiters and their edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from django_ayework.models import Edge, Waiter
from django_ayework.rules.conditions import Tally
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.arrays import array_text
from django_ayework.store.bulk import insert_many, update_rows
from django_ayework.store.copying import can_copy, copy_rows
from django_ayework.store.database import chunked, fetch, is_postgresql, rows
from django_ayework.store.edges import TELL, WATCHERS, News, Told, facts_of, tell_edges, watchers_of

WAITER = Waiter._meta.db_table
#: Ends without success.
MISSED = [str(status) for status in Status if is_terminal(status) and status != Status.SUCCESS]
#: What is known of an edge at its birth, and from how many of them on COPY is quicker.
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
    copies = len(edges) >= WORTH_COPYING and is_postgresql() and can_copy()
    (copy_rows if copies else insert_many)(Edge, EDGE_COLUMNS, edges)


def lock_waiters(ids: Iterable[str]) -> dict[str, WaiterRow]:
    """Lock waiters in id order, so that two settlements that meet at several cannot wait for each other."""
    locked: dict[str, WaiterRow] = {}
    for some in chunked(sorted(ids)):
        chosen = rows(Waiter).select_for_update().filter(work_id__in=some).order_by("work_id")
        locked.update((row[0], WaiterRow._make(row)) for row in chosen.values_list(*WaiterRow._fields))
    return locked


#: The inner query is run once, before any row is locked; rows are locked in the order in which they come.
LOCK_CONCERNED = f"""
SELECT {", ".join(WaiterRow._fields)} FROM {WAITER}
WHERE work_id = ANY(%s::text[] || ARRAY({WATCHERS}))
ORDER BY work_id
FOR UPDATE
"""


def lock_concerned(waiters: Collection[str], news: News) -> dict[str, WaiterRow]:
    """Lock these waiters, and whoever watches what there is news of, as lock_waiters() does.

    Every settlement asks.
    """
    ids = list(news.ids)
    if not is_postgresql():
        return lock_waiters({*waiters, *watchers_of(ids)})
    found = fetch(LOCK_CONCERNED, [array_text(list(waiters)), array_text(ids)], often=True)
    return {row[0]: WaiterRow._make(row) for row in found}


#: Under the waiters' locks, so nobody else counts.
RECORD = f"""
{TELL}, counted AS (
    SELECT waiter_id,
        sum((after = 'success')::int - (before = 'success')::int) AS succeeded,
        sum((after = ANY(ends.missed))::int - (before = ANY(ends.missed))::int) AS missed
    FROM told, (SELECT %s::text[] AS missed) AS ends
    GROUP BY waiter_id
)
UPDATE {WAITER} AS waiter
SET succeeded = waiter.succeeded + counted.succeeded, missed = waiter.missed + counted.missed
FROM counted
WHERE waiter.work_id = counted.waiter_id
RETURNING {", ".join(f"waiter.{name}" for name in WaiterRow._fields)}
"""


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


def record_one_by_one(waiters: Mapping[str, WaiterRow], news: News) -> dict[str, WaiterRow]:
    """Tell the edges, then write the counts."""
    recounted: dict[str, WaiterRow] = {}
    for told in tell_edges(waiters, news):
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
