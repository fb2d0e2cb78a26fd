"""OpenTelemetry spans where works are queued, and of each attempt. It needs the extra opentelemetry.

Spans follow the semantic conventions for messaging systems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Final

from django_ayework import propagation
from django_ayework.documentation import documented
from django_ayework.propagation import AttemptFailure, Propagator, Queueing, RunningAttempt
from django_ayework.rules.formatting import class_path
from django_ayework.rules.states import Outcome

try:
    from opentelemetry import propagate
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]  # not typed
    from opentelemetry.trace import (
        INVALID_SPAN,
        INVALID_SPAN_CONTEXT,
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        StatusCode,
        TraceFlags,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
        get_tracer_provider,
        set_span_in_context,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("opentelemetry"):
        raise
    raise documented(
        ImportError(
            f"tracing works needs {missing.name}, which is not installed: "
            "pip install django-ayework[opentelemetry]."
        ),
        "package-missing",
    ) from missing

SYSTEM: Final = "ayework"
#: The header of a work that was queued by the outcome of another: the context of that attempt's span.
PARENT, PREVIOUS = "ayework-parent", "ayework-previous"
RELATIONS: Final = {PARENT: "parent", PREVIOUS: "previous"}
#: Links of one span, which is what SDKs keep unless they are told otherwise.
MOST_LINKS = 128
#: Outcomes that make a span one of an error; a deferral is none.
ERRORS = frozenset({Outcome.FAILED, Outcome.DIED})

#: How the first version of the header begins; its trace is sampled as the lowest bit of its flags says.
VERSION = "00-"
UNSAMPLED_DIGITS = "02468ace"
#: In the description of a sampler that respects parents, before the one for parents that are not sampled.
NOT_SAMPLED = "remoteParentNotSampled:"
W3C = TraceContextTextMapPropagator()
NOWHERE = Context()
#: The name of the current span in contexts.
[SPAN] = set_span_in_context(INVALID_SPAN, NOWHERE)


class AyeworkInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Makes spans where works are queued, and around their attempts.

    ``instrument(tracer_provider=…)`` takes a provider; without one spans go to the global provider.
    ``opentelemetry-instrument`` finds this class by its entry point.
    """

    _propagator: TracePropagator | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the packages that must be installed."""
        return ("django-ayework",)

    def _instrument(self, **kwargs: Any) -> None:
        provider = kwargs.get("tracer_provider")
        tracer = get_tracer("django_ayework", tracer_provider=provider)
        self._propagator = TracePropagator(tracer, provider)
        propagation.register(self._propagator)

    def _uninstrument(self, **kwargs: Any) -> None:
        if self._propagator is not None:
            propagation.unregister(self._propagator)


class TracePropagator(Propagator):
    """Stores the context of the span in which works are queued, and makes a span of each attempt."""

    def __init__(self, tracer: Tracer, provider: TracerProvider | None = None) -> None:
        self._tracer = tracer
        self._provider = provider

    def inject(self, queueing: Queueing) -> Mapping[str, str]:
        """Make one span for works that are queued together; return its context in the project's format."""
        attempt = get_current_span()
        span = self._tracer.start_span(
            f"send {queueing.type or 'works'}", kind=SpanKind.PRODUCER, attributes=sent(queueing)
        )
        headers: dict[str, str] = {}
        propagate.inject(headers, set_span_in_context(span))
        if queueing.parent is not None and attempt.get_span_context().trace_flags.sampled:
            link: dict[str, str] = {}
            W3C.inject(link, set_span_in_context(attempt))
            headers[PREVIOUS if queueing.continues else PARENT] = link["traceparent"]
        span.end()
        return headers

    def attach(self, attempt: RunningAttempt) -> AbstractContextManager[None]:
        """Start the span of an attempt, as a child of the span in which the work was queued.

        Where the sampler follows the decision of the parent, a work whose trace is not sampled gets no span:
        its context alone is made the current one, so that nothing is sampled that follows. A batch has no
        parent; it is linked to the spans of all its works.
        """
        if attempt.is_batch:
            return self._span(attempt, NOWHERE, links_of_batch(attempt))
        parent, is_unsampled = parent_of(attempt.headers)
        if is_unsampled and self._drops_unsampled:
            return Current(parent)
        block = self._span(attempt, parent, links_of(attempt.headers))
        if block.span.is_recording():
            for waited in attempt.waited_for(MOST_LINKS):
                if (context := span_context(parent_of(waited)[0])).is_valid:
                    block.span.add_link(context, {"ayework.link": "waited_for"})
        return block

    @cached_property
    def _drops_unsampled(self) -> bool:
        """Whether the sampler drops works whose trace is not sampled. Tracers keep the sampler they have."""
        return drops_unsampled(getattr(self._provider or get_tracer_provider(), "sampler", None))

    def _span(self, attempt: RunningAttempt, parent: Context, links: Iterator[Link]) -> AttemptSpan:
        name, attributes = f"process {attempt.type}", processed(attempt)
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, attributes, tuple(links))
        return AttemptSpan(span, parent, attempt)


