"""Dead letters: dead works, awaiting a human's decision."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

from django_ayework.admin import columns
from django_ayework.admin.actions import retry_selected
from django_ayework.admin.deleting import delete_chains_selected
from django_ayework.admin.filters import ReasonFilter, TypeFilter
from django_ayework.admin.paging import LightChangeList
from django_ayework.admin.works import WorkAdmin
from django_ayework.models import DeadLetter
from django_ayework.rules.states import Status
from django_ayework.store.stand_ins import ENDED_AT, ended_as


@admin.register(DeadLetter)
class DeadLetterAdmin(WorkAdmin):
    """Dead works, the last to die first; once retried or deleted they are gone from here."""

    retry_permissions: tuple[str, ...] = ("django_ayework.change_deadletter", "django_ayework.change_work")
    delete_permissions: tuple[str, ...] = ("django_ayework.delete_deadletter", "django_ayework.delete_work")

    actions: Any = (retry_selected, delete_chains_selected)
    list_display: Any = (
        columns.short_id,
        columns.type_and_error,
        columns.reason,
        columns.attempt,
        columns.died,
    )
    list_filter: ClassVar[Any] = (ReasonFilter, TypeFilter)
    ordering: ClassVar[Any] = (ENDED_AT.desc(), "-id")
    sortable_by = (columns.died.__name__,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the dead, in words that lead the database to their index."""
        return ended_as(super().get_queryset(request), Status.DEAD)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the plain list: an index leads to the dead."""
        return LightChangeList
