"""Closing the books of a transaction, and looking again after it where that is needed.

A waiter can be born while another transaction settles what it watches, each unseen by the other. Locking the
watched works in the caller's transaction would prevent that; a slow request would then stall the workers,
and could be chosen as the victim of a deadlock. Looking again after the commit locks nothing for longer than
a moment. The waiter's ``recheck`` flag is durable, so a crash in between only leaves the look to a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from django_ayework.flow.cascade import cascade
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.units import bear_outputs
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.attempts import insert_attempts
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.edges import News
from django_ayework.store.rows import statuses_of
from django_ayework.store.second_looks import (
    clear_recheck,
    ends_of_blockers,
    open_edges,
    settled_chains,
    settled_statuses,
    untold_watchers,
    waiters_to_recheck,
)
from django_ayework.store.waiters import lock_waiters


def close(ledger: Ledger) -> None:
    """Queue what was output, decide waiters, then write the groups; effects wait for the commit."""
    bear_outputs(ledger)
    cascade(ledger)
    ledger.groups.close(ledger.effects)
    insert_attempts(ledger.attempts)
    if ledger.rechecks:
        ledger.effects.after.append(partial(recheck, ledger.rechecks))
    if ledger.strays:
        ledger.effects.after.append(partial(recheck_watchers, sorted(ledger.strays)))
    ledger.effects.release_on_commit()


def recheck(waiters: Sequence[str]) -> None:
    """Record what had ended before the waiters' edges could be seen, and decide them."""
    if not waiters:
        return
    open = open_edges(waiters)
    works = settled_statuses([watch.id for watch in open if not watch.chain])
    chains = settled_chains([watch.id for watch in open if watch.chain])
    in_own_transaction(partial(record, waiters, News(works, chains)))


def recheck_watchers(ids: Sequence[str]) -> None:
    """Look again for those who watch these works and do not know how they ended."""
    recheck(untold_watchers(ids))


def record(waiters: Sequence[str], news: News) -> None:
    """Decide waiters with this news, under their locks.

    What had ended without success may have been retried since it was read; from here on a retry must wait for
    the waiters' locks.
    """
    ledger = Ledger(clock.now())
    clear_recheck(lock_waiters(waiters))
    ledger.outcomes.update(still_ended(news.works, statuses_of))
    ledger.chain_outcomes.update(still_ended(news.chains, ends_of_blockers))
    ledger.undecided.update(waiters)
    close(ledger)


def still_ended(
    ended: Mapping[str, Status | None], read: Callable[[Iterable[str]], dict[str, Status]]
) -> dict[str, Status]:
    """Return what has ended, reading anew what had ended without success."""
    succeeded = {id: status for id, status in ended.items() if status is Status.SUCCESS}
    missed = read(id for id in ended if id not in succeeded)
    return {**succeeded, **{id: status for id, status in missed.items() if is_terminal(status)}}


def recheck_leftovers(limit: int = 100) -> int:
    """Look at waiters whose maker did not get to it; return how many."""
    waiters = waiters_to_recheck(limit)
    recheck(waiters)
    return len(waiters)
