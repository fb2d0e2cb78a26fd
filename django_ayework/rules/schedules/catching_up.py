"""What becomes of occurrences whose time has come, and of those that nobody was there for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal, TypeAlias

from django_ayework.rules.schedules.timing import Timing

CatchUp: TypeAlias = Literal["none", "last", "all"]
Overlap: TypeAlias = Literal["allow", "skip", "queue"]

#: With "all", so many are made up for; with overlap="queue", so many wait. No count of missed ones is larger.
BOUND = 1000
#: An occurrence that is no later than this is on time: what a tick takes, and the wait for it.
PUNCTUAL = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: the occurrence to fire, if any, and how many were missed from ``missed_from`` on.

    ``last`` is the last occurrence that is dealt with; the next one is the first after it.
    """

    last: datetime
    fire: datetime | None = None
    missed_from: datetime | None = None
    missed: int = 0


def plan(timing: Timing | None, first: datetime, now: datetime, catch_up: CatchUp, slack: timedelta) -> Plan:
    """Decide about the occurrences from ``first`` until ``now``.

    Without a timing ``first`` is the only one. ``slack`` is how much later than planned one may be fired and
    still be on time.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> late = noon + timedelta(minutes=3)
    >>> decided = plan(Timing(cron="* * * * *"), noon, late, "last", PUNCTUAL)
    >>> decided.fire == late, decided.missed
    (True, 3)
    """
    due = [first] if timing is None else timing.latest(first, now, BOUND if catch_up == "all" else 1)
    if not due:  # it has been changed meanwhile
        return Plan(last=first, missed_from=first, missed=1)
    fire = due[0]
    if catch_up == "none" and now - fire > slack:
        return Plan(last=fire, missed_from=first, missed=counted(timing, first, fire) + 1)
    missed = counted(timing, first, fire)
    return Plan(last=fire, fire=fire, missed_from=first if missed else None, missed=missed)


def counted(timing: Timing | None, first: datetime, before: datetime) -> int:
    """Return how many occurrences there are from ``first`` on, before another; no more than BOUND."""
    if timing is None or first >= before:
        return 0
    later = timing.between(first, before)
    return 1 + sum(1 for found in islice(later, BOUND - 1) if found < before)


def backoff(failures: int) -> float:
    """Return the seconds until the next try, after so many failures in a row.

    >>> [backoff(failures) for failures in (1, 2, 3, 20)]
    [5.0, 10.0, 20.0, 300.0]
    """
    return float(min(5 * 2 ** min(failures - 1, 10), 300))


#: So often an occurrence is tried; then it has failed, and the next one has its turn.
TRIES = 10
