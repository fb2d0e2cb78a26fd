"""What the event stream costs: the drain rate without it, with nobody listening, and with each listener.

The variants run in turns, and every other round runs backwards, so that noise hits all. A new listener is one
more entry of ``VARIANTS``, and a target in ``bench.report.targets``.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from operator import truediv
from unittest import mock

from bench.harness import drain, fill, scratch_database
from bench.report.files import keep, scaled
from bench.report.readings import Reading
from bench.report.targets import NOBODY, PROMETHEUS, UNANNOUNCED
from bench.rows import empty

JOBS = 5000
#: Many short rounds: a shared machine may swing by a third from one second to the next.
ROUNDS = 60
RATE, CPU = "jobs/s", "CPU µs per work"
DATABASES = {"postgresql": "postgres", "mysql": "mariadb", "sqlite": "sqlite"}


@contextmanager
def unannounced() -> Iterator[None]:
    """Leave out all that asks for receivers: as if there were no events."""
    with ExitStack() as patches:
        for name in ("events.has_receivers", "settle.has_receivers"):
            patches.enter_context(mock.patch(f"django_ayework.flow.{name}", lambda kind, type: False))
        for name in ("settle.group_done_has_receivers", "unit_of_work.group_done_has_receivers"):
            patches.enter_context(mock.patch(f"django_ayework.flow.{name}", lambda: False))
        patches.enter_context(mock.patch("django_ayework.flow.events.announce_starts", lambda: None))
        patches.enter_context(
            mock.patch("django_ayework.worker.attempt.announce_start", lambda attempt: None)
        )
        yield


@contextmanager
def prometheus() -> Iterator[None]:
    """Count for Prometheus, in files as the processes of a supervisor do: that costs more than in memory."""
    from django_ayework.contrib.prometheus import apps

    apps.connect()
    try:
        yield
    finally:
        apps.disconnect()


@dataclass(frozen=True)
class Variant:
    """A way to drain: its title in tables, and the block in which it is measured."""

    title: str
    block: Callable[[], AbstractContextManager[None]]


VARIANTS = (
    Variant(UNANNOUNCED, unannounced),
    Variant(NOBODY, nullcontext),
    Variant(PROMETHEUS, prometheus),
)


def main() -> None:
    """Print the medians, and their ratios to the first two variants; keep all rounds."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # before anything imports prometheus_client
        with scratch_database() as vendor:
            rates, costs = measure()
    print(f"{vendor}: {JOBS} no-op works drained, {len(rates[VARIANTS[0]])} rounds, medians of rounds")
    for variant in VARIANTS:
        rate, cost = statistics.median(rates[variant]), statistics.median(costs[variant])
        print(f"  {variant.title:15} {rate:6.0f} works/s, {cost:5.1f} µs of CPU per work", end="")
        for other in VARIANTS[:2] if variant not in VARIANTS[:1] else ():
            if other is not variant:
                rate, cost = (paired(found, variant, other) for found in (rates, costs))
                print(f"; of {other.title!r}: {rate:.3f} × the rate, {cost:.3f} × the CPU", end="")
        print()
    database = DATABASES[vendor]
    readings = [
        Reading("events", "ours", database, variant.title, figure, tuple(found[variant]))
        for figure, found in ((RATE, rates), (CPU, costs))
        for variant in VARIANTS
    ]
    keep(f"events-{database}", readings)


def paired(found: dict[Variant, list[float]], variant: Variant, other: Variant) -> float:
    """Return the median of the figures of a variant as multiples of those of another in the same rounds."""
    return statistics.median(map(truediv, found[variant], found[other]))


def measure() -> tuple[dict[Variant, list[float]], dict[Variant, list[float]]]:
    """Return the rates, and the CPU time per work, of each variant in each round."""
    rates: dict[Variant, list[float]] = {variant: [] for variant in VARIANTS}
    costs: dict[Variant, list[float]] = {variant: [] for variant in VARIANTS}
    for number in range(1 + scaled(ROUNDS, 3)):
        for variant in VARIANTS if number % 2 == 0 else reversed(VARIANTS):
            empty()
            fill(JOBS)
            with variant.block():
                used = time.process_time()
                seconds = drain()
                used = time.process_time() - used
            if number:  # the first one warms up
                rates[variant].append(JOBS / seconds)
                costs[variant].append(1e6 * used / JOBS)
    return rates, costs


if __name__ == "__main__":
    main()
