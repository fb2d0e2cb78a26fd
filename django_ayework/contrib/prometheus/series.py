"""The series of one process: their names, meanings and labels. Importing this imports ``prometheus_client``.

Their names are public: dashboards and alert rules use them. ``docs/operations/monitoring.md`` lists them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from prometheus_client import Counter, Histogram

from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry

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
    return type if type == GATE_TYPE or registry.find(type) is not None else UNKNOWN


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
