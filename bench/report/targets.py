"""What is aimed at, and whether it is met."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import truediv

from bench.report.readings import Reading, best

OURS = "ours"


@dataclass(frozen=True)
class Side:
    """A reading to look for; of several settings the best one counts unless one is named."""

    phase: str
    figure: str
    database: str
    contestant: str = OURS
    setting: str | None = None

    def among(self, readings: Iterable[Reading]) -> Reading | None:
        """Return the reading, or None when it was not measured."""
        return best(reading for reading in readings if self.is_of(reading))

    def is_of(self, reading: Reading) -> bool:
        """Tell whether this is the reading, or one of its settings."""
        return (
            (reading.phase, reading.figure, reading.database, reading.contestant)
            == (self.phase, self.figure, self.database, self.contestant)
        ) and self.setting in (None, reading.setting)


@dataclass(frozen=True)
class Target:
    """Ours, alone or as a multiple of a rival, against a bound."""

    ours: Side
    bound: float
    at_least: bool
    rival: Side | None = None
    is_difference: bool = False  # of what ours has beyond the rival, rather than of a multiple
    is_paired: bool = False  # each round against the same one of the rival, of which the median counts

    @property
    def text(self) -> str:
        """The bound as the table says it."""
        unit = " beyond" if self.is_difference else " ×" if self.rival else ""
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{unit}"

    def judge(self, readings: Iterable[Reading]) -> Judgement:
        """Return what was reached. It is open when one side was not measured."""
        known = list(readings)
        ours = self.ours.among(known)
        rival = self.rival.among(known) if self.rival else None
        if ours is None or (self.rival and rival is None):
            return Judgement(self, None, ours, rival)
        return Judgement(self, self.reached(ours, rival), ours, rival)

    def reached(self, ours: Reading, rival: Reading | None) -> float:
        """Return what is held against the bound."""
        if rival is None:
            return ours.median
        if self.is_paired:
            return statistics.median(map(truediv, ours.rounds, rival.rounds))
        return ours.median - rival.median if self.is_difference else ours.median / rival.median


@dataclass(frozen=True)
class Judgement:
    """A target, and what was reached: a multiple, a figure, or None when it was not measured."""

    target: Target
    reached: float | None
    ours: Reading | None = None
    rival: Reading | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None when it was not measured."""
        if self.reached is None:
            return None
        return (
            self.reached >= self.target.bound if self.target.at_least else self.reached <= self.target.bound
        )

    @property
    def verdict(self) -> str:
        """The judgement as the table says it."""
        return {None: "not measured", True: "met", False: "not met"}[self.is_met]

    @property
    def row(self) -> Reading | None:
        """The reading beside which the table says it: the rival's, or ours when there is no other rival."""
        if self.target.rival and self.target.rival.contestant != OURS:
            return self.rival
        return self.ours


def rate(phase: str, database: str, contestant: str = OURS, setting: str | None = None) -> Side:
    """Return the side of a rate."""
    return Side(phase, "jobs/s", database, contestant, setting)


def at_least(bound: float, ours: Side, rival: Side | None = None) -> Target:
    """Return a target that more than meets."""
    return Target(ours, bound, True, rival)


def at_most(bound: float, ours: Side, rival: Side | None = None) -> Target:
    """Return a target that less than meets."""
    return Target(ours, bound, False, rival)


BATCHES = "100 at a time"

#: Drains in the best setting of each, results kept.
DRAINS = [
    at_least(0.45, rate("drain", "postgres"), rate("drain", "postgres", "raw loop", BATCHES)),
    at_least(1, rate("drain", "postgres"), rate("drain", "postgres", "pgqueuer")),
    *(
        at_least(15, rate("drain", "postgres"), rate("drain", "postgres", name))
        for name in ("django-ox", "procrastinate", "django-tasks-db")
    ),
    *(
        at_least(8, rate("drain", "postgres"), rate("drain", "redis", name))
        for name in ("celery", "dramatiq")
    ),
    at_least(0.15, rate("drain", "sqlite"), rate("drain", "sqlite", "raw loop", BATCHES)),
    at_least(15, rate("drain", "sqlite"), rate("drain", "sqlite", "django-tasks-db")),
    at_least(3, rate("drain", "sqlite"), rate("drain", "sqlite", "huey")),
    at_least(1.3, rate("drain-two", "postgres", setting=""), rate("drain", "postgres", setting="")),
    at_least(0.8, rate("atomic", "postgres"), rate("atomic", "postgres", "raw loop")),
]
ENQUEUES = [
    at_least(0.7, rate("enqueue-one", "postgres"), rate("enqueue-one", "postgres", "raw loop")),
    at_least(0.2, rate("enqueue-many", "postgres"), rate("enqueue-many", "postgres", "raw loop", "COPY")),
    at_least(1, rate("enqueue-many", "postgres"), rate("enqueue-many", "postgres", "pgqueuer")),
]
LATENCIES = [
    at_most(1.5, Side("latency", "p50 ms", "postgres"), Side("latency", "p50 ms", "postgres", "raw loop")),
    at_most(5, Side("latency", "p99 ms", "postgres")),
    at_most(15, Side("latency", "p50 ms", "sqlite")),
    at_most(15, Side("latency", "p50 ms", "mariadb")),
]
REST = [
    at_most(1, Side("idle", "transactions/s", "postgres")),
    at_most(0.1, Side("idle", "CPU s in 20 s", "postgres")),
    at_most(0.2, Side("idle", "CPU s in 20 s", "mariadb")),
    at_most(0.2, Side("idle", "CPU s in 20 s", "sqlite")),
    *(
        at_most(1.3, Side("idle", "RSS MiB", name), Side("idle", "RSS MiB", name, "bare Django shell"))
        for name in ("sqlite", "postgres", "mariadb")
    ),
]
START_UP = "s to the first job"
STARTS = [
    Target(
        Side("start-up", START_UP, database),
        bound=0.5,
        at_least=False,
        rival=Side("start-up", START_UP, database, "bare Django shell"),
        is_difference=True,
    )
    for database in ("postgres", "sqlite", "mariadb")
]

