"""Tables, constraints and named indexes; no behaviour."""

from django_ayework.models.groups import Edge, Group, Waiter
from django_ayework.models.operation import StoreEntry, WorkControl, WorkerProcess
from django_ayework.models.schedule import Firing, Schedule
from django_ayework.models.work import Attempt, DeadLetter, Work

__all__ = [
    "Attempt",
    "DeadLetter",
    "Edge",
    "Firing",
    "Group",
    "Schedule",
    "StoreEntry",
    "Waiter",
    "Work",
    "WorkControl",
    "WorkerProcess",
]
