"""Rivals: threads that act at the same moment, round after round, each on its own connection."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connections

from django_ayework import enqueue_many
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.settle import Report, Settlement, Success, settle
from django_ayework.models import Work
from django_ayework.rules.durations import later
from django_ayework.rules.retry import die
from django_ayework.rules.states import Reason
from django_ayework.store import claims
from django_ayework.store.database import clock
from django_ayework.store.lanes import lanes_of
from django_ayework.store.rows import WorkRow

LEASE = 3600.0
Act = Callable[[int], object]


def race(rounds: int, *acts: Act) -> None:
    """Let each act run once per round, all of a round starting together; raise what any of them raised.

    In the end waiters are rechecked that were left to a worker, as what they watch was locked.
    """
    start = threading.Barrier(len(acts))
    errors: list[BaseException] = []

    def run(act: Act) -> None:
        try:
            for number in range(rounds):
                start.wait(60)
                act(number)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            errors.append(error)
            start.abort()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads), "the rivals wait for each other"
    if errors:
        raise errors[0]
    recheck_leftovers(rounds * len(acts))


def each(act: Callable[[Any], object], items: Sequence[Any]) -> Act:
    """Do this with one item in each round."""
    return lambda number: act(items[number])


def claim(limit: int, worker: str, now: datetime, until: datetime, queue: str = "default") -> list[WorkRow]:
    """Claim of all types of a queue."""
    caps = dict.fromkeys((lane.type for lane in lanes_of([queue])), limit)
    return claims.claim(queue, caps, limit, claims.Lease(worker, until, now))


def claim_all(worker: str = "w", lease: float = LEASE, queue: str = "default") -> dict[str, WorkRow]:
    """Claim every pending work of a queue, by id."""
    claimed: dict[str, WorkRow] = {}
    now = clock.now()
    while some := claim(200, worker, now, later(now, lease), queue):
        claimed.update((row.id, row) for row in some)
    return claimed


def succeed(*rows: WorkRow) -> Report:
    """Settle claimed works as successes."""
    return settle([Settlement(row, Success()) for row in rows])


def kill(*rows: WorkRow) -> Report:
    """Settle claimed works as dead."""
    return settle([Settlement(row, die(Reason.ABORTED, "broken")) for row in rows])


def succeeding(requests: Sequence[Any], claimed: Mapping[str, WorkRow]) -> Act:
    """Settle one of these works as a success in each round."""
    return each(lambda request: succeed(claimed[request.id]), requests)


def finish() -> None:
    """Let everything that can still run succeed."""
    while rows := claim_all():
        succeed(*rows.values())


def statuses(requests: Sequence[Any]) -> Counter[str]:
    """Count the statuses of these requests or handles."""
    return Counter(Work.objects.filter(id__in=ids(requests)).values_list("status", flat=True))


def released() -> Counter[int]:
    """Count the gates that have released so many works."""
    return Counter(Counter(Work.objects.exclude(parent_id=None).values_list("parent_id", flat=True)).values())


def ids(requests: Sequence[Any]) -> list[str]:
    """Return the ids of requests or handles."""
    return [request.id for request in requests]


def enqueue_all(pairs: Sequence[Sequence[Any]], gates: Sequence[Any]) -> dict[str, WorkRow]:
    """Queue the gates and what they watch; return the claimed rows."""
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    return claim_all()