class Current:
    """A block in which a context is the current one."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = attach(self._context)

    def __exit__(self, *error: object) -> None:
        detach(self._token)


class AttemptSpan(Current):
    """The block of an attempt, in which its span is the current one."""

    __slots__ = ("_attempt", "span")

    def __init__(self, span: Span, parent: Context, attempt: RunningAttempt) -> None:
        super().__init__(set_span_in_context(span, parent))
        self.span = span
        self._attempt = attempt

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self.span.is_recording():
            conclude(self.span, self._attempt)
        self.span.end()


class RemoteSpan(NonRecordingSpan):
    """The span that a traceparent names, which is read when something asks for it."""

    _read: SpanContext | None = None

    def __init__(self, traceparent: str) -> None:
        self._traceparent = traceparent

    def get_span_context(self) -> SpanContext:
        """Return what identifies the span."""
        if self._read is None:
            self._read = read_traceparent(self._traceparent)
        return self._read

    def __repr__(self) -> str:
        return f"RemoteSpan({self._traceparent!r})"


def read_traceparent(text: str) -> SpanContext:
    """Return what identifies the span that a traceparent names; an invalid context if it names none."""
    try:
        _, trace_id, span_id, flags = text.split("-")
        return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
    except ValueError:
        return INVALID_SPAN_CONTEXT


def parent_of(headers: Mapping[str, str]) -> tuple[Context, bool]:
    """Return the parent context that the headers contain, and whether it names a trace that is not sampled.

    A lone traceparent is parsed only when the span is sampled.
    """
    text = headers.get("traceparent", "")
    if text[:3] == VERSION and len(headers) == 1:
        return Context({SPAN: RemoteSpan(text)}), text[-1] in UNSAMPLED_DIGITS
    parent = propagate.extract(headers, NOWHERE)
    found = span_context(parent)
    return parent, found.is_valid and not found.trace_flags.sampled


def drops_unsampled(sampler: Any) -> bool:
    """Tell whether a sampler of the SDK drops all spans whose parent, in another process, is not sampled.

    That is so for ``ParentBased`` unless it was given another sampler for these parents, as its
    description tells. Any other sampler has to be asked for each span.
    """
    should_sample = getattr(type(sampler), "should_sample", None)
    if getattr(should_sample, "__qualname__", "") != "ParentBased.should_sample":
        return False
    text = sampler.get_description()
    return text.count(NOT_SAMPLED) == 1 and f"{NOT_SAMPLED}AlwaysOffSampler," in text


def sent(queueing: Queueing) -> dict[str, Any]:
    """Return the attributes of a span in which works are queued."""
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    if queueing.queue is not None:
        attributes["messaging.destination.name"] = queueing.queue
    if queueing.type is not None:
        attributes["ayework.type"] = queueing.type
    if queueing.id is not None:
        attributes["messaging.message.id"] = queueing.id
    else:
        attributes["messaging.batch.message_count"] = queueing.number
    return attributes


def processed(attempt: RunningAttempt) -> dict[str, Any]:
    """Return the attributes of the span of an attempt."""
    work = attempt.works[0]
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": work.queue,
        "messaging.client.id": work.worker or "",
        "ayework.type": work.type,
    }
    if attempt.is_batch:
        attributes["messaging.batch.message_count"] = len(attempt.works)
    else:
        attributes["messaging.message.id"] = work.id
        attributes["ayework.attempt"] = work.attempt
        if work.group != work.id:
            attributes["messaging.message.conversation_id"] = work.group
    return attributes


def links_of(headers: Mapping[str, str]) -> Iterator[Link]:
    """Return the link to the attempt whose outcome has queued this work, if its span was recorded."""
    for header, relation in RELATIONS.items():
        if (text := headers.get(header)) is not None:
            yield Link(span_context(W3C.extract({"traceparent": text})), {"ayework.link": relation})


def links_of_batch(attempt: RunningAttempt) -> Iterator[Link]:
    """Return the links to the spans in which the works of a batch were queued."""
    for work in attempt.works[:MOST_LINKS]:
        if (context := span_context(parent_of(work.headers)[0])).is_valid:
            yield Link(context, {"messaging.message.id": work.id})


def span_context(context: Context) -> SpanContext:
    """Return what identifies the span of a context."""
    return get_current_span(context).get_span_context()


def conclude(span: Span, attempt: RunningAttempt) -> None:
    """Say on the span how the attempt ended."""
    for failure in attempt.failures:
        note_failure(span, failure)
    if attempt.is_batch:
        span.set_attribute("ayework.failed", len(attempt.failures))


def note_failure(span: Span, failure: AttemptFailure) -> None:
    """Say on the span how a work's attempt failed, was deferred, or was given back."""
    is_error = failure.outcome in ERRORS
    span.set_attribute("ayework.outcome", str(failure.outcome or "released"))
    if failure.reason:
        span.set_attribute("ayework.reason", failure.reason)
    if is_error:
        span.set_attribute("error.type", class_path(failure.error))
        span.record_exception(failure.error, {"messaging.message.id": failure.work.id})
        span.set_status(StatusCode.ERROR, f"{class_path(failure.error)}: {failure.error}")
