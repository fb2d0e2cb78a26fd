"""The instrumentor: turns spans on and off for this process."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]  # not typed
from opentelemetry.trace import get_tracer

from django_ayework import propagation
from django_ayework.contrib.opentelemetry.spans import TracePropagator


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
