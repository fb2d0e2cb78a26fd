"""Sentry: errors of works with their context, breadcrumbs and traces. It needs the extra sentry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django_ayework import propagation
from django_ayework.documentation import documented
from django_ayework.propagation import AttemptFailure, Propagator, Queueing, RunningAttempt
from django_ayework.rules.states import Outcome

try:
    import sentry_sdk
    from sentry_sdk.integrations import Integration
    from sentry_sdk.scope import add_global_event_processor, should_send_default_pii
    from sentry_sdk.utils import event_from_exception
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("sentry_sdk"):
        raise
    raise documented(
        ImportError(
            "reporting works to Sentry needs sentry_sdk, which is not installed: "
            "pip install django-ayework[sentry]."
        ),
        "package-missing",
    ) from missing

ORIGIN = "auto.queue.ayework"
#: The SDK's headers, and under which names they are stored: OpenTelemetry has a header "baggage", too.
HEADERS = {"sentry-trace": "sentry-trace", "baggage": "sentry-baggage"}
#: Attempts whose errors were sent, and that the worker has not logged yet.
MOST_SENT = 1000


class AyeworkIntegration(Integration):
    """Reports works that died, each in an isolation scope of its attempt.

    ``capture_retries`` reports failed attempts that are followed by another, too.
    """

    identifier = "ayework"
    origin = ORIGIN

    def __init__(self, capture_retries: bool = False) -> None:
        self.capture_retries = capture_retries

    @staticmethod
    def setup_once() -> None:
        """Connect works to the SDK; called by ``sentry_sdk.init``, once in a process."""
        propagator = SentryPropagator()
        propagation.register(propagator)
        add_global_event_processor(propagator.without_repetition)


def integration() -> AyeworkIntegration | None:
    """Return the integration if the SDK is initialised with it."""
    return sentry_sdk.get_client().get_integration(AyeworkIntegration)


class SentryPropagator(Propagator):
    """Stores the SDK's trace headers with works, and isolates their attempts."""

    def __init__(self) -> None:
        self._sent: OrderedDict[tuple[str, int], None] = OrderedDict()

    def inject(self, queueing: Queueing) -> Mapping[str, str]:
        """Leave a breadcrumb, and a span if there is a trace; return the trace headers."""
        if integration() is None:
            return {}
        name = queueing.type or "works"
        facts = {"type": queueing.type, "queue": queueing.queue, "number": queueing.number, "id": queueing.id}
        data = {key: value for key, value in facts.items() if value is not None}
        sentry_sdk.add_breadcrumb(category="ayework", message=f"queued {name}", data=data)
        if sentry_sdk.get_current_span() is None:
            return trace_headers()
        with sentry_sdk.start_span(op="queue.publish", name=name, origin=ORIGIN) as span:
            span.set_data("messaging.system", "ayework")
            span.set_data("messaging.destination.name", queueing.queue or "")
            span.set_data("messaging.message.id", queueing.id or "")
            return trace_headers()

    def attach(self, attempt: RunningAttempt) -> AbstractContextManager[None] | None:
        """Return the block of an attempt: an isolation scope and a transaction."""
        active = integration()
        return None if active is None else self._isolated(attempt, active)

    @contextmanager
    def _isolated(self, attempt: RunningAttempt, active: AyeworkIntegration) -> Generator[None]:
        work = attempt.works[0]
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_tag("ayework.type", attempt.type)
            scope.set_context("work", facts_of(attempt))
            headers = {} if attempt.is_batch else attempt.headers
            transaction = sentry_sdk.continue_trace(
                {name: headers[stored] for name, stored in HEADERS.items() if stored in headers},
                op="queue.process",
                name=attempt.type,
                source="task",
                origin=ORIGIN,
            )
            with sentry_sdk.start_transaction(transaction) as span:
                span.set_data("messaging.system", "ayework")
                span.set_data("messaging.destination.name", work.queue)
                span.set_data("messaging.message.id", work.id)
                span.set_data("messaging.message.retry.count", work.attempt - 1)
                message = f"attempt {work.attempt} of {work.attempts} started"
                sentry_sdk.add_breadcrumb(category="ayework", message=message)
                yield
                errors = [each for each in attempt.failures if each.outcome in (Outcome.FAILED, Outcome.DIED)]
                span.set_status("internal_error" if errors else "ok")
                for failure in errors:
                    if failure.outcome is Outcome.DIED or active.capture_retries:
                        self._capture(failure)

    def _capture(self, failure: AttemptFailure) -> None:
        """Send the error of an attempt; what the worker will log of it is not sent again."""
        work = failure.work
        event, hint = event_from_exception(
            failure.error,
            client_options=sentry_sdk.get_client().options,
            mechanism={"type": "ayework", "handled": failure.outcome is Outcome.FAILED},
        )
        with sentry_sdk.new_scope() as scope:
            scope.set_tag("ayework.outcome", str(failure.outcome))
            scope.set_tag("ayework.work", work.id)
            if failure.reason:
                scope.set_tag("ayework.reason", failure.reason)
            sentry_sdk.capture_event(event, hint)
        self._sent[work.id, work.attempt] = None
        while len(self._sent) > MOST_SENT:
            self._sent.popitem(last=False)

    def without_repetition(self, event: Any, hint: dict[str, Any]) -> Any:
        """Drop the event that the SDK makes of the worker's log record about an error that was sent."""
        record = hint.get("log_record")
        if record is None or record.name != "django_ayework":
            return event
        key = getattr(record, "work_id", None), getattr(record, "work_attempt", None)
        if key not in self._sent:
            return event
        self._sent.pop(key, None)  # type: ignore[arg-type]  # a key that is there has no None
        return None


def trace_headers() -> dict[str, str]:
    """Return the SDK's headers for the current trace, under the names by which they are stored."""
    headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    return {HEADERS[name]: text for name, text in headers.items() if text}


def facts_of(attempt: RunningAttempt) -> dict[str, Any]:
    """Return the context "work"; with the input, as people are shown it, if the SDK may send it."""
    if attempt.is_batch:
        return {"type": attempt.type, "ids": [work.id for work in attempt.works[:100]]}
    work = attempt.works[0]
    facts: dict[str, Any] = {
        "id": work.id,
        "type": work.type,
        "queue": work.queue,
        "group": work.group,
        "attempt": work.attempt,
        "attempts": work.attempts,
    }
    if may_send_input():
        facts["input"] = attempt.shown_input()
    return facts


def may_send_input() -> bool:
    """Tell whether the SDK may send what a queue carries; older ones have one option for all of it."""
    collection = sentry_sdk.get_client().options.get("data_collection") or {}
    if collection.get("provided_by_user"):
        return bool(collection.get("queues"))
    return should_send_default_pii()
