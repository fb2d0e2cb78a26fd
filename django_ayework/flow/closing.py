"""Closing the books of a transaction, and looking again after it where that is needed.

A waiter can be born while another transaction settles what it watches, each unseen by the other. Locking the
watched works in the caller's transaction would prevent that; a slow request would then stall the workers,
and could be chosen as the victim of a deadlock. Looking again after the commit locks nothing for longer than
a moment. The waiter's ``recheck`` flag is durable, so a crash in between only leaves the look to a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from django_ayework.flow.cascade import cascade
from django_ayework.flow.ledger import Ledger
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.attempts import insert_attempts
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import statuses_of
from django_ayework.store.waiters import (
    clear_recheck,
    lock_waiters,
    open_edges,
    settled_statuses,
    untold_watchers,
    waiters_to_recheck,
)


def close(ledger: Ledger) -> None:
    """Decide waiters, then write the groups; effects wait for the commit."""
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
    if waiters:
        ended = settled_statuses(open_edges(waiters))
        in_own_transaction(partial(record, waiters, ended))


def recheck_watchers(ids: Sequence[str]) -> None:
    """Look again for those who watch these works and do not know how they ended."""
    recheck(untold_watchers(ids))


def record(waiters: Sequence[str], ended: Mapping[str, Status]) -> None:
    """Decide waiters with this news, under their locks.

    What had ended without success may have been retried since it was read; from here on a retry must wait for
    the waiters' locks.
    """
    ledger = Ledger(clock.now())
    clear_recheck(lock_waiters(waiters))
    missed = {id for id, status in ended.items() if status is not Status.SUCCESS}
    present = {**ended, **statuses_of(missed)}
    ledger.outcomes.update({id: status for id, status in present.items() if is_terminal(status)})
    ledger.undecided.update(waiters)
    close(ledger)


def recheck_leftovers(limit: int = 100) -> int:
    """Look at waiters whose maker did not get to it; return how many."""
    waiters = waiters_to_recheck(limit)
    recheck(waiters)
    return len(waiters)
