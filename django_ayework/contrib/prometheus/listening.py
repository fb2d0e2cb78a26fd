"""The receivers: listeners of the engine's signals, which load what counts with the first event."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from django.dispatch import Signal

from django_ayework import signals
from django_ayework.flow.events import EventBatch

UID = "django_ayework.contrib.prometheus"


@cache
def counting() -> Any:
    """Return the module that counts; it imports ``prometheus_client``."""
    return import_module("django_ayework.contrib.prometheus.counting")


def on_batch(batch: EventBatch[Any], **kwargs: object) -> None:
    """Count events of works."""
    counting().count_batch(batch)


def on_refused(sender: str, cause: str, **kwargs: object) -> None:
    """Count an outcome that came too late."""
    counting().count_refused(sender, cause)


def on_error(phase: str, **kwargs: object) -> None:
    """Count an error of the engine or of a hook."""
    counting().series.ERRORS.labels(phase).inc()


def on_worker_started(**kwargs: object) -> None:
    """Count a worker that started, and begin the counters of failures at 0."""
    counting().begin()


def on_worker_stopped(**kwargs: object) -> None:
    """Count a worker that stopped."""
    counting().series.WORKERS_STOPPED.inc()


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
