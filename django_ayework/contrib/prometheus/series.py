"""The series: names, labels, how events are counted, and gauges. This module imports ``prometheus_client``.

Names are public: dashboards and alert rules use them. ``docs/operations/monitoring.md`` lists them.
"""

from __future__ import annotations

import collections
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db import DatabaseError
from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from django_ayework.define.handles import Kind
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.documentation import logged
from django_ayework.flow.counts import FleetFigures, fleet_figures
from django_ayework.flow.events import EventBatch, EventItem, Happened
from django_ayework.flow.payloads import DEFAULT_QUEUE
from django_ayework.logs import logger
from django_ayework.rules.states import Outcome, Reason, Status
from django_ayework.store.backlog import Depth
from django_ayework.store.database import atomic

#: The label values of types that the code does not know, and of further queues when there are too many.
UNKNOWN, OTHER = "unknown", "other"
#: Pairs of a type and a queue with labels of their own.
MOST_PLACES = 500
#: Upper bounds of histograms, in seconds: a handler may take milliseconds, a work may wait for a day.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400)


class BatchHistogram(Histogram):
    """A histogram that takes many values at once: one by one they cost as much as a small work."""

    def observe_all(self, amounts: Iterable[float]) -> None:
        """Observe these values; those below 0 count as 0, as clocks may differ a little."""
        ordered = sorted(amounts)
        negative = bisect_left(ordered, 0.0)
        self._sum.inc(sum(ordered[negative:]))
        before = 0
        for bucket, bound in zip(self._buckets, self._upper_bounds, strict=True):
            if (until := bisect_right(ordered, bound)) > before:
                bucket.inc(until - before)
                before = until


PLACE = ("type", "queue")
#: The values of the labels ``phase`` and ``cause``.
PHASES = ("queue", "commit", "hook", "pubsub")
CAUSES = ("cancelled", "moved")

QUEUED = Counter("ayework_works_queued_total", "Works that were queued, or queued again by a retry.", PLACE)
BLOCKED = Counter("ayework_works_blocked_total", "Works that were queued and wait for other works.", PLACE)
UNBLOCKED = Counter("ayework_works_unblocked_total", "Works whose blockers have all succeeded.", PLACE)
STARTED = Counter("ayework_attempts_started_total", "Attempts that started.", PLACE)
SUCCEEDED = Counter("ayework_works_succeeded_total", "Works that succeeded; gates that opened, too.", PLACE)
FAILED = Counter(
    "ayework_attempts_failed_total",
    "Attempts that failed (another follows), died (none follows) or were lost with their worker.",
    (*PLACE, "outcome"),
)
DEFERRED = Counter("ayework_works_deferred_total", "Works whose handlers asked to come back later.", PLACE)
DEAD = Counter("ayework_works_dead_total", "Works that died, by the reason.", (*PLACE, "reason"))
CANCELLED = Counter("ayework_works_cancelled_total", "Works that were cancelled.", PLACE)
REFUSED = Counter(
    "ayework_outcomes_refused_total",
    "Outcomes that came too late: the work was cancelled, or another process had moved it.",
    ("type", "cause"),
)
ERRORS = Counter("ayework_errors_total", "Errors of the engine and of hooks, by the phase.", ("phase",))
WORKERS_STARTED = Counter("ayework_workers_started_total", "Workers that started.")
WORKERS_STOPPED = Counter("ayework_workers_stopped_total", "Workers that stopped in order.")
SCRAPE_ERRORS = Counter("ayework_scrape_errors_total", "Pages that lack figures of the database.")
WAIT = BatchHistogram(
    "ayework_work_wait_seconds",
    "Time from when works were due until a worker took them.",
    ("type",),
    buckets=BUCKETS,
)
RUN = BatchHistogram(
    "ayework_attempt_duration_seconds", "Time that handlers ran.", ("type", "outcome"), buckets=BUCKETS
)
TOTAL = BatchHistogram(
    "ayework_work_duration_seconds",
    "Time from when a work was queued until it succeeded or died.",
    ("type",),
    buckets=BUCKETS,
)

_places: dict[tuple[str, str], tuple[str, str]] = {}


def type_label(type: str) -> str:
    """Return the label value of a type: its name, if the code knows it."""
    return type if type == GATE_TYPE or registry.find_anywhere(type) is not None else UNKNOWN


