"""From events to the series: thousands of works are counted by one call. Imports ``prometheus_client``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django_ayework.contrib.prometheus import series
from django_ayework.contrib.prometheus.series import place_labels, type_label
from django_ayework.define.handles import Kind
from django_ayework.define.types import registry
from django_ayework.flow.events import EventBatch, EventItem, Happened
from django_ayework.flow.stored_options import DEFAULT_QUEUE
from django_ayework.rules.states import Outcome, Reason, Status

Item = TypeVar("Item", bound=EventItem)
#: Outcomes of attempts that failed.
FAILURES = (Outcome.FAILED, Outcome.DIED, Outcome.LOST)


def begin() -> None:
    """Count a worker that starts, and show a 0 for each failure that may come of the known types.

    A counter that appears with its first failure would show no increase by it.
    """
    series.WORKERS_STARTED.inc()
    for work_type in registry:
        type, queue = place_labels(work_type.name, work_type.settings.queue or DEFAULT_QUEUE)
        for outcome in FAILURES:
            series.FAILED.labels(type, queue, str(outcome))
        for reason in Reason:
            series.DEAD.labels(type, queue, str(reason))
        for cause in series.CAUSES:
            series.REFUSED.labels(type, cause)
    for phase in series.PHASES:
        series.ERRORS.labels(phase)


def count_batch(batch: EventBatch[Any]) -> None:
    """Count the events of a batch."""
    if (count := COUNTED.get(batch.kind)) is not None:
        count(batch)


def count_refused(type: str, cause: str) -> None:
    """Count an outcome that came too late."""
    series.REFUSED.labels(type_label(type), cause).inc()


def count_queued(batch: EventBatch[Happened]) -> None:
    """Count queued works, and those of them that wait for others."""
    add(series.QUEUED, batch.items)
    if blocked := [item for item in batch.items if item.row.status == Status.BLOCKED]:
        add(series.BLOCKED, blocked)


def count_started(batch: EventBatch[EventItem]) -> None:
    """Count attempts that started, and how long their works had been due."""
    add(series.STARTED, batch.items)
    for type, items in by_type(batch.items):
        rows = [item.row for item in items]
        waits = [(row.started_at - row.run_at).total_seconds() for row in rows if row.started_at is not None]
        series.WAIT.labels(type).observe_all(waits)


def count_succeeded(batch: EventBatch[EventItem]) -> None:
    """Count works that succeeded."""
    add(series.SUCCEEDED, batch.items)
    observe_runs(batch.items, "succeeded")
    observe_totals(batch.items, batch.at)


def count_failed(batch: EventBatch[Happened]) -> None:
    """Count attempts that failed, died or were lost, and works that died by that.

    A waiter that can never be met dies without an attempt.
    """
    for outcome in FAILURES:
        if ended := [item for item in batch.items if item.outcome is outcome]:
            add(series.FAILED, ended, str(outcome))
    observe_runs(batch.items, "failed")
    count_dead([item for item in batch.items if item.row.status == Status.DEAD], batch.at)


def count_expired(batch: EventBatch[Happened]) -> None:
    """Count works that died as they were past their deadline."""
    count_dead(batch.items, batch.at)


def count_dead(items: Sequence[Happened], at: datetime) -> None:
    """Count works that died, by the reason."""
    by_reason = defaultdict[str, list[Happened]](list)
    for item in items:
        by_reason[item.row.reason].append(item)
    for reason, dead in by_reason.items():
        add(series.DEAD, dead, reason)
    observe_totals(items, at)


def count_deferred(batch: EventBatch[Happened]) -> None:
    """Count works that were put off."""
    add(series.DEFERRED, batch.items)
    observe_runs(batch.items, "deferred")


def add(counter: Any, items: Sequence[EventItem], *more: str) -> None:
    """Count works by their type and queue; ``more`` are the values of further labels."""
    for (type, queue), number in numbers(items).items():
        counter.labels(*place_labels(type, queue), *more).inc(number)


def numbers(items: Sequence[EventItem]) -> Mapping[tuple[str, str], int]:
    """Return how many works there are of each type in each queue. Most batches have one of both."""
    rows = [item.row for item in items]
    if len({row.type for row in rows}) == len({row.queue for row in rows}) == 1:
        return {(rows[0].type, rows[0].queue): len(rows)}
    return Counter((row.type, row.queue) for row in rows)


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
            series.RUN.labels(type, outcome).observe_all(runs)


def observe_totals(items: Sequence[EventItem], at: datetime) -> None:
    """Observe how long ago works were queued that have ended."""
    for type, same in by_type(items):
        series.TOTAL.labels(type).observe_all([(at - item.row.queued_at).total_seconds() for item in same])


def counting_alone(counter: Any) -> Callable[[EventBatch[Happened]], None]:
    """Return the receiver that increments a counter, and observes nothing else."""

    def count(batch: EventBatch[Happened]) -> None:
        add(counter, batch.items)

    return count


COUNTED: dict[Kind, Callable[[EventBatch[Any]], None]] = {
    Kind.QUEUED: count_queued,
    Kind.UNBLOCKED: counting_alone(series.UNBLOCKED),
    Kind.STARTED: count_started,
    Kind.SUCCEEDED: count_succeeded,
    Kind.FAILED: count_failed,
    Kind.EXPIRED: count_expired,
    Kind.DEFERRED: count_deferred,
    Kind.CANCELLED: counting_alone(series.CANCELLED),
}
