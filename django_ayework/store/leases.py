"""Leases: a worker that stays silent for too long loses its works."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import F, Q, QuerySet

from django_ayework.models import Work
from django_ayework.rules.controls import EVERYTHING, Scope
from django_ayework.rules.durations import later
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, chunked, clock, rows
from django_ayework.store.rows import WorkRow, free_ids, rows_of


class Holder(NamedTuple):
    """The worker that holds a work, and the work's status."""

    status: str
    delivery: int
    worker: str | None


def renew(deliveries: Mapping[str, int], worker: str, lease: float) -> set[str]:
    """Let the leases this worker holds at these deliveries last so many seconds more; return the ids renewed.

    Rows locked by a settlement are skipped: that one is about to end the lease anyway. The seconds count from
    the locks, as SQLite may have made this wait for its one lock for longer than the lease.
    """
    renewed: set[str] = set()
    for some in chunked(sorted(deliveries)):
        with atomic():
            ids = lock_held({id: deliveries[id] for id in some}, worker, skip_locked=True)
            rows(Work).filter(id__in=ids).update(leased_until=later(clock.now(), lease))
        renewed.update(ids)
    return renewed


def lock_held(deliveries: Mapping[str, int], worker: str | None, skip_locked: bool) -> list[str]:
    """Lock the works that this worker holds at these deliveries, in id order; return their ids.

    ``skip_locked`` passes over rows that other transactions have locked, instead of waiting for them.
    """
    running = rows(Work).filter(id__in=deliveries, worker=worker, status=Status.RUNNING).order_by("id")
    held = running.select_for_update(skip_locked=skip_locked).values_list("id", "delivery")
    return [id for id, delivery in held if deliveries[id] == delivery]


def holders_of(ids: Iterable[str]) -> dict[str, Holder]:
    """Return who holds each work that exists."""
    found = rows(Work).filter(id__in=list(ids)).values_list("id", *Holder._fields)
    return {row[0]: Holder._make(row[1:]) for row in found}


def lapsed_ids(
    now: datetime,
    limit: int,
    sparing: Collection[str],
    types: Collection[str],
    any_type_before: datetime,
    scope: Scope = EVERYTHING,
) -> list[str]:
    """Return running works of this scope and these types whose lease has lapsed, the longest first.

    Works that other transactions have locked, and those in ``sparing``, are skipped. They do not count for
    ``limit``, so they do not hold up the works behind them. A work whose lease lapsed before
    ``any_type_before`` is among them even if its type is not in ``types``.
    """
    lapsed = with_lapsed_leases(now).order_by("leased_until")
    lapsed = lapsed.filter(Q(type__in=types) | Q(leased_until__lt=any_type_before), within(scope))
    if sparing:
        lapsed = lapsed.exclude(id__in=sparing)
    return free_ids(lapsed, limit)


def lock_lapsed(ids: Sequence[str], now: datetime) -> list[WorkRow]:
    """Lock those of these works whose lease has lapsed, and that nobody else has locked."""
    lapsed = with_lapsed_leases(now).filter(id__in=ids).order_by("id")
    return rows_of(lapsed.select_for_update(skip_locked=True))


def begun_among(ids: Collection[str]) -> set[str]:
    """Return those of these works whose delivery was noted as begun, see ``transitions.begin()``."""
    begun = rows(Work).filter(id__in=ids, begun_delivery=F("delivery"))
    return set(begun.values_list("id", flat=True)) if ids else set()


def with_lapsed_leases(now: datetime) -> QuerySet[Work]:
    """Return running works whose lease has lapsed."""
    return rows(Work).filter(status=Status.RUNNING, leased_until__lt=now)


def within(scope: Scope) -> Q:
    """Return the condition that a work is of this scope."""
    condition = Q()
    if scope.queues:
        condition &= Q(queue__in=scope.queues)
    if scope.types:
        condition &= Q(type__in=scope.types)
    if scope.exclude_types:
        condition &= ~Q(type__in=scope.exclude_types)
    return condition
