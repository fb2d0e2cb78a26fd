"""Telling waiters how what they watch ended: under their locks their edges are written, and their counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from django_ayework.models import Waiter
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.arrays import array_text
from django_ayework.store.bulk import update_rows
from django_ayework.store.database import connection, fetch, is_postgresql
from django_ayework.store.edges import (
    EDGE,
    KNOWN,
    TELL,
    WATCHERS,
    News,
    Told,
    are_watched,
    facts_of,
    tell_edges,
    watchers_of,
)
from django_ayework.store.prepared import keeps_plans
from django_ayework.store.waiters import WAITER, WaiterRow, lock_waiters

#: Ends without success.
MISSED = [str(status) for status in Status if is_terminal(status) and status != Status.SUCCESS]


def tell_waiters(undecided: Collection[str], news: News) -> dict[str, WaiterRow]:
    """Lock these waiters, and whoever watches what there is news of; tell them, and recount.

    Return the rows of all that may be decided now. Every settlement asks, so there is a short way for most
    of them, which have nobody to decide besides.
    """
    if is_postgresql() and not undecided:
        told = told_at_once(news) if keeps_plans(connection()) else told_if_watched(news)
        if told is not None:
            return told
    return record_outcomes(lock_concerned(undecided, news), news)


def told_if_watched(news: News) -> dict[str, WaiterRow] | None:
    """Do as told_at_once(), in a session that would plan its statement each time.

    That takes ten times as long as to see that nobody watches, which is so for most works that settle alone.
    Whoever begins to watch after this look is looked at again, as after any other.
    """
    return told_at_once(news) if are_watched(news.ids) else {}


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


def told_at_once(news: News) -> dict[str, WaiterRow] | None:
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
