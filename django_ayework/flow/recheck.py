"""Flushing a unit of work, and rechecking new waiters after the commit."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from django_ayework.flow.dependencies import cascade, decide_waiters
from django_ayework.flow.identity import insert_outputs
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.attempts import insert_attempts
from django_ayework.store.clock import clock
from django_ayework.store.database import briefly, chunked
from django_ayework.store.dependencies import News, lock_waiters
from django_ayework.store.resolution import (
    OpenEdge,
    clear_recheck,
    edges_by_id,
    ends_of_blockers,
    flag_for_recheck,
    open_edges,
    open_watchers,
    record_outcomes,
    settled_chains,
    settled_statuses,
    waiters_to_recheck,
)
from django_ayework.store.rows import statuses_of

# --- unresolved ---
# What a process remembers of rechecks that are not complete, to repeat no more of them than it must.

#: Edges that are remembered of a waiter, and waiters of which any are. What is forgotten is looked up anew.
MOST_EDGES = 1000
MOST_WAITERS = 10_000


class Unresolved:
    """Open edges by waiter: those whose works were locked when all its other edges were dealt with.

    A settlement that begins later finds the other edges by itself. Thus a gate over very many works, one of
    which is locked for long, is read once and not at every recheck. Ids of edges are never used twice: a
    waiter that is new under an old id is not taken for the old one.
    """

    def __init__(self) -> None:
        self._edges: dict[str, list[int]] = {}

    def edges_of(self, waiters: Sequence[str]) -> list[OpenEdge]:
        """Return the edges to look at, and forget what is remembered of these waiters."""
        remembered = [id for waiter in waiters for id in self._edges.pop(waiter, ())]
        known = edges_by_id(remembered)
        partly = {edge.waiter_id for edge, _ in known}
        edges = [edge for edge, outcome in known if not outcome and edge.waiter_id in waiters]
        return edges + open_edges([waiter for waiter in waiters if waiter not in partly])

    def remember(self, edges: Sequence[OpenEdge], waiters: Collection[str]) -> None:
        """Remember these edges of waiters all of whose others were dealt with."""
        found: dict[str, list[int]] = defaultdict(list)
        for edge in edges:
            if edge.waiter_id in waiters:
                found[edge.waiter_id].append(edge.id)
        if len(self._edges) + len(found) > MOST_WAITERS:
            self._edges.clear()
        self._edges.update((waiter, ids) for waiter, ids in found.items() if len(ids) <= MOST_EDGES)


class Rotation:
    """Pages of the waiters to recheck, each behind the last, so that locked waiters do not starve others."""

    def __init__(self) -> None:
        self._last = ""

    def next_page(self, limit: int) -> list[str]:
        """Return the next waiters to recheck."""
        page = waiters_to_recheck(limit, self._last)
        self._last = page[-1] if page else ""
        return page


# --- closing ---
# Closing the books of a transaction, and rechecking the new waiters after it where that is needed.
#
# A waiter can be inserted while another transaction settles what it watches, each unseen by the other.
# Locking
# the watched works in the caller's transaction would prevent that; a slow request would then stall the
# workers,
# and could be chosen as the victim of a deadlock. A recheck after the commit locks nothing for longer
# than a
# moment, and skips what others have locked: a worker rechecks that later. The waiter's ``recheck`` flag
# is
# durable, and stays until nothing was skipped.

#: Waiters in one transaction.
PAGE = 500
#: Seconds for which the waiters of a page that has failed are rechecked one by one.
LONGEST_ISOLATION = 2.0

unresolved = Unresolved()
rotation = Rotation()


def flush(unit_of_work: UnitOfWork) -> None:
    """Queue what was output, decide waiters, then write the groups; effects wait for the commit."""
    insert_outputs(unit_of_work)
    cascade(unit_of_work)
    unit_of_work.groups.close(unit_of_work.effects)
    insert_attempts(unit_of_work.attempts)
    if unit_of_work.rechecks:
        unit_of_work.effects.after.append(partial(recheck, unit_of_work.rechecks))
    if unit_of_work.unresolved:
        unit_of_work.effects.after.append(partial(recheck_watchers, sorted(unit_of_work.unresolved)))
    unit_of_work.effects.release_on_commit()


class Findings(NamedTuple):
    """What is known of open edges: how works and chains ended, and the edges to those that are locked."""

    news: News
    held: list[OpenEdge]


class Recheck(NamedTuple):
    """The waiters that a recheck has locked. ``stranded`` are those that had missed an end without a flag."""

    taken: set[str]
    stranded: list[str]


def recheck(waiters: Sequence[str]) -> None:
    """Record what had ended before the waiters' edges could be seen, and decide them.

    This runs in the thread that has queued them. So it waits for nobody's locks, but a moment for those of
    waiters and groups behind them: after that it leaves all that remains, with its flags, to a worker.
    """
    for page in chunked(waiters, PAGE):
        if recheck_page(page) is None:
            return


def recheck_watchers(ids: Sequence[str]) -> None:
    """Recheck those who watch these works and do not know how they ended.

    They had no flag, as nobody knew of these works before. Those that cannot be rechecked now are given one.
    """
    waiters = open_watchers(ids)
    for page in chunked(waiters, PAGE):
        done = recheck_page(page)
        left = set(page) - (done.taken if done else set())
        if left:
            briefly(partial(flag_for_recheck, sorted(left)))


def recheck_page(waiters: Sequence[str]) -> Recheck | None:
    """Recheck waiters in one transaction; None if that would have to wait for locks."""
    if not waiters:
        return Recheck(set(), [])
    found = look(unresolved.edges_of(waiters))
    done = briefly(partial(record, waiters, found))
    if done is not None:
        unresolved.remember(found.held, done.taken)
    return done


def look(edges: Iterable[OpenEdge]) -> Findings:
    """Find out how what these edges watch has ended."""
    edges = list(edges)
    works = settled_statuses({edge.watched_id for edge in edges if not edge.chain})
    chains = settled_chains({edge.watched_id for edge in edges if edge.chain})
    held = [edge for edge in edges if edge.watched_id in (chains if edge.chain else works).held]
    return Findings(News(works.ended, chains.ended), held)


def record(waiters: Sequence[str], found: Findings) -> Recheck:
    """Tell waiters what was found, and decide them, under their locks; those that are locked are passed over.

    All of them are locked by one statement, in id order, and no others that watch the same: settlements and
    rechecks of their own tell those. What had ended without success may have been retried since it was read;
    so it is read anew under the locks, for which a retry must wait from here on.
    """
    unit_of_work = UnitOfWork(clock.now())
    locked = lock_waiters(waiters, skip_locked=True)
    news = News(still_ended(found.news.works, statuses_of), still_ended(found.news.chains, ends_of_blockers))
    told = record_outcomes(locked, news)
    incomplete = {edge.waiter_id for edge in found.held}
    clear_recheck(id for id, waiter in locked.items() if waiter.recheck and id not in incomplete)
    decide_waiters(unit_of_work, told)
    flush(unit_of_work)
    stranded = [id for id, waiter in locked.items() if not waiter.recheck and told[id] != waiter]
    return Recheck(set(locked), stranded)


def still_ended(
    ended: Mapping[str, Status | None], read: Callable[[Iterable[str]], dict[str, Status]]
) -> dict[str, Status]:
    """Return what has ended, reading anew what had ended without success."""
    succeeded = {id: status for id, status in ended.items() if status is Status.SUCCESS}
    missed = read(id for id in ended if id not in succeeded)
    return {**succeeded, **{id: status for id, status in missed.items() if is_terminal(status)}}


def recheck_leftovers(limit: int = 100) -> int:
    """Recheck waiters that still have their flag, the next page of them; return how many that were."""
    waiters = rotation.next_page(limit)
    recheck_isolated(waiters)
    return len(waiters)


def recheck_isolated(waiters: Sequence[str]) -> list[Recheck]:
    """Recheck waiters together; if that fails, one by one, so that one of them keeps no other from it.

    One by one they come in any order, and until the time is up: those that were not reached are not always
    the same. An error that is not about locks is raised once the others were rechecked.
    """
    try:
        done = recheck_page(waiters)
    except Exception:
        if len(waiters) < 2:
            raise
        done = None
    if done is not None or len(waiters) < 2:
        return [done] if done else []
    return recheck_one_by_one(random.sample(waiters, len(waiters)))


def recheck_one_by_one(waiters: Collection[str]) -> list[Recheck]:
    """Recheck each of these waiters in a transaction of its own, while there is time."""
    until = time.monotonic() + LONGEST_ISOLATION
    rechecks: list[Recheck | None] = []
    errors: list[Exception] = []
    for waiter in waiters:
        if time.monotonic() < until:
            try:
                rechecks.append(recheck_page([waiter]))
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return [done for done in rechecks if done]
