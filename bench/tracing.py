"""What OpenTelemetry costs: the rates of queueing and draining without it, and with one trace in ten sampled.

Every work is queued by a call of its own, so each has a trace of its own. The two kinds of rounds take turns,
so that what else the machine does meets both. Spans go to an exporter that drops them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import truediv
from statistics import median
from typing import NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from bench.events import CPU, DATABASES, RATE
from bench.harness import drain, scratch_database
from bench.report.files import keep, scaled
from bench.report.readings import Reading
from bench.report.targets import TRACED, UNTRACED
from bench.rows import empty

WORKS = 5000
#: Many short rounds: a shared machine may swing by a third from one second to the next.
ROUNDS = 30
SAMPLED = 0.1
#: Works that are queued in one transaction.
TOGETHER = 500


class Round(NamedTuple):
    """One round: works per second, and microseconds of this process's CPU time per work."""

    enqueued: float
    drained: float
    cpu: float


class Dropping(SpanExporter):
    """An exporter that sends nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop the spans."""
        return SpanExportResult.SUCCESS


def main() -> None:
    """Print the medians of each kind, and of the ratios of rounds that followed one another; keep all rounds.

    A rate swings with the load of the machine, so the CPU time per work is the steadier figure.
    """
    with scratch_database() as vendor:
        one_round()
        with instrumented():
            one_round()
        pairs = [pair(number) for number in range(scaled(ROUNDS, 3))]
    off, on = zip(*pairs, strict=True)
    print(f"{vendor}: {WORKS} no-op works, {len(pairs)} pairs of rounds, without OpenTelemetry and with it,")
    print(f"  {SAMPLED:.0%} of the traces sampled; medians")
    for name, unit in (
        ("enqueued", "works/s"),
        ("drained", "works/s"),
        ("cpu", "µs per work while draining"),
    ):
        without, traced = ([getattr(each, name) for each in kind] for kind in (off, on))
        ratio = median(map(truediv, traced, without))
        print(f"  {name:8} {median(without):7,.0f} {median(traced):7,.0f} {unit}: {ratio:.2f} of it without")
    keep(f"tracing-{DATABASES[vendor]}", readings(DATABASES[vendor], {UNTRACED: off, TRACED: on}))


def readings(database: str, rounds: Mapping[str, Sequence[Round]]) -> list[Reading]:
    """Return what is kept of the rounds of each setting: the drain."""
    return [
        Reading("tracing", "ours", database, setting, figure, tuple(getattr(one, name) for one in taken))
        for figure, name in ((RATE, "drained"), (CPU, "cpu"))
        for setting, taken in rounds.items()
    ]


def pair(number: int) -> tuple[Round, Round]:
    """Measure a round without and one with OpenTelemetry, in an order that takes turns."""
    if number % 2:
        without = one_round()
    with instrumented():
        traced = one_round()
    if not number % 2:
        without = one_round()
    return without, traced


def one_round() -> Round:
    """Queue works and drain them."""
    empty()
    started = time.monotonic()
    fill_one_by_one()
    filled = time.monotonic() - started
    used = time.process_time()
    drained = drain()
    return Round(WORKS / filled, WORKS / drained, 1e6 * (time.process_time() - used) / WORKS)


def fill_one_by_one() -> None:
    """Queue no-op works, each by a call of its own."""
    from django.db import transaction

    from bench.works import noop
    from django_ayework import enqueue

    for start in range(0, WORKS, TOGETHER):
        with transaction.atomic():
            for number in range(start, min(WORKS, start + TOGETHER)):
                enqueue(noop(number=number))


@contextmanager
def instrumented() -> Iterator[None]:
    """Trace works, with a tenth of the traces sampled."""
    from django_ayework.contrib.opentelemetry import AyeworkInstrumentor

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SAMPLED)))
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    AyeworkInstrumentor().instrument(tracer_provider=provider)
    try:
        yield
    finally:
        AyeworkInstrumentor().uninstrument()
        provider.shutdown()


if __name__ == "__main__":
    main()
