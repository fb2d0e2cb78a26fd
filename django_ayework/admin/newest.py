"""Where no index serves a filter, the list looks at a bounded number of works, and says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from django_ayework.admin.paging import LightChangeList
from django_ayework.admin.search import is_by_type
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import rows

#: Works that a filter without an index looks at.
LOOKED_AT = 100_000
#: Statuses with an index of their own.
INDEXED = frozenset({Status.SCHEDULED, Status.PENDING, Status.RUNNING, Status.DEAD, Status.CANCELLED})


class WorkChangeList(LightChangeList):
    """A list of works: filters by type and queue see the newest, and a link goes on to older ones."""

    #: The oldest work that was looked at; None when all were.
    oldest: str | None = None
    looked_at = LOOKED_AT

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Any]:
        """Return the filtered works, those found without an index among the newest only."""
        found = super().get_queryset(request, exclude_parameters)
        if is_broad(self.params, self.query):
            self.oldest = oldest_of_newest(self.params.get("id__lt"))
        if self.oldest is None:
            return found
        return found.filter(id__gte=self.oldest)

    @property
    def older_url(self) -> str | None:
        """The address of the works that were not looked at, or None."""
        if (url := super().older_url) is not None or self.oldest is None or not self.is_last_page:
            return url
        return self.older_than(self.oldest)


def is_broad(params: Mapping[str, str], query: str) -> bool:
    """Tell whether works are looked for by columns without an index, and by none with one.

    Most statuses lead to their few works by an index. Those that succeeded are many, so they are found at
    once; only together with another filter is there far to look.
    """
    status = params.get("status")
    if status in INDEXED or "reason" in params or "group_id" in params:
        return False
    if query:
        return is_by_type(query)
    return status == Status.BLOCKED or "type" in params or "queue" in params


def oldest_of_newest(before: str | None) -> str | None:
    """Return the id of the last work to look at, or None when there are not as many."""
    works = rows(Work).order_by("-id")
    if before is not None:
        works = works.filter(id__lt=before)
    return works.values_list("id", flat=True)[LOOKED_AT - 1 : LOOKED_AT].first()
