"""OpenTelemetry: the spans, what leads from one to another, and their attributes."""

import sys
import tomllib
from importlib import import_module

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags

from django_ayework import dependency, enqueue, enqueue_many, work
from django_ayework.contrib.opentelemetry import AyeworkInstrumentor
from django_ayework.flow.payloads import headers_of
from django_ayework.models import Work
from django_ayework.testing import drain, perform, running_worker
from tests.marks import each_database
from tests.processes import ROOT
from tests.tracing import works

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
unsampled = pytest.mark.parametrize("sampler", [ALWAYS_OFF])


class Spans:
    """What was exported."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.instrumentor = AyeworkInstrumentor()

    def sample(self, sampler):
        """Instrument anew, as a process that samples so."""
        self.instrumentor.uninstrument()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.instrumentor.instrument(tracer_provider=self.provider)

    @property
    def all(self):
        return self.exporter.get_finished_spans()

    def named(self, name):
        return [span for span in self.all if span.name == name]

    def one(self, name):
        [span] = self.named(name)
        return span


@pytest.fixture
def sampler():
    return ALWAYS_ON


@pytest.fixture
def spans(sampler):
    recorded = Spans()
    recorded.sample(ParentBased(sampler))
    yield recorded
    recorded.instrumentor.uninstrument()


def links(span):
    """The spans that this one is linked to, by what it says of the link."""
    found = {}
    for link in span.links:
        found.setdefault(link.attributes["ayework.link"], []).append(link.context.span_id)
    return found


def traceparent():
    return headers_of(Work.objects.get().options)["traceparent"]


@each_database
def test_an_attempt_continues_the_trace_of_the_request(spans):
    with spans.provider.get_tracer("shop").start_as_current_span("request"):
        handle = enqueue(works.plain(), queue="mail")
    drain()
    request, send, process = map(spans.one, ("request", "send tracing.plain", "process tracing.plain"))
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.parent.span_id == request.context.span_id
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == request.context.trace_id
    about = {
        "messaging.system": "ayework",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "ayework.type": "tracing.plain",
    }
    operation = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert send.attributes == {**about, **operation}
    attempt = {"messaging.client.id": "drain", "ayework.attempt": 1}
    assert process.attributes == {**about, **dict.fromkeys(operation, "process"), **attempt}
    assert process.status.status_code is StatusCode.UNSET


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_polls")
def test_in_a_worker_the_span_is_the_current_one_of_the_handler(spans):
    def call():
        spans.provider.get_tracer("shop").start_span("call").end()

    @work(name="tracing.calling")
    def plain() -> None:
        call()

    @work(name="tracing.acalling")
    async def asynchronous() -> None:
        call()

    with running_worker(concurrency=2):
        for request in (plain(), asynchronous()):
            enqueue(request).result(20)
    called = [span.parent.span_id for span in spans.named("call")]
    names = ("process tracing.calling", "process tracing.acalling")
    assert called == [spans.one(name).context.span_id for name in names]


def test_an_error_is_recorded_with_the_attempt_and_the_reason_and_a_deferral_is_none(spans):
    enqueue(works.failing())
    enqueue(works.deferring())
    drain(raises=False)
    first, second = spans.named("process tracing.failing")
    names = ("ayework.attempt", "ayework.outcome", "ayework.reason")
    found = [tuple(span.attributes.get(name) for name in names) for span in (first, second)]
    assert found == [(1, "failed", None), (2, "died", "exhausted")]
    assert second.attributes["error.type"] == "builtins.ValueError"
    status = second.status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "builtins.ValueError: no luck")
    [event] = second.events
    assert event.attributes["exception.message"] == "no luck"
    assert first.parent == second.parent
    span = spans.one("process tracing.deferring")
    assert (span.attributes["ayework.outcome"], span.status.status_code) == ("deferred", StatusCode.UNSET)
    assert perform(works.failing()).error is not None


def test_works_that_are_queued_together_have_one_span(spans):
    enqueue_many([works.plain() for _ in range(5)])
    drain()
    send = spans.one("send tracing.plain")
    assert send.attributes["messaging.batch.message_count"] == 5
    assert "messaging.message.id" not in send.attributes
    attempts = spans.named("process tracing.plain")
    assert [span.parent.span_id for span in attempts] == [send.context.span_id] * 5


@pytest.mark.parametrize(("first", "relation"), [(works.parent, "parent"), (works.step, "previous")])
def test_a_child_and_a_continuation_are_linked_to_the_attempt_before(spans, first, relation):
    enqueue(first())
    drain()
    before = spans.one(f"process {first.name}").context
    send, after = spans.one("send tracing.plain"), spans.one("process tracing.plain")
    assert send.parent.span_id == before.span_id
    assert after.context.trace_id == before.trace_id
    assert links(after) == {relation: [before.span_id]}


@each_database
def test_a_released_work_is_linked_to_what_its_gate_waited_for(spans):
    one, two = works.plain(), works.atomic()
    gate = enqueue(dependency(on=[one, two], queue=[works.last(), works.alast()]))
    for request in (one, two):
        enqueue(request)
    drain()
    sent = [spans.one(f"send tracing.{name}").context.span_id for name in ("plain", "atomic")]
    for name in ("last", "alast"):
        released = spans.one(f"process tracing.{name}")
        assert {key: sorted(ids) for key, ids in links(released).items()} == {"waited_for": sorted(sent)}
        [queued] = [span for span in spans.all if span.context.span_id == released.parent.span_id]
        assert queued.attributes["messaging.message.id"] == gate.id


def test_a_batch_is_one_span_that_is_linked_to_each_work(spans):
    handles = [enqueue(works.batched(number)) for number in (2, 3)]
    drain(limit=2, raises=False)
    sent = [span.context.span_id for span in spans.named("send tracing.batched")]
    span = spans.one("process tracing.batched")
    assert span.parent is None
    assert [(link.context.span_id, link.attributes["messaging.message.id"]) for link in span.links] == [
        (id, handle.id) for id, handle in zip(sent, handles, strict=True)
    ]
    assert (span.attributes["messaging.batch.message_count"], span.attributes["ayework.failed"]) == (2, 1)
    assert [event.attributes["messaging.message.id"] for event in span.events] == [handles[1].id]


@pytest.mark.parametrize("sampler", [ALWAYS_ON, ALWAYS_OFF], ids=["sampled", "not sampled"])
def test_baggage_is_stored_and_comes_to_the_handler_with_the_trace_of_its_request(spans, sampler):
    found = []

    @work(name="tracing.carrying")
    def carrying() -> None:
        context = trace.get_current_span().get_span_context()
        found.append((baggage.get_baggage("tenant"), context.trace_id))

    token = attach(baggage.set_baggage("tenant", "acme"))
    enqueue(carrying())
    detach(token)
    spans.sample(ParentBased(ALWAYS_ON))
    drain()
    assert found == [("acme", int(traceparent().split("-")[1], 16))]
    assert headers_of(Work.objects.get().options)["baggage"] == "tenant=acme"
    assert bool(spans.all) is (sampler is ALWAYS_ON)
    assert baggage.get_baggage("tenant") is None
    assert not trace.get_current_span().get_span_context().is_valid


@unsampled
def test_what_a_request_does_not_sample_is_not_sampled_later(spans):
    one = works.plain()
    enqueue(dependency(on=[one], queue=[works.last()]))
    enqueue(one)
    enqueue(works.step())
    spans.sample(ParentBased(ALWAYS_ON))
    drain()
    assert spans.all == ()
    continued = headers_of(Work.objects.get(chain_index=1).options)
    assert list(continued) == ["traceparent"]
    assert not int(continued["traceparent"][-2:], 16) & TraceFlags.SAMPLED


@unsampled
@pytest.mark.parametrize(
    "own",
    [
        ALWAYS_ON,
        ParentBased(ALWAYS_OFF, remote_parent_not_sampled=ALWAYS_ON),
        ParentBased(ParentBased(ALWAYS_OFF), remote_parent_not_sampled=ALWAYS_ON),
    ],
    ids=["no parent", "parent of another process", "nested"],
)
def test_a_sampler_of_the_worker_that_does_not_follow_the_request_is_asked(spans, own):
    enqueue(works.plain())
    spans.sample(own)
    drain()
    process = spans.one("process tracing.plain")
    assert process.parent.is_remote
    assert process.parent.span_id == int(traceparent().split("-")[2], 16)


def test_a_traceparent_that_is_damaged_is_ignored(spans):
    enqueue(works.plain())
    damaged = f"{traceparent()[1:-2]}00"
    Work.objects.update(options=Work.objects.get().options.replace(traceparent(), damaged))
    drain()
    assert spans.one("process tracing.plain").parent is None


def test_without_a_provider_and_without_the_instrumentor_nothing_is_stored():
    enqueue(works.plain())
    AyeworkInstrumentor().instrument()
    enqueue(works.plain())
    AyeworkInstrumentor().uninstrument()
    assert [headers_of(text) for text in Work.objects.values_list("options", flat=True)] == [{}, {}]


@pytest.mark.parametrize(("name", "package"), [("opentelemetry", "opentelemetry"), ("sentry", "sentry_sdk")])
def test_a_missing_package_is_named_with_its_extra(name, package, monkeypatch):
    for module in [each for each in sys.modules if each.startswith(f"django_ayework.contrib.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [package, *(each for each in sys.modules if each.partition(".")[0] == package)]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install django-ayework\[{name}\]"):
        import_module(f"django_ayework.contrib.{name}")


def test_the_entry_point_leads_to_the_instrumentor():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["opentelemetry_instrumentor"]["ayework"].partition(":")
    assert getattr(import_module(module), name) is AyeworkInstrumentor
