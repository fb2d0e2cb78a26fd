"""The testing kit: run queued works, look at them, travel in time. For projects that use django_ayework."""

from django_ayework.testing.assertions import assert_enqueued, assert_not_enqueued, enqueued
from django_ayework.testing.clock import now, time_travel
from django_ayework.testing.running import (
    DrainReport,
    Performed,
    adrain,
    drain,
    perform,
    run_bulk_actions,
    running_worker,
    tick,
)

__all__ = [
    "DrainReport",
    "Performed",
    "adrain",
    "assert_enqueued",
    "assert_not_enqueued",
    "drain",
    "enqueued",
    "now",
    "perform",
    "run_bulk_actions",
    "running_worker",
    "tick",
    "time_travel",
]
