"""The app that counts for Prometheus: its receivers load what counts with the first event."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal

from django_ayework import signals
from django_ayework.documentation import documented

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


#: What counts each signal.
RECEIVERS: dict[Signal, Callable[..., None]] = {
    signals.batch_announced: lambda batch, **_: series().count_batch(batch),
    signals.outcome_refused: lambda sender, cause, **_: series().count_refused(sender, cause),
    signals.error_reported: lambda phase, **_: series().ERRORS.labels(phase).inc(),
    signals.worker_started: lambda **_: series().begin(),
    signals.worker_stopped: lambda **_: series().WORKERS_STOPPED.inc(),
}


def connect() -> None:
    """Count from now on."""
    for signal, receiver in RECEIVERS.items():
        signal.connect(receiver, dispatch_uid=UID)


def disconnect() -> None:
    """Count no more."""
    for signal in RECEIVERS:
        signal.disconnect(dispatch_uid=UID)
