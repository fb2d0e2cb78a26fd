"""Tables, constraints and named indexes; no behaviour."""

from django_ayework.models.operation import (
    BulkAction,
    Firing,
    Overview,
    Schedule,
    StoreEntry,
    Throughput,
    WorkControl,
    WorkerProcess,
)
from django_ayework.models.work import Attempt, DeadLetter, Edge, Gate, Group, InputRevision, Waiter, Work

__all__ = [
    "Attempt",
    "BulkAction",
    "DeadLetter",
    "Edge",
    "Firing",
    "Gate",
    "Group",
    "InputRevision",
    "Overview",
    "Schedule",
    "StoreEntry",
    "Throughput",
    "Waiter",
    "Work",
    "WorkControl",
    "WorkerProcess",
]
