"""The figures of the overview: what waits, runs and ended, by queue and type, and who works."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

#: Counts go up to this number.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures that queues and types share.

    ``waiting`` is for how many seconds the oldest due work has been due. ``capped`` names the counts that
    stand for so many or more. ``rate`` is how many works ended per minute during the last minutes. ``failed``
    and ``died`` are the attempts of the last hour that will be repeated, and that were the last.
    """

    pending: int = 0
    running: int = 0
    scheduled: int = 0
    blocked: int = 0
    capped: tuple[str, ...] = ()
    waiting: float = 0.0
    rate: float = 0.0
    failed: int = 0
    died: int = 0
    paused: bool = False

    def bounded(self, name: str) -> str:
        """Return the count of this name, with a plus where there may be more."""
        return bounded(getattr(self, name), name in self.capped)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures(Figures):
    """One queue. ``lapsed`` are the running works whose lease has lapsed.

    ``served`` tells whether a live worker serves the queue.
    """

    queue: str
    lapsed: int = 0
    served: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFigures(Figures):
    """One type.

    ``share`` is its part of all pending works, from 0 to 1. ``arriving`` is how many of its works were queued
    per minute during the last minutes. ``p50`` and ``p95`` are how many seconds the last successes ran, None
    without any. ``max_running`` is the limit in force, 0 for none. ``ended`` and ``failures`` are the
    attempts of each minute of the last hour, the present one last.
    """

    type: str
    queues: tuple[str, ...] = ()
    share: float = 0.0
    arriving: float = 0.0
    p50: float | None = None
    p95: float | None = None
    max_running: int = 0
    weight: int = 0
    priority: int = 0
    ended: tuple[int, ...] = ()
    failures: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFigures:
    """The parked works of a type that no worker knows, for how many seconds, and the advice on its name."""

    type: str
    works: int
    seconds: float
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
    """One worker process; ``silent`` is seconds since its last heartbeat, too many if it is ``stale``."""

    id: str
    name: str
    host: str
    pid: int
    queues: str
    concurrency: int
    running: int
    started_at: datetime
    seen_at: datetime
    silent: float
    stale: bool
    trouble: str = ""  # threads that are stuck, in words
    quiet: bool = False  # it was told to claim nothing
    version: str = ""  # of the project


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFigures:
    """One schedule: when a scheduler looks at it next, and its failures in a row."""

    name: str
    runs: str
    due_at: datetime | None
    failures: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Period:
    """The attempts that ended in one span of time."""

    start: datetime
    succeeded: int = 0
    failed: int = 0
    died: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that is known of the fleet at one moment.

    ``died_lately`` counts, by type, the works that died during the last ``lately`` seconds, ``died_before``
    those of the rest of the hour. ``died_capped`` tells whether there may be more than were counted. ``dead``
    and ``dead_capped`` are the same for all dead works that are kept.
    """

    at: datetime
    workers: Sequence[WorkerFigures] = ()
    queues: Sequence[QueueFigures] = ()
    types: Sequence[TypeFigures] = ()
    parked: Sequence[ParkedFigures] = ()
    failing: Sequence[ScheduleFigures] = ()
    died_lately: dict[str, int] = field(default_factory=dict)
    died_before: int = 0
    died_capped: bool = False
    lately: float = 600.0
    dead: int = 0
    dead_capped: bool = False

    @property
    def live(self) -> list[WorkerFigures]:
        """The workers that are alive."""
        return [worker for worker in self.workers if not worker.stale]

    @property
    def pending(self) -> int:
        """How many works wait for a worker, as far as they were counted."""
        return sum(queue.pending for queue in self.queues)


def bounded(number: int, is_capped: bool) -> str:
    """Return a count, with a plus where there may be more.

    >>> bounded(10_000, True), bounded(12, False)
    ('10,000+', '12')
    """
    return f"{number:,}+" if is_capped else f"{number:,}"


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that this share of some ordered values does not exceed; None of none.

    >>> percentile([1.0, 2.0, 3.0, 10.0], 0.5), percentile([1.0, 2.0, 3.0, 10.0], 0.95), percentile([], 0.5)
    (2.0, 10.0, None)
    """
    if not ordered:
        return None
    return ordered[math.ceil(len(ordered) * share - 1e-9) - 1]
