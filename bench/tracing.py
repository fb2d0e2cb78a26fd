"""What OpenTelemetry costs: the rates of queueing and draining without it, and with one trace in ten sampled.

Every work is queued by a call of its own, so each has a trace of its own. A third kind of round has no
instrumentation: its handler makes the calls of OpenTelemetry that an attempt cannot do without, and no more.
That is the part of the cost that is the SDK's. The kinds of rounds take turns, so that what else the machine
does meets all of them. Spans go to an exporter that drops them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import truediv
from statistics import median
from typing import Any, NamedTuple

from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

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
    """Print the medians of each kind, and of the ratios of rounds that followed one another; keep the rounds.

    A rate swings with the load of the machine, so the CPU time per work is the steadier figure.
    """
    with scratch_database() as vendor:
        rounds(0)
        taken = [rounds(number) for number in range(scaled(ROUNDS, 3))]
    off, bare, on = zip(*taken, strict=True)
    print(f"{vendor}: {WORKS} no-op works, {len(taken)} rounds of each kind, medians:")
    print(f"  without OpenTelemetry; with its calls in the handler; instrumented ({SAMPLED:.0%} sampled)")
    for name, unit in (
        ("enqueued", "works/s"),
        ("drained", "works/s"),
        ("cpu", "µs per work while draining"),
    ):
        without, calls, traced = ([getattr(each, name) for each in kind] for kind in (off, bare, on))
        figures = " ".join(f"{median(each):7,.0f}" for each in (without, calls, traced))
        ratios = " and ".join(f"{median(map(truediv, each, without)):.2f}" for each in (calls, traced))
        print(f"  {name:8} {figures} {unit}: {ratios} of it without")
    keep(f"tracing-{DATABASES[vendor]}", readings(DATABASES[vendor], {UNTRACED: off, TRACED: on}))


def readings(database: str, rounds: Mapping[str, Sequence[Round]]) -> list[Reading]:
    """Return what is kept of the rounds of each setting: the drain."""
    return [
        Reading("tracing", "ours", database, setting, figure, tuple(getattr(one, name) for one in taken))
        for figure, name in ((RATE, "drained"), (CPU, "cpu"))
        for setting, taken in rounds.items()
    ]


def rounds(number: int) -> tuple[Round, Round, Round]:
    """Measure a round of each kind, in an order that takes turns."""
    kinds = [untraced, bare, traced]
    first = number % len(kinds)
    measured = {kind: kind() for kind in kinds[first:] + kinds[:first]}
    return measured[untraced], measured[bare], measured[traced]


def untraced() -> Round:
    """Measure a round without OpenTelemetry."""
    from bench.works import noop

    return one_round(noop)


def bare() -> Round:
    """Measure a round whose handler makes the calls of OpenTelemetry."""
    with spans() as provider:
        return one_round(by_hand(provider))


def traced() -> Round:
    """Measure a round of an instrumented process."""
    from bench.works import noop
    from django_ayework.contrib.opentelemetry import AyeworkInstrumentor

    with spans() as provider:
        AyeworkInstrumentor().instrument(tracer_provider=provider)
        try:
            return one_round(noop)
        finally:
            AyeworkInstrumentor().uninstrument()


def one_round(work_type: Any) -> Round:
    """Queue works of a type and drain them."""
    from django_ayework.worker.process import freeze_loaded_objects

    empty()
    started = time.monotonic()
    fill_one_by_one(work_type)
    filled = time.monotonic() - started
    gc.collect()
    freeze_loaded_objects()  # as worker processes do; else one round in three meets a full collection
    used = time.process_time()
    drained = drain()
    return Round(WORKS / filled, WORKS / drained, 1e6 * (time.process_time() - used) / WORKS)


def fill_one_by_one(work_type: Any) -> None:
    """Queue no-op works, each by a call of its own."""
    from django.db import transaction

    from django_ayework import enqueue

    for start in range(0, WORKS, TOGETHER):
        with transaction.atomic():
            for number in range(start, min(WORKS, start + TOGETHER)):
                enqueue(work_type(number=number))


@contextmanager
def spans() -> Iterator[TracerProvider]:
    """Make a provider that samples a tenth of the traces."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SAMPLED)))
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    try:
        yield provider
    finally:
        provider.shutdown()


#: As many attributes as the span of an attempt has.
ATTRIBUTES = {f"messaging.attribute.{number}": "a value" for number in range(8)}


def by_hand(provider: TracerProvider) -> Any:
    """Declare a no-op work whose handler makes the context of its trace current, and a span of each tenth."""
    from django_ayework import work

    tracer = provider.get_tracer("bench")
    unsampled, sampled = (
        set_span_in_context(NonRecordingSpan(SpanContext(1, 2, True, TraceFlags(flag))), Context())
        for flag in (0, 1)
    )
    one_in = round(1 / SAMPLED)

    @work(name="bench.by_hand")
    def handler(number: int) -> int:
        span = (
            None if number % one_in else tracer.start_span("process", sampled, SpanKind.CONSUMER, ATTRIBUTES)
        )
        token = attach(unsampled if span is None else set_span_in_context(span, sampled))
        detach(token)
        if span is not None:
            span.end()
        return number

    return handler


if __name__ == "__main__":
    main()
