"""How many attempts ended, by span of time, type and queue: workers add to it, the overview reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django_ayework.models import Throughput
from django_ayework.store.database import (
    chunked,
    connection,
    delete_first,
    dialect,
    fetch,
    own_transaction,
    rows,
    stored_moment,
)
from django_ayework.store.dialects import Dialect
from django_ayework.store.lanes import as_moment

#: The lengths of spans in seconds, and for how long spans of each are kept.
MINUTE, QUARTER = 60, 900
KEPT = {MINUTE: timedelta(hours=2), QUARTER: timedelta(days=2)}
#: Spans in one statement; SQLite allows 999 parameters.
AT_ONCE = 100
#: Spans that are deleted at once.
PRUNED = 1000

KEY = ("seconds", "start", "type", "queue")
COUNTS = ("succeeded", "failed", "dead", "duration")


class Bucket(NamedTuple):
    """A minute, and the type and the queue of works."""

    minute: datetime
    type: str
    queue: str


@dataclass(slots=True)
class Ended:
    """How many attempts succeeded, failed and will be repeated, or were the last; seconds that they took."""

    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    duration: float = 0.0

    def add(self, other: Ended) -> None:
        """Add the counts of another."""
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.dead += other.dead
        self.duration += other.duration


def span_start(moment: datetime, seconds: int) -> datetime:
    """Return the start of the span that a moment is in.

    >>> span_start(datetime(2026, 1, 1, 12, 34, 56, tzinfo=UTC), 900).isoformat()
    '2026-01-01T12:30:00+00:00'
    """
    at = int(moment.timestamp())
    return datetime.fromtimestamp(at - at % seconds, UTC)


# Workers add


def add(counts: Mapping[Bucket, Ended]) -> None:
    """Add the counts of minutes to the spans of a minute, and to those of a quarter of an hour.

    Statements name spans in the order of their keys: two workers that add to the same spans lock them in one
    order, so neither waits for the other for ever.
    """
    for some in chunked(sorted(spans_of(counts)), AT_ONCE):
        add_spans(some)


def spans_of(counts: Mapping[Bucket, Ended]) -> Iterable[tuple[Any, ...]]:
    """Yield the key and the counts of each span."""
    for seconds in KEPT:
        spans: dict[Bucket, Ended] = {}
        for bucket, ended in counts.items():
            span = bucket._replace(minute=span_start(bucket.minute, seconds))
            spans.setdefault(span, Ended()).add(ended)
        for span, ended in spans.items():
            yield (seconds, *span, *(getattr(ended, name) for name in COUNTS))


@own_transaction
def add_spans(spans: Sequence[tuple[Any, ...]]) -> None:
    """Add to spans by one statement; it is repeated if the database ends it for the sake of another."""
    params = [
        value for seconds, start, *others in spans for value in (seconds, stored_moment(start), *others)
    ]
    with connection().cursor() as cursor:
        cursor.execute(addition(dialect(), len(spans)), params)


def addition(dialect: Dialect, number: int) -> str:
    """Return the statement that inserts so many spans, or adds to those that are there."""
    table = Throughput._meta.db_table
    columns = (*KEY, *COUNTS)
    values = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * number)
    sums = ", ".join(dialect.sum_of.format(table=table, column=column) for column in COUNTS)
    either = dialect.or_update.format(key=", ".join(KEY), sets=sums)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values} {either}"


def prune(now: datetime) -> int:
    """Delete a batch of the spans of each length that are older than they are kept; return how many."""
    deleted = 0
    for seconds, kept in KEPT.items():
        old = rows(Throughput).filter(seconds=seconds, start__lt=now - kept).order_by("start")
        deleted += delete_first(old, PRUNED)
    return deleted


# The overview reads


class Span(NamedTuple):
    """The attempts of a type in a queue that ended in one span of time."""

    start: datetime
    type: str
    queue: str
    succeeded: int
    failed: int
    dead: int


TABLE = Throughput._meta.db_table
#: The minutes from a moment on, the latest first; the parameters are the moment, and how many spans.
MINUTES = (
    f"SELECT start, type, queue, succeeded, failed, dead FROM {TABLE} WHERE seconds = {MINUTE} "
    "AND start >= %s ORDER BY start DESC LIMIT %s"
)
#: The spans of a length from a moment on, of all types and queues together.
ALL_TYPES = (
    f"SELECT start, '', '', SUM(succeeded), SUM(failed), SUM(dead) FROM {TABLE} WHERE seconds = %s "
    "AND start >= %s GROUP BY start"
)


def minutes(since: datetime, limit: int) -> list[Span]:
    """Return the minutes from a moment on by type and queue, at most so many spans, the latest first."""
    return spans_from(fetch(MINUTES, (stored_moment(since), limit)))


def quarters(since: datetime) -> list[Span]:
    """Return the quarters of an hour from a moment on, of all types and queues together."""
    return spans_from(fetch(ALL_TYPES, (QUARTER, stored_moment(since))))


def spans_from(found: Iterable[tuple[Any, ...]]) -> list[Span]:
    """Return rows as spans; there are few moments, and each is read once."""
    moments: dict[Any, Any] = {moment: as_moment(moment) for moment in {start for start, *_ in found}}
    return [Span(moments[start], type, queue, *map(int, counts)) for start, type, queue, *counts in found]
