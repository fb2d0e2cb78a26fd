"""The admin: works, groups, schedules and workers to look at, to act on, and types to control."""

from django_ayework.admin.bulk_actions import BulkActionAdmin
from django_ayework.admin.controls import WorkControlAdmin
from django_ayework.admin.dead_letters import DeadLetterAdmin
from django_ayework.admin.entries import StoreEntryAdmin
from django_ayework.admin.gates import GateAdmin
from django_ayework.admin.groups import GroupAdmin
from django_ayework.admin.overview import OverviewAdmin
from django_ayework.admin.schedules import ScheduleAdmin
from django_ayework.admin.workers import WorkerProcessAdmin
from django_ayework.admin.works import WorkAdmin

__all__ = [
    "BulkActionAdmin",
    "DeadLetterAdmin",
    "GateAdmin",
    "GroupAdmin",
    "OverviewAdmin",
    "ScheduleAdmin",
    "StoreEntryAdmin",
    "WorkAdmin",
    "WorkControlAdmin",
    "WorkerProcessAdmin",
]
