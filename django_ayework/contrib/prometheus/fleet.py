"""Gauges of the fleet, read from the database for one page. Imports ``prometheus_client``."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from django.db import DatabaseError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from django_ayework.contrib.prometheus.series import PLACE, SCRAPE_ERRORS, place_labels
from django_ayework.documentation import logged
from django_ayework.flow.fleet import FleetFigures, fleet_figures
from django_ayework.rules.states import Status
from django_ayework.store.backlog import Depth
from django_ayework.store.database import atomic

logger = logging.getLogger("django_ayework")

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
    waiting = numbers(figures.waiting)
    yield gauge("ayework_waiting_works", "Works that are due and wait for a worker.", waiting)
    ages = largest((place_labels(lane.type, lane.queue), age) for lane, age in figures.ages.items())
    yield gauge("ayework_oldest_waiting_seconds", "For how long the oldest waiting work has been due.", ages)
    for status, (name, meaning) in OF_STATUS.items():
        yield gauge(name, meaning, numbers(figures.by_status[status]))
    yield GaugeMetricFamily("ayework_live_workers", "Workers that are alive.", value=figures.workers)


#: The label values that this process has shown, by the name of the gauge. There are no more than of places.
_shown: dict[str, set[tuple[str, str]]] = defaultdict(set)


def gauge(name: str, meaning: str, values: dict[tuple[str, str], float]) -> Metric:
    """Return a gauge by type and queue; it is 0 where there were works before, so that graphs do not end."""
    family = GaugeMetricFamily(name, meaning, labels=PLACE)
    shown = _shown[name]
    shown.update(values)
    for labels, value in (dict.fromkeys(shown, 0.0) | values).items():
        family.add_metric(labels, value)
    return family


def numbers(depths: Iterable[Depth]) -> dict[tuple[str, str], float]:
    """Return how many works there are, by the label values of their types and queues."""
    found: Counter[tuple[str, str]] = Counter()
    for depth in depths:
        found[place_labels(depth.type, depth.queue)] += depth.works
    return {**found}


def largest(values: Iterable[tuple[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    """Return the largest value for each pair of label values."""
    found: dict[tuple[str, str], float] = {}
    for labels, value in values:
        found[labels] = max(found.get(labels, 0.0), value)
    return found
