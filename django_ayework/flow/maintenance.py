"""Maintenance of the fleet: reclaim lapsed leases, expire and sweep blocked works, prune ended ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from django_ayework.conf import get_settings
from django_ayework.define.types import registry
from django_ayework.documentation import logged
from django_ayework.flow import bulk_actions
from django_ayework.flow.gates import dying, flush, make_moves, recheck_page
from django_ayework.flow.hooks import fields_about
from django_ayework.flow.isolation import isolated
from django_ayework.flow.outcomes import log_failure, retry_input_of
from django_ayework.flow.settle import Settlement, settle_here
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.logs import logger
from django_ayework.rules.controls import EVERYTHING, Scope
from django_ayework.rules.retry import AttemptDecision, decide_lost
from django_ayework.rules.states import Reason
from django_ayework.store import deletion, entries, processes, throughput
from django_ayework.store.database import briefly, clock
from django_ayework.store.dependencies import BlockedCursor, blocked_page, stranded_among
from django_ayework.store.leases import begun_among, lapsed_ids, lock_lapsed
from django_ayework.store.rows import WorkRow, lock_overdue, overdue_ids
from django_ayework.store.schedules import delete_firings

BATCH = 100
PRUNE_BATCH = 1000
#: How long after the begin of a walk the next one begins, which looks again at the works that were needed.
PRUNING_RESTARTS = timedelta(hours=1)
UNSEEN_WORKERS_KEPT = timedelta(hours=24)
FIRINGS_KEPT = timedelta(days=30)


def reclaim(
    sparing: Collection[str] = (),
    is_lost: Callable[[WorkRow], bool] = lambda row: True,
    scope: Scope = EVERYTHING,
) -> list[Settlement]:
    """Reclaim works whose lease has lapsed: pending again, or dead as "worker lost"; return what was settled.

    Works outside of ``scope`` are left to workers that serve them. So are works of types that are not
    registered here, for as long as ``UNKNOWN_TYPE_GRACE``. Works in ``sparing`` run in this process and are
    left out. For each other work ``is_lost`` is asked while its row is locked.

    The works are logged after the commit: a slow log keeps no work locked.
    """
    now = clock.now()
    any_type_before = now - timedelta(seconds=get_settings().unknown_type_grace)
    lapsed = lapsed_ids(now, BATCH, sparing, registry.names(), any_type_before, scope)
    pages = isolated(lambda ids: briefly(partial(reclaim_page, ids, is_lost)), lapsed, "reclaimed")
    reclaimed = [settlement for page in pages for settlement in page]
    for settlement in reclaimed:
        row, decision = settlement.row, settlement.ending
        about = fields_about(row)
        logger.warning(
            "Reclaimed work %s (%s): its worker %s was lost. %s",
            row.id,
            row.type,
            row.worker,
            logged("worker-lost"),
            extra=about,
        )
        if isinstance(decision, AttemptDecision) and not decision.will_retry:
            log_failure(settlement, decision)
    return reclaimed


def reclaim_page(ids: Sequence[str], is_lost: Callable[[WorkRow], bool]) -> list[Settlement]:
    """Settle for their lost workers those of these works that are lapsed now, and not being settled."""
    now = clock.now()
    lapsed = [(row, retry_input_of(row, now)) for row in lock_lapsed(ids, now) if is_lost(row)]
    begun = begun_among([row.id for row, retry_input in lapsed if retry_input.is_last])
    lost = [Settlement(row, decide_lost(about, has_begun=row.id in begun)) for row, about in lapsed]
    settle_here(lost)
    return lost


def expire_blocked() -> int:
    """End blocked works that are past their deadline and not locked; return how many."""
    overdue = overdue_ids(clock.now(), BATCH)
    return sum(isolated(lambda ids: briefly(partial(expire_page, ids)), overdue, "expired"))


def expire_page(ids: Sequence[str]) -> int:
    """End those of these works that are overdue now."""
    unit_of_work = UnitOfWork(clock.now())
    error = "deadline exceeded: its condition was not met in time"
    overdue = lock_overdue(ids, unit_of_work.now)
    moves = [dying(row, unit_of_work.now, Reason.EXPIRED, error) for row in overdue]
    moved = make_moves(unit_of_work, moves)
    flush(unit_of_work)
    return len(moved)


class Sweep(NamedTuple):
    """One page of the sweep: the number of stranded waiters, and where the next page begins."""

    found: int
    next: BlockedCursor | None


def sweep_page(after: BlockedCursor | None = None) -> Sweep:
    """Sweep one page of the blocked works, the first page unless ``after`` is given.

    A stranded waiter has an open edge to a work that has ended, and no recheck flag; a correct run has none.
    The recheck that decides the waiter finds out under its lock whether it is stranded.
    """
    page = blocked_page(after)
    rechecks = isolated(recheck_page, stranded_among(page.ids), "rechecked")
    stranded = sorted(id for done in rechecks for id in done.stranded)
    if stranded:
        logger.error(
            "The sweep found %d stranded waiters, which is a bug: %s %s",
            len(stranded),
            ", ".join(stranded[:10]),
            logged("stranded-waiters"),
        )
    return Sweep(len(stranded), page.next)


class Pruned(NamedTuple):
    """One page of pruning: how many works were looked at, and how many of them were deleted."""

    seen: int
    deleted: int


class Pruning:
    """A walk over the works whose retention, by type or setting, is over, the longest ended of a type first.

    Each page begins where the last one stopped, so works that others still need are looked at once in a walk.
    They are looked at again in the next one, an hour later, like works that could not be deleted. Works that
    end meanwhile lie ahead of the walk.
    """

    def __init__(self) -> None:
        self._reached: dict[tuple[str, str], deletion.Ended] = {}
        self._begun_at: datetime | None = None

    def page(self, limit: int = PRUNE_BATCH) -> Pruned:
        """Delete what is not needed among the next ``limit`` works of each status."""
        now = clock.now()
        if self._begun_at is None or now - self._begun_at > PRUNING_RESTARTS:
            self._reached, self._begun_at = {}, now
        pages = [self._page(status, kept, now, limit) for status, kept in get_settings().retention.items()]
        return Pruned(sum(page.seen for page in pages), sum(page.deleted for page in pages))

    def pages(self, limit: int) -> Iterator[Pruned]:
        """Yield the pages of the whole walk."""
        while (page := self.page(limit)).seen:
            yield page

    def _page(self, status: str, usual: float | None, now: datetime, limit: int) -> Pruned:
        seen = deleted = 0
        for type, before in overdue_of_status(status, usual, now):
            after = self._reached.get((status, type))
            works = deletion.page_of_ended(status, type, before, after, limit - seen)
            if works:
                # The cursor moves first, so that an error or a lock does not stop the walk at these works.
                self._reached[status, type] = works[-1]
                seen += len(works)
                deleted += sum(isolated(partial(delete_page, status), [work.id for work in works], "deleted"))
            if seen >= limit:
                break
        return Pruned(seen, deleted)


def delete_page(status: str, ids: Sequence[str]) -> int | None:
    """Delete the unneeded ones of these works; return how many, None if that would have to wait for locks."""
    return briefly(partial(deletion.delete_unneeded, status, ids))


def prune(limit: int = PRUNE_BATCH) -> int:
    """Delete all works whose retention is over and that nothing needs, in pages; return how many.

    The works that one walk deletes may have been those that needed others, so another walk follows.
    """
    deleted = 0
    while batch := sum(page.deleted for page in Pruning().pages(limit)):
        deleted += batch
    return deleted


def prune_others(limit: int = PRUNE_BATCH) -> int:
    """Delete a batch of each other kind of row whose time is over; return how many, of the kind with most.

    These are expired store entries, workers unseen for a day, firings and bulk actions older than a month,
    and old figures.
    """
    now = clock.now()
    processes.delete_unseen_processes(now - UNSEEN_WORKERS_KEPT)
    throughput.prune(now)
    return max(
        entries.delete_expired(now, limit),
        delete_firings(now - FIRINGS_KEPT, limit),
        bulk_actions.prune(now, limit),
    )


def overdue_of_status(status: str, usual: float | None, now: datetime) -> Iterator[tuple[str, datetime]]:
    """Yield each type with works of a status whose retention is over, and since when works stay."""
    own = {known.name: known.settings.retention or {} for known in registry}
    for type, oldest in deletion.types_ended(status):
        before = kept_since(now, own.get(type, {}).get(status, usual))
        if before is not None and oldest < before:
            yield type, before


def overdue_types(now: datetime) -> Iterator[tuple[str, str, datetime]]:
    """Yield the status, type and limit of what is overdue, for every status."""
    for status, usual in get_settings().retention.items():
        for overdue in overdue_of_status(status, usual, now):
            yield status, *overdue


def ends_of_unneeded(status: str, type: str, before: datetime, most: int) -> list[datetime]:
    """Return when works ended that pruning should have deleted: the first of them, about ``most``."""
    ends: list[datetime] = []
    after: deletion.Ended | None = None
    for _ in range(10):
        page = deletion.page_of_ended(status, type, before, after, most)
        unneeded = set(deletion.unneeded([work.id for work in page]))
        ends += [work.ended_at for work in page if work.id in unneeded]
        if len(page) < most or len(ends) >= most:
            break
        after = page[-1]
    return ends


def kept_since(now: datetime, kept: float | None) -> datetime | None:
    """Return the moment before which works ended that are to be deleted; None if all are kept."""
    try:
        return None if kept is None else now - timedelta(seconds=kept)
    except OverflowError:
        return None
