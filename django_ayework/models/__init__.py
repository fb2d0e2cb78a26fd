"""Tables, constraints and named indexes; no behaviour."""

from django_ayework.models.attempt import Attempt
from django_ayework.models.control import WorkControl
from django_ayework.models.entry import StoreEntry
from django_ayework.models.group import Group
from django_ayework.models.process import WorkerProcess
from django_ayework.models.schedule import Firing, Schedule
from django_ayework.models.waiter import Edge, Waiter
from django_ayework.models.work import DeadLetter, Work

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