def place_labels(type: str, queue: str) -> tuple[str, str]:
    """Return the label values of a type and a queue. Their number is bounded, whatever is queued."""
    found = _places.get((type, queue))
    if found is None:
        found = (type_label(type), queue)
        if found[0] == UNKNOWN:
            return UNKNOWN, OTHER
        if len(_places) >= MOST_PLACES:
            return found[0], OTHER
        _places[type, queue] = found
    return found


# From events to the series: thousands of works are counted by one call.

Item = TypeVar("Item", bound=EventItem)
#: Outcomes of attempts that failed.
FAILURES = (Outcome.FAILED, Outcome.DIED, Outcome.LOST)


def begin() -> None:
    """Count a worker that starts, and show a 0 for each failure that may come: of known types, gates, others.

    A counter that appears with its first failure would show no increase by it.
    """
    WORKERS_STARTED.inc()
    known = [(work_type.name, work_type.settings.queue or DEFAULT_QUEUE) for work_type in registry]
    for place in (*known, (GATE_TYPE, DEFAULT_QUEUE), (UNKNOWN, OTHER)):
        type, queue = place_labels(*place)
        for outcome in FAILURES:
            FAILED.labels(type, queue, str(outcome))
        for reason in Reason:
            DEAD.labels(type, queue, str(reason))
        for cause in CAUSES:
            REFUSED.labels(type, cause)
    for phase in PHASES:
        ERRORS.labels(phase)


def count_batch(batch: EventBatch[Any]) -> None:
    """Count the events of a batch."""
    if (count := COUNTED.get(batch.kind)) is not None:
        count(batch)


def count_refused(type: str, cause: str) -> None:
    """Count an outcome that came too late."""
    REFUSED.labels(type_label(type), cause).inc()


def count_queued(batch: EventBatch[Happened]) -> None:
    """Count queued works, and those of them that wait for others."""
    add(QUEUED, batch.items)
    if blocked := [item for item in batch.items if item.row.status == Status.BLOCKED]:
        add(BLOCKED, blocked)


def count_started(batch: EventBatch[EventItem]) -> None:
    """Count attempts that started, and how long their works had been due."""
    add(STARTED, batch.items)
    for type, items in by_type(batch.items):
        rows = [item.row for item in items]
        waits = [(row.started_at - row.run_at).total_seconds() for row in rows if row.started_at is not None]
        WAIT.labels(type).observe_all(waits)


def count_succeeded(batch: EventBatch[EventItem]) -> None:
    """Count works that succeeded."""
    add(SUCCEEDED, batch.items)
    observe_runs(batch.items, "succeeded")
    observe_totals(batch.items, batch.at)


def count_failed(batch: EventBatch[Happened]) -> None:
    """Count attempts that failed, died or were lost, and works that died by that.

    A waiter that can never be met dies without an attempt.
    """
    for outcome in FAILURES:
        if ended := [item for item in batch.items if item.outcome is outcome]:
            add(FAILED, ended, str(outcome))
    observe_runs(batch.items, "failed")
    count_dead([item for item in batch.items if item.row.status == Status.DEAD], batch.at)


def count_dead(items: Sequence[Happened], at: datetime) -> None:
    """Count works that died, by the reason, such as those past their deadline."""
    by_reason = defaultdict[str, list[Happened]](list)
    for item in items:
        by_reason[item.row.reason].append(item)
    for reason, dead in by_reason.items():
        add(DEAD, dead, reason)
    observe_totals(items, at)


def count_deferred(batch: EventBatch[Happened]) -> None:
    """Count works that were put off."""
    add(DEFERRED, batch.items)
    observe_runs(batch.items, "deferred")


def add(counter: Any, items: Sequence[EventItem], *more: str) -> None:
    """Count works by their type and queue; ``more`` are the values of further labels."""
    for (type, queue), number in works_by_place(items).items():
        counter.labels(*place_labels(type, queue), *more).inc(number)


def works_by_place(items: Sequence[EventItem]) -> Mapping[tuple[str, str], int]:
    """Return how many works there are of each type in each queue. Most batches have one of both."""
    rows = [item.row for item in items]
    if len({row.type for row in rows}) == len({row.queue for row in rows}) == 1:
        return {(rows[0].type, rows[0].queue): len(rows)}
    return collections.Counter((row.type, row.queue) for row in rows)


