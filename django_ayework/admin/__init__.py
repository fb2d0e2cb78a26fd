"""The admin: works, groups and workers to look at, works to retry or delete, types to control."""

from django_ayework.admin.controls import WorkControlAdmin
from django_ayework.admin.dead_letters import DeadLetterAdmin
from django_ayework.admin.groups import GroupAdmin
from django_ayework.admin.workers import WorkerProcessAdmin
from django_ayework.admin.works import WorkAdmin

__all__ = ["DeadLetterAdmin", "GroupAdmin", "WorkAdmin", "WorkControlAdmin", "WorkerProcessAdmin"]