EMPTY = "empty table"
#: The rounds of all cases alternate within seconds; between two rounds a shared machine may swing by a third.
RETAINED = [
    Target(
        rate("retained", database, setting=f"beside {case}"),
        bound=0.95,
        at_least=True,
        rival=rate("retained", database, setting=EMPTY),
        is_paired=True,
    )
    for database in ("postgres", "sqlite", "mariadb")
    for case in ("300 000 waiting", "1 M finished", "1 M far-future")
]
PER_WORK = "µs per work"


def per_work(database: str, setting: str) -> Side:
    """Return the side of what a work costs in a group, or outside of one."""
    return Side("groups", PER_WORK, database, setting=setting)


GROUPS = [
    at_most(0.15, Side("fan-out", "s to the report's end", "postgres")),
    *(
        at_most(1.5, per_work(database, "group of 10 000"), per_work(database, "10 000 plain"))
        for database in ("postgres", "sqlite", "mariadb")
    ),
    *(
        at_most(1.15, per_work(database, "group of 50 000"), per_work(database, "group of 1 000"))
        for database in ("postgres", "sqlite", "mariadb")
    ),
]
BESIDE_TWELVE, PER_ENQUEUE = "12 processes", "transactions per enqueue"
FLEET = [
    at_most(
        1.5,
        Side("fleet", PER_ENQUEUE, "postgres", setting=BESIDE_TWELVE),
        Side("fleet", PER_ENQUEUE, "postgres", setting="1 process"),
    ),
    at_most(3, Side("fleet", "connections per idle process", "postgres", setting=BESIDE_TWELVE)),
]
UNANNOUNCED, NOBODY, PROMETHEUS = "no events", "nobody listens", "Prometheus"
#: Drains with a variant of the event stream, the bound, and the variant that it is a multiple of.
LISTENERS = ((NOBODY, 0.98, UNANNOUNCED), (PROMETHEUS, 0.95, NOBODY))
EVENTS = [
    Target(
        rate("events", database, setting=listener),
        bound=bound,
        at_least=True,
        rival=rate("events", database, setting=other),
        is_paired=True,
    )
    for database in ("postgres", "sqlite", "mariadb")
    for listener, bound, other in LISTENERS
]
UNTRACED, TRACED = "not traced", "OpenTelemetry, a tenth sampled"
TRACING = [
    Target(
        rate("tracing", database, setting=TRACED),
        bound=0.85,
        at_least=True,
        rival=rate("tracing", database, setting=UNTRACED),
        is_paired=True,
    )
    for database in ("postgres", "sqlite", "mariadb")
]
#: How workers find works: from the table, woken by LISTEN, or by ids that Redis Streams deliver.
FROM_TABLE, STREAMS = "LISTEN and the table", "Redis Streams"


def of_streams(phase: str, figure: str, bound: float, more: bool) -> Target:
    """Return a target for Redis Streams beside the table, round by round."""
    ours = Side(phase, figure, "postgres", setting=STREAMS)
    return Target(ours, bound, more, replace(ours, setting=FROM_TABLE), is_paired=True)


QUEUE_PORT = [
    of_streams("queue-port latency", "p50 ms", 2, more=False),
    of_streams("queue-port drain", "jobs/s", 0.9, more=True),
]
TARGETS = [
    *ENQUEUES,
    *DRAINS,
    *LATENCIES,
    *REST,
    *STARTS,
    *RETAINED,
    *GROUPS,
    *FLEET,
    *EVENTS,
    *TRACING,
    *QUEUE_PORT,
]