def by_type(items: Sequence[Item]) -> Iterable[tuple[str, Sequence[Item]]]:
    """Return the items of each type, with the label value of the type."""
    types = {item.row.type for item in items}
    if len(types) == 1:
        return [(type_label(types.pop()), items)]
    found = defaultdict[str, list[Item]](list)
    for item in items:
        found[type_label(item.row.type)].append(item)
    return found.items()


def observe_runs(items: Sequence[EventItem], outcome: str) -> None:
    """Observe how long handlers ran; works whose handlers did not are left out."""
    for type, same in by_type(items):
        if runs := [item.seconds for item in same if item.seconds is not None]:
            RUN.labels(type, outcome).observe_all(runs)


def observe_totals(items: Sequence[EventItem], at: datetime) -> None:
    """Observe how long ago works were queued that have ended."""
    for type, same in by_type(items):
        TOTAL.labels(type).observe_all([(at - item.row.queued_at).total_seconds() for item in same])


COUNTED: dict[Kind, Callable[[EventBatch[Any]], None]] = {
    Kind.QUEUED: count_queued,
    Kind.UNBLOCKED: lambda batch: add(UNBLOCKED, batch.items),
    Kind.STARTED: count_started,
    Kind.SUCCEEDED: count_succeeded,
    Kind.FAILED: count_failed,
    Kind.EXPIRED: lambda batch: count_dead(batch.items, batch.at),
    Kind.DEFERRED: count_deferred,
    Kind.CANCELLED: lambda batch: add(CANCELLED, batch.items),
}

# Gauges of the fleet, read from the database for one page.

#: The gauges of works, with their meanings; works that are due have one of their own.
OF_STATUS = {
    Status.SCHEDULED: ("ayework_scheduled_works", "Works that wait for their moment."),
    Status.RUNNING: ("ayework_running_works", "Works that a worker runs or holds."),
    Status.BLOCKED: ("ayework_blocked_works", "Works that wait for other works; gates, too."),
    Status.DEAD: ("ayework_dead_works", "Dead works that are kept."),
}


class FleetCollector(Collector):
    """Reads the figures when it is collected; without a database there are none, which is counted."""

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        try:
            with atomic():
                figures = fleet_figures()
        except DatabaseError as error:
            SCRAPE_ERRORS.inc()
            logger.warning(
                "The page of metrics lacks figures of the database: %s %s",
                error,
                logged("metrics-incomplete"),
            )
            return
        yield from gauges_of(figures)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: a registry need not ask the database for names."""
        yield from ()


def gauges_of(figures: FleetFigures) -> Iterator[Metric]:
    """Yield figures as gauges."""
    waiting, is_cut = numbers(figures.waiting), Status.PENDING in figures.incomplete
    yield gauge("ayework_waiting_works", "Works that are due and wait for a worker.", waiting, is_cut)
    ages = largest((place_labels(lane.type, lane.queue), age) for lane, age in figures.ages.items())
    meaning = "For how long the oldest waiting work has been due."
    yield gauge("ayework_oldest_waiting_seconds", meaning, ages, is_cut)
    for status, (name, meaning) in OF_STATUS.items():
        yield gauge(name, meaning, numbers(figures.by_status[status]), status in figures.incomplete)
    yield GaugeMetricFamily("ayework_live_workers", "Workers that are alive.", value=figures.workers)


#: The label values that this process has shown, by the name of the gauge. There are no more than of places.
_shown: dict[str, set[tuple[str, str]]] = defaultdict(set)


def gauge(name: str, meaning: str, values: dict[tuple[str, str], float], is_cut: bool) -> Metric:
    """Return a gauge by type and queue; it is 0 where there were works before, so that graphs do not end.

    Where not all works were counted, there may be others at a place without a value, so it has none.
    """
    family = GaugeMetricFamily(name, meaning, labels=PLACE)
    shown = _shown[name]
    shown.update(values)
    for labels, value in (values if is_cut else dict.fromkeys(shown, 0.0) | values).items():
        family.add_metric(labels, value)
    return family


def numbers(depths: Iterable[Depth]) -> dict[tuple[str, str], float]:
    """Return how many works there are, by the label values of their types and queues."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for depth in depths:
        found[place_labels(depth.type, depth.queue)] += depth.works
    return {**found}


def largest(values: Iterable[tuple[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    """Return the largest value for each pair of label values."""
    found: dict[tuple[str, str], float] = {}
    for labels, value in values:
        found[labels] = max(found.get(labels, 0.0), value)
    return found
