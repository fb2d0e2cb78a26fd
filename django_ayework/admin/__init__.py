"""The admin: works, groups, schedules and workers to look at, to act on, and types to control."""

from django_ayework.admin.controls import WorkControlAdmin
from django_ayework.admin.groups import GroupAdmin
from django_ayework.admin.schedules import ScheduleAdmin
from django_ayework.admin.workers import WorkerProcessAdmin
from django_ayework.admin.works import DeadLetterAdmin, WorkAdmin

__all__ = [
    "DeadLetterAdmin",
    "GroupAdmin",
    "ScheduleAdmin",
    "WorkAdmin",
    "WorkControlAdmin",
    "WorkerProcessAdmin",
]
