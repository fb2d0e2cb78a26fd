"""The overview: what the admin's first page and ``ayework_status`` show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django_ayework.flow.controls import current_controls
from django_ayework.flow.explain import GONE_AFTER, if_unknown
from django_ayework.models import Schedule, WorkerProcess
from django_ayework.rules.controls import Controls
from django_ayework.rules.explain import serves
from django_ayework.rules.figures import (
    MOST_COUNTED,
    Observed,
    ParkedFigures,
    Period,
    QueueFigures,
    ScheduleFigures,
    TypeFigures,
    WorkerFigures,
    percentile,
)
from django_ayework.rules.formatting import parked_since
from django_ayework.rules.problems import Problem, headline, problems
from django_ayework.rules.retry import OFFER_AGAIN
from django_ayework.store import backlog, throughput
from django_ayework.store.backlog import Depth
from django_ayework.store.database import clock, sync_only
from django_ayework.store.lanes import Lane
from django_ayework.store.processes import processes_seen_since
from django_ayework.store.throughput import MINUTE, QUARTER, Span, span_start

#: Stale workers are shown for this long, and at most this many of them.
STALE_SHOWN_FOR = timedelta(hours=1)
MOST_STALE_SHOWN = 20
#: The columns of a worker that the overview shows as they are stored.
STORED = (
    "id", "name", "host", "pid", "queues", "concurrency", "running", "started_at", "seen_at", "trouble",
    "quiet", "version",
)  # fmt: skip
#: Queues and types that are shown, those with the largest backlog first.
MOST_QUEUES = MOST_TYPES = 30
#: Lanes that are read. A few works of each lane are counted first, then more works of long lanes.
MOST_LANES = 200
COUNTED_FIRST, COUNTED_IN_ALL = 500, 20_000
#: Works that were queued, or died, of late and are looked at; spans of a minute that are.
MOST_RECENT, MOST_SPANS = 1000, 20_000
#: Successes of a type whose running time is looked at.
SUCCESSES = 50
#: Minutes, with the present one, by which the rate is measured; the spans of the two charts.
RATE_MINUTES = 3
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LATELY = timedelta(minutes=10)
MOST_SCHEDULES = 10
LIVE_COUNTS = ("pending", "running", "scheduled", "blocked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything that the overview shows at one moment.

    ``headline`` is the most severe of the ``problems``, or says that all is well. ``more_queues`` and
    ``more_types`` tell whether there are others than those shown. Works are counted up to 10 000; ``dead`` is
    capped if ``dead_capped``. ``hour`` has the minutes of the last hour, ``day`` the quarters of an hour of
    the last day, the present one last.
    """

    at: datetime
    headline: Problem
    problems: list[Problem]
    workers: list[WorkerFigures]
    queues: list[QueueFigures]
    types: list[TypeFigures]
    more_queues: bool
    more_types: bool
    dead: int
    dead_capped: bool
    schedules: list[ScheduleFigures]
    hour: list[Period]
    day: list[Period]


@sync_only
def overview() -> Overview:
    """Read the figures. The statements, and the rows that they read, are bounded for tables of any size."""
    now = clock.read()
    seen = workers(now)
    counts = read_counts(now)
    controls = current_controls()
    queues = queues_of(counts, controls, [worker for worker in seen if not worker.stale])
    types = types_of(counts, controls)
    dead = backlog.dead_letters(MOST_COUNTED + 1)
    observed = Observed(
        at=now,
        workers=seen,
        queues=queues,
        types=types,
        parked=parked(now),
        failing=[schedule_figures(row) for row in backlog.schedules_failing(MOST_SCHEDULES)],
        dead=min(dead, MOST_COUNTED),
        dead_capped=dead > MOST_COUNTED,
        **deaths(now),
    )
    found = problems(observed)
    return Overview(
        at=now,
        headline=headline(found, observed),
        problems=found,
        workers=seen,
        queues=queues[:MOST_QUEUES],
        types=with_history(types[:MOST_TYPES], counts),
        more_queues=len(queues) > MOST_QUEUES or counts.are_more,
        more_types=len(types) > MOST_TYPES or counts.are_more,
        dead=observed.dead,
        dead_capped=observed.dead_capped,
        schedules=[schedule_figures(row) for row in backlog.schedules_due(MOST_SCHEDULES)],
        hour=filled_in(counts.minutes, MINUTE, HOUR, now),
        day=filled_in(throughput.quarters(first_start(QUARTER, DAY, now)), QUARTER, DAY, now),
    )


# Workers


def workers(now: datetime) -> list[WorkerFigures]:
    """Return the live workers, then those that became silent without an orderly stop."""
    seen = [worker_figures(process, now) for process in processes_seen_since(now - STALE_SHOWN_FOR)]
    live = [worker for worker in seen if not worker.stale]
    stale = [worker for worker in seen if worker.stale]
    return [*live, *stale[-MOST_STALE_SHOWN:]]


