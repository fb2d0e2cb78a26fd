"""The app that counts for Prometheus: its receivers load what counts with the first event."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal

from django_ayework import signals
from django_ayework.documentation import documented

if TYPE_CHECKING:
    from django_ayework.flow.events import EventBatch

UID = "django_ayework.contrib.prometheus"


class PrometheusConfig(AppConfig):
    """The app ``django_ayework.contrib.prometheus``; it has no tables."""

    name = "django_ayework.contrib.prometheus"
    label = "ayework_prometheus"
    verbose_name = "Metrics for Prometheus"

    def ready(self) -> None:
        """Listen to the engine, and give workers the page. Raises ImproperlyConfigured without the client."""
        from django_ayework.contrib.prometheus import page
        from django_ayework.worker.http import providers

        if find_spec("prometheus_client") is None:
            raise documented(
                ImproperlyConfigured(
                    f"expected prometheus_client for {self.name!r} in INSTALLED_APPS, but it is not "
                    'installed; run pip install "django-ayework[metrics]".'
                ),
                "package-missing",
            )
        connect()
        providers.exporter = page.exporter


@cache
def series() -> Any:
    """Return the module of the series; it imports ``prometheus_client``."""
    return import_module("django_ayework.contrib.prometheus.series")


def on_batch(batch: EventBatch[Any], **kwargs: object) -> None:
    """Count events of works."""
    series().count_batch(batch)


def on_refused(sender: str, cause: str, **kwargs: object) -> None:
    """Count an outcome that came too late."""
    series().count_refused(sender, cause)


def on_error(phase: str, **kwargs: object) -> None:
    """Count an error of the engine or of a hook."""
    series().ERRORS.labels(phase).inc()


def on_worker_started(**kwargs: object) -> None:
    """Count a worker that started, and begin the counters of failures at 0."""
    series().begin()


def on_worker_stopped(**kwargs: object) -> None:
    """Count a worker that stopped."""
    series().WORKERS_STOPPED.inc()


RECEIVERS: dict[Signal, Callable[..., None]] = {
    signals.batch_announced: on_batch,
    signals.outcome_refused: on_refused,
    signals.error_reported: on_error,
    signals.worker_started: on_worker_started,
    signals.worker_stopped: on_worker_stopped,
}


def connect() -> None:
    """Count from now on."""
    for signal, receiver in RECEIVERS.items():
        signal.connect(receiver, dispatch_uid=UID)


def disconnect() -> None:
    """Count no more."""
    for signal in RECEIVERS:
        signal.disconnect(dispatch_uid=UID)
