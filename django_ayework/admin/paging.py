"""Lists whose cost does not grow with the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    BasePaginator = Paginator[Any]
else:
    BasePaginator = Paginator

#: Rows a list counts, and pages through; beyond, ``id__lt`` goes on.
COUNTED = 10_000


class CappedPaginator(BasePaginator):
    """Counts a bounded number of rows, so that a table of millions opens as fast as an empty one."""

    @cached_property
    def reached(self) -> int:
        """How many rows there are, as far as anybody counts: one more than ``COUNTED`` means more."""
        rows: Any = self.object_list
        found: int = rows.order_by().values("pk")[: COUNTED + 1].count()
        return found

    @cached_property
    def count(self) -> int:
        """How many rows the pages show."""
        return min(self.reached, COUNTED)

    @property
    def is_capped(self) -> bool:
        """Whether there are rows beyond the last page."""
        return self.reached > COUNTED


class LightChangeList(ChangeList):
    """A list that fetches what it shows; after its last page it goes on by key."""

    paginator: Any

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Any]:
        """Return the filtered rows without their large columns."""
        found = super().get_queryset(request, exclude_parameters)
        light: QuerySet[Any] = self.model_admin.for_list(found)  # type: ignore[attr-defined]
        return light

    def get_results(self, request: HttpRequest) -> None:
        """Count within bounds; beside the search, say how many were found only if that is known."""
        super().get_results(request)
        if self.paginator.is_capped or not (self.query or self.has_active_filters):
            self.full_result_count = self.result_count

    @property
    def older_url(self) -> str | None:
        """The address of the rows after the last countable page, or None."""
        by_id = self.queryset.query.order_by[:1] == ("-id",)
        if not (by_id and self.is_last_page and self.paginator.is_capped):
            return None
        return self.older_than(self.result_list[len(self.result_list) - 1].pk)

    @property
    def is_last_page(self) -> bool:
        """Whether this is the last page that can be reached by number."""
        return self.show_all or self.page_num == self.paginator.num_pages

    def older_than(self, id: str) -> str:
        """Return the address of this list from an id on."""
        return self.get_query_string({"id__lt": id}, remove=[PAGE_VAR])
