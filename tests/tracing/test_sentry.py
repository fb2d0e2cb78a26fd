"""Sentry: what reaches its transport."""

import pytest
import sentry_sdk
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from django_ayework import Retry, enqueue, enqueue_many, propagation, work
from django_ayework.contrib.sentry import AyeworkIntegration
from django_ayework.flow.payloads import headers_of
from django_ayework.models import Work
from django_ayework.testing import drain, running_worker
from tests.marks import each_database
from tests.processes import eventually
from tests.tracing import works

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


class Sent(Transport):
    """Keeps what would be sent."""

    def __init__(self, options=None):
        super().__init__(options)
        self.events = []

    def capture_envelope(self, envelope):
        for item in envelope.items:
            self.events.append(item.get_event() or item.get_transaction_event())

    def errors(self):
        return [event for event in self.events if event and event.get("type") != "transaction"]

    def transactions(self):
        return {event["transaction"]: event for event in self.events if event.get("type") == "transaction"}


@pytest.fixture
def initialised():
    """Initialise the SDK for one test."""
    before = list(propagation.propagators)

    def initialise(integration=None, **options):
        sent = Sent()
        integrations = [integration or AyeworkIntegration(), LoggingIntegration()]
        options |= {"default_integrations": False, "integrations": integrations}
        sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=sent, **options)
        return sent

    with sentry_sdk.isolation_scope():
        yield initialise
        sentry_sdk.init()
    assert len(propagation.propagators) <= len(before) + 1


def crumbs(event):
    """The breadcrumbs of works in an event."""
    return [each["message"] for each in event["breadcrumbs"]["values"] if each["category"] == "ayework"]


def mechanism(event):
    return event["exception"]["values"][0]["mechanism"]


@each_database
def test_a_work_that_dies_is_sent_once_with_its_context(initialised):
    sent = initialised()
    handle = enqueue(works.failing(pin="1234"))
    drain(raises=False)
    [event] = sent.errors()
    [exception] = event["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("ValueError", "no luck")
    assert (mechanism(event)["type"], mechanism(event)["handled"]) == ("ayework", False)
    about = {"id": handle.id, "type": "tracing.failing", "queue": "default", "group": handle.id}
    assert event["contexts"]["work"] == {**about, "attempt": 2, "attempts": 2}
    assert event["tags"] == {
        "ayework.type": "tracing.failing",
        "ayework.work": handle.id,
        "ayework.outcome": "died",
        "ayework.reason": "exhausted",
    }
    assert crumbs(event) == ["attempt 2 of 2 started"]


def test_attempts_that_are_followed_by_another_are_sent_if_asked_for(initialised):
    sent = initialised(AyeworkIntegration(capture_retries=True))
    enqueue(works.failing())
    enqueue(works.deferring())
    drain(raises=False)
    found = [(event["tags"]["ayework.outcome"], mechanism(event)["handled"]) for event in sent.errors()]
    assert found == [("failed", True), ("died", False)]


@pytest.mark.filterwarnings("ignore:The send_default_pii option:DeprecationWarning")
@pytest.mark.parametrize("options", [
    {"send_default_pii": True}, {"data_collection": {"queues": True}}, {"data_collection": {}},
])  # fmt: skip
def test_the_input_is_sent_if_it_may_be_and_without_what_is_redacted(initialised, options):
    sent = initialised(**options)
    enqueue(works.failing(pin="1234", order=7))
    drain(raises=False)
    assert sent.errors()[0]["contexts"]["work"]["input"] == {"pin": "••••", "order": 7}


@pytest.mark.parametrize("options", [
    {"include_local_variables": False},
    {"data_collection": {"queues": False, "stack_frame_variables": False}},
])  # fmt: skip
def test_no_input_leaves_the_site_with_the_options_that_the_page_names(initialised, options):
    sent = initialised(**options)
    enqueue(works.failing(pin="1234", order=7))
    drain(raises=False)
    [error] = sent.errors()
    assert "input" not in error["contexts"]["work"]
    frames = error["exception"]["values"][0]["stacktrace"]["frames"]
    assert not any(frame.get("vars") for frame in frames)


@pytest.mark.django_db(transaction=True)
def test_what_the_worker_logs_of_a_dead_work_is_not_sent_again(initialised, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "UNKNOWN_TYPE_GRACE": 0}
    sent = initialised()
    unknown = enqueue(works.plain())
    Work.objects.update(type="tracing.gone")
    dead = enqueue(works.aborting())
    with running_worker(concurrency=1):
        eventually(lambda: Work.objects.filter(status="dead").count() == 2)
    [logged, raised] = sorted(sent.errors(), key=lambda event: "exception" in event)
    assert "exception" not in logged
    assert unknown.id in logged["logentry"]["formatted"]
    assert raised["contexts"]["work"]["id"] == dead.id


def test_scopes_of_works_are_apart_and_a_request_tells_what_it_has_queued(initialised):
    sent = initialised()

    @work(name="tracing.tagging", retry=Retry(attempts=1))
    def tagging(number: int) -> None:
        sentry_sdk.set_tag(f"number {number}", "set")
        enqueue(works.plain())
        raise ValueError

    enqueue_many([tagging(number=1), tagging(number=2)])
    sentry_sdk.capture_message("in the request")
    drain(raises=False)
    message, *errors = sent.errors()
    assert crumbs(message) == ["queued tracing.tagging"]
    for number, event in enumerate(errors, 1):
        assert [name for name in event["tags"] if name.startswith("number")] == [f"number {number}"]
        assert crumbs(event) == ["attempt 1 of 1 started", "queued tracing.plain"]


def test_an_attempt_continues_the_trace_of_the_request(initialised):
    sent = initialised(traces_sample_rate=1.0)
    with sentry_sdk.start_transaction(op="http.server", name="request"):
        enqueue(works.asynchronous(), queue="mail")
    drain()
    request, attempt = (sent.transactions()[name] for name in ("request", "tracing.asynchronous"))
    [publish] = request["spans"]
    trace = attempt["contexts"]["trace"]
    operations = (publish["op"], trace["op"], trace["origin"])
    assert operations == ("queue.publish", "queue.process", "auto.queue.ayework")
    assert trace["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert trace["parent_span_id"] == publish["span_id"]
    assert trace["data"]["messaging.destination.name"] == "mail"
    assert trace["status"] == "ok"
    assert {"sentry-trace", "sentry-baggage"} == set(headers_of(Work.objects.get().options))


def test_a_batch_sends_an_event_for_each_work_that_died(initialised):
    sent = initialised(traces_sample_rate=1.0)
    handles = enqueue_many([works.batched(number) for number in (1, 2, 3)])
    Work.objects.update(attempt=2)
    drain(limit=3, raises=False)
    assert [event["tags"]["ayework.work"] for event in sent.errors()] == [handles[0].id, handles[2].id]
    about = {"type": "tracing.batched", "ids": [handle.id for handle in handles]}
    assert sent.errors()[0]["contexts"]["work"] == about
    assert sent.transactions()["tracing.batched"]["contexts"]["trace"]["status"] == "internal_error"


def test_without_the_sdk_initialised_nothing_is_stored_or_sent(initialised):
    sent = initialised()
    sentry_sdk.init()
    enqueue(works.failing())
    drain(raises=False)
    assert sent.events == []
    assert headers_of(Work.objects.get().options) == {}