def worker_figures(process: WorkerProcess, now: datetime) -> WorkerFigures:
    """Return one worker."""
    return WorkerFigures(
        silent=max(0.0, (now - process.seen_at).total_seconds()),
        stale=now - process.seen_at > GONE_AFTER,
        **{column: getattr(process, column) for column in STORED},
    )


def schedule_figures(row: Schedule) -> ScheduleFigures:
    """Return one schedule."""
    return ScheduleFigures(
        name=row.name, runs=row.function, due_at=row.due_at, failures=row.failures, error=row.error
    )


# Counts by queue and type


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of live works and of ended attempts, by queue and type.

    ``bounds`` has up to where the pending works of each lane were counted, ``are_more`` tells whether there
    are lanes that were not looked at. ``minutes`` are those of the last hour; from ``since`` on they measure
    the rate. ``arriving`` is how many works of each type were queued per minute since then.
    """

    now: datetime
    depths: Mapping[str, Sequence[Depth]]
    bounds: Mapping[tuple[str, str], int]
    are_more: bool
    overdue: Sequence[Depth]
    lapsed: Mapping[str, int]
    minutes: Sequence[Span]
    since: datetime
    arriving: Mapping[str, float]

    @property
    def per_minute(self) -> float:
        """By what counts of the recent minutes are multiplied."""
        return 60 / max(1.0, (self.now - self.since).total_seconds())


def read_counts(now: datetime) -> Counts:
    """Read them."""
    lanes, are_more = backlog.first_lanes(MOST_LANES)
    pending, bounds = pending_counts(lanes)
    others = {status.value: backlog.depths_at(status, MOST_COUNTED + 1) for status in backlog.IN_ORDER}
    since = span_start(now, MINUTE) - timedelta(minutes=RATE_MINUTES - 1)
    return Counts(
        now=now,
        depths={"pending": pending, **others},
        bounds=bounds,
        are_more=are_more,
        overdue=backlog.overdue_depths(now, MOST_COUNTED),
        lapsed=backlog.lapsed_by_queue(now, MOST_COUNTED),
        minutes=throughput.minutes(first_start(MINUTE, HOUR, now), MOST_SPANS),
        since=since,
        arriving=arrivals(now, since),
    )


def pending_counts(lanes: Sequence[Lane]) -> tuple[list[Depth], dict[tuple[str, str], int]]:
    """Count the pending works of lanes; return the bound of each, too.

    A few works of each lane are counted first, then more works of long lanes, within one bound for all lanes.
    """
    first = min(COUNTED_FIRST, COUNTED_IN_ALL // max(1, len(lanes)))
    found = {(depth.queue, depth.type): depth for depth in backlog.pending_depths(lanes, first + 1)}
    bounds = dict.fromkeys(found, first)
    large = [Lane(*place) for place, depth in found.items() if depth.works > first]
    bound = min(MOST_COUNTED, COUNTED_IN_ALL // max(1, len(large)))
    if large and bound > first:
        found |= {(depth.queue, depth.type): depth for depth in backlog.pending_depths(large, bound + 1)}
        bounds |= dict.fromkeys(large, bound)
    return [depth for depth in found.values() if depth.works], bounds


def arrivals(now: datetime, since: datetime) -> dict[str, float]:
    """Return how many works of each type were queued per minute of late; only the latest are looked at."""
    found = backlog.queued_since(since, MOST_RECENT)
    if sum(recent.works for recent in found.values()) >= MOST_RECENT:
        since = min(recent.since for recent in found.values() if recent.since is not None)
    seconds = max(1.0, (now - since).total_seconds())
    return {type: recent.works * 60 / seconds for type, recent in found.items()}


def parked(now: datetime) -> list[ParkedFigures]:
    """Return the types of parked works; only the works that are offered next are looked at."""
    return [
        ParkedFigures(
            type=type,
            works=works,
            seconds=(now - parked_since(error, now)).total_seconds(),
            advice=if_unknown(type),
        )
        for type, works, error in backlog.parked_types(now + OFFER_AGAIN, MOST_RECENT)
    ]


def deaths(now: datetime) -> dict[str, Any]:
    """Return how many works died of late by type, and how many during the rest of the hour."""
    found = backlog.died_since(now - HOUR, now - LATELY, MOST_RECENT)
    lately = {type: recent.lately for type, recent in found.items() if recent.lately}
    return {
        "died_lately": lately,
        "died_before": sum(recent.works for recent in found.values()) - sum(lately.values()),
        "died_capped": sum(lately.values()) >= MOST_RECENT,
        "lately": LATELY.total_seconds(),
    }


def queues_of(counts: Counts, controls: Controls, live: Sequence[WorkerFigures]) -> list[QueueFigures]:
    """Return the queues with live works or attempts of the last hour, and paused ones.

    ``live`` are the workers that are alive. Queues without live works come last.
    """
    names = names_in(counts, "queue") | controls.paused_queues
    found = [
        QueueFigures(
            queue=name,
            lapsed=counts.lapsed.get(name, 0),
            served=any(serves(worker, name) for worker in live),
            paused=name in controls.paused_queues,
            **figures_of(counts, "queue", name),
        )
        for name in names
    ]
    return sorted(found, key=lambda queue: (-queue.pending, -queue.rate, queue.queue))


def types_of(counts: Counts, controls: Controls) -> list[TypeFigures]:
    """Return the types with live works or attempts of the last hour, and paused ones."""
    names = names_in(counts, "type") | {name for name in controls.types if controls.of(name).paused}
    total = sum(depth.works for depth in counts.depths["pending"])
    found = [type_figures(counts, controls, name, total) for name in names]
    return sorted(found, key=lambda type: (-type.pending, -type.rate, type.type))


def type_figures(counts: Counts, controls: Controls, name: str, total: int) -> TypeFigures:
    """Return one type; ``total`` is how many works wait of all types."""
    control, common = controls.of(name), figures_of(counts, "type", name)
    queues = {depth.queue for depth in counts.depths["pending"] if depth.type == name}
    return TypeFigures(
        type=name,
        queues=tuple(sorted(queues)),
        share=common["pending"] / total if total else 0.0,
        arriving=counts.arriving.get(name, 0.0),
        paused=control.paused,
        max_running=control.max_running,
        weight=control.weight,
        priority=control.priority,
        **common,
    )


def names_in(counts: Counts, by: str) -> set[str]:
    """Return the queues, or the types, that were seen."""
    live = {getattr(depth, by) for depths in counts.depths.values() for depth in depths}
    return live | {getattr(span, by) for span in counts.minutes} - {""}


def figures_of(counts: Counts, by: str, name: str) -> dict[str, Any]:
    """Return what a queue and a type have in common."""

    def mine(found: Iterable[Any]) -> list[Any]:
        return [each for each in found if getattr(each, by) == name]

    live = {status: mine(counts.depths[status]) for status in LIVE_COUNTS}
    hour = mine(counts.minutes)
    recent = [span for span in hour if span.start >= counts.since]
    return {
        **{status: min(MOST_COUNTED, works_in(live[status])) for status in LIVE_COUNTS},
        "capped": tuple(status for status in LIVE_COUNTS if is_capped(counts, status, live[status])),
        "waiting": longest_wait([*live["pending"], *mine(counts.overdue)], counts.now),
        "rate": counts.per_minute * sum(span.succeeded + span.dead for span in recent),
        "failed": sum(span.failed for span in hour),
        "died": sum(span.dead for span in hour),
    }


def works_in(depths: Iterable[Depth]) -> int:
    """Return how many works there are."""
    return sum(depth.works for depth in depths)


def is_capped(counts: Counts, status: str, depths: Sequence[Depth]) -> bool:
    """Tell whether there may be more works than were counted.

    Pending works have a bound for each lane; the others one for all together.
    """
    if status == "pending":
        beyond = any(depth.works > counts.bounds[depth.queue, depth.type] for depth in depths)
        return beyond or works_in(depths) > MOST_COUNTED
    return bool(depths) and works_in(counts.depths[status]) > MOST_COUNTED


def longest_wait(due: Iterable[Depth], now: datetime) -> float:
    """Return for how many seconds the oldest due work has been due, whether a worker has noticed or not."""
    return max([0.0, *((now - depth.oldest).total_seconds() for depth in due if depth.oldest is not None)])


# Running times and attempts over time


def with_history(types: Sequence[TypeFigures], counts: Counts) -> list[TypeFigures]:
    """Add running times, and the attempts of each minute of the last hour."""
    times = backlog.running_times([type.type for type in types], SUCCESSES)
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in counts.minutes:
        spans[span.type].append(span)
    return [
        replace(
            type,
            p50=percentile(times[type.type], 0.5),
            p95=percentile(times[type.type], 0.95),
            ended=tuple(each.succeeded + each.died for each in minutes),
            failures=tuple(each.failed + each.died for each in minutes),
        )
        for type in types
        for minutes in [filled_in(spans[type.type], MINUTE, HOUR, counts.now)]
    ]


def first_start(seconds: int, long: timedelta, now: datetime) -> datetime:
    """Return the start of the first span of the last hour or day."""
    return span_start(now, seconds) + timedelta(seconds=seconds) - long


def filled_in(spans: Iterable[Span], seconds: int, long: timedelta, now: datetime) -> list[Period]:
    """Return one period for each span of the time until now, with those in which nothing ended."""
    sums: dict[datetime, list[int]] = defaultdict(lambda: [0, 0, 0])
    for span in spans:
        total = sums[span.start]
        total[0] += span.succeeded
        total[1] += span.failed
        total[2] += span.dead
    first, step = first_start(seconds, long, now), timedelta(seconds=seconds)
    starts = [first + step * number for number in range(round(long.total_seconds() / seconds))]
    return [Period(start, *sums[start]) if start in sums else Period(start) for start in starts]
