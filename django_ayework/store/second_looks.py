"""Looking again at waiters: at those that ask for it, and at those that were left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import Exists, OuterRef

from django_ayework.models import Edge, Waiter, Work
from django_ayework.rules.states import LIVE, Status, is_terminal
from django_ayework.store.chains import chain_ends, step_ids
from django_ayework.store.database import atomic, chunked, rows
from django_ayework.store.rows import statuses_of
from django_ayework.store.stand_ins import on_timeline
from django_ayework.store.waiters import Watch


def waiters_to_recheck(limit: int) -> list[str]:
    """Return waiters that somebody must look at again."""
    return list(rows(Waiter).filter(recheck=True).values_list("work_id", flat=True)[:limit])


def clear_recheck(waiters: Iterable[str]) -> None:
    """Note that these waiters were looked at."""
    rows(Waiter).filter(work_id__in=list(waiters)).update(recheck=False)


def open_edges(waiters: Iterable[str]) -> list[Watch]:
    """Return what these waiters watch whose end is not known."""
    edges = rows(Edge).filter(waiter_id__in=list(waiters), outcome="")
    return [Watch(*edge) for edge in edges.values_list("watched_id", "chain").distinct()]


def untold_watchers(ids: Sequence[str]) -> list[str]:
    """Return the waiters that have an open edge to any of these ids."""
    found: set[str] = set()
    for some in chunked(ids):
        edges = rows(Edge).filter(watched_id__in=some, outcome="")
        found.update(edges.values_list("waiter_id", flat=True))
    return sorted(found)


def settled_statuses(ids: Sequence[str]) -> dict[str, Status]:
    """Return how these works ended, those that have, after waiting for settlements in flight.

    Each lock is let go at once, and locks that would wait are taken one at a time: no deadlock. Once a row
    was lockable, any settlement that had missed a freshly committed edge has ended, and shows here.
    """
    found: dict[str, Status] = {}
    for some in chunked(ids):
        with atomic():
            free = rows(Work).select_for_update(skip_locked=True).filter(id__in=some)
            found.update((id, Status(status)) for id, status in free.values_list("id", "status"))
    for id in statuses_of(id for id in ids if id not in found):
        with atomic():
            row = rows(Work).select_for_update().filter(id=id).values_list("status", flat=True)
            found.update((id, Status(status)) for status in row)
    return {id: status for id, status in found.items() if is_terminal(status)}


def settled_chains(ids: Sequence[str]) -> dict[str, Status]:
    """Return how these chains ended, those that have, after waiting for settlements in flight.

    A step that is born while we wait is settled later, by somebody who sees the edge.
    """
    settled_statuses(step_ids(ids))
    return {id: status for id, status in ends_of_blockers(ids).items() if is_terminal(status)}


def ends_of_blockers(chain_ids: Iterable[str]) -> dict[str, Status]:
    """Return the status of the last work of each chain that somebody waits for.

    All of them were there when that began, so one that is gone was deleted: it counts as cancelled.
    """
    ids = list(chain_ids)
    return dict.fromkeys(ids, Status.CANCELLED) | chain_ends(ids)


def stranded(limit: int) -> list[str]:
    """Return blocked works that have an open edge to a work that has ended: in a correct run there is none.

    Waiters due for their second look are not stranded; that look finds them. The way leads from the blocked
    works to their edges, so that it costs what waits, and not what was ever watched.
    """
    waiting = on_timeline(rows(Work), Status.BLOCKED)
    blocked = list(waiting.order_by("id").values_list("id", flat=True))
    found: list[str] = []
    for some in chunked(blocked):
        found += stranded_among(some)
        if len(found) >= limit:
            break
    return found[:limit]


def stranded_among(waiters: Sequence[str]) -> list[str]:
    """Return those of these waiters that were left behind."""
    ended = rows(Work).filter(id=OuterRef("watched_id")).exclude(status__in=[str(s) for s in LIVE])
    untold = rows(Edge).filter(Exists(ended), waiter_id__in=waiters, outcome="")
    edges = list(untold.values_list("waiter_id", "watched_id", "chain"))
    ends = chain_ends(id for _, id, chain in edges if chain)
    suspects = {waiter for waiter, id, chain in edges if not chain or is_terminal(ends.get(id))}
    looked_at = rows(Waiter).filter(work_id__in=suspects, recheck=False)
    return sorted(looked_at.values_list("work_id", flat=True))
