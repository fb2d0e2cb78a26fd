"""The admin: works, dead letters, groups and workers to look at, and dead works to retry."""

from django_ayework.admin.dead_letters import DeadLetterAdmin
from django_ayework.admin.groups import GroupAdmin
from django_ayework.admin.workers import WorkerProcessAdmin
from django_ayework.admin.works import WorkAdmin

__all__ = ["DeadLetterAdmin", "GroupAdmin", "WorkAdmin", "WorkerProcessAdmin"]
