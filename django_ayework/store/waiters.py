"""Waiters and their edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django_ayework.models import Edge, Waiter
from django_ayework.rules.conditions import Tally
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.bulk import insert_many, update_rows
from django_ayework.store.database import chunked, rows
from django_ayework.store.edges import News, Told, tell_edges


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
    insert_many(Edge, ("waiter_id", "watched_id", "chain", "position", "outcome"), edges)


def lock_waiters(ids: Iterable[str]) -> dict[str, WaiterRow]:
    """Lock waiters in id order, so that two settlements that meet at several cannot wait for each other."""
    locked: dict[str, WaiterRow] = {}
    for some in chunked(sorted(ids)):
        chosen = rows(Waiter).select_for_update().filter(work_id__in=some).order_by("work_id")
        locked.update((row[0], WaiterRow._make(row)) for row in chosen.values_list(*WaiterRow._fields))
    return locked


def record_outcomes(waiters: Mapping[str, WaiterRow], news: News) -> dict[str, WaiterRow]:
    """Write how what is watched ended, and recount; return the locked waiters' rows."""
    recounted: dict[str, WaiterRow] = {}
    for told in tell_edges(waiters, news):
        waiter = recounted.get(told.waiter_id, waiters[told.waiter_id])
        recounted[told.waiter_id] = recount(waiter, told)
    write_tallies(recounted.values())
    return {**waiters, **recounted}


def recount(waiter: WaiterRow, told: Told) -> WaiterRow:
    """Return the waiter with its counts moved by edges that were told."""
    succeeded = (told.after == Status.SUCCESS) - (told.before == Status.SUCCESS)
    missed = is_missed(told.after) - is_missed(told.before)
    return waiter._replace(
        succeeded=waiter.succeeded + succeeded * told.number, missed=waiter.missed + missed * told.number
    )


def is_missed(outcome: str) -> bool:
    """Tell whether this outcome is an end without success."""
    return is_terminal(outcome) and outcome != Status.SUCCESS


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
