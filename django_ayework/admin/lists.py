"""Lists whose cost does not grow with the table, and what all pages have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_ayework.admin.columns import is_by_type
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import alias, rows

# --- paging ---
# Lists whose cost does not grow with the table.

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


# --- base ---
# What all pages of the admin have in common: they are to be read, on the queue's database.

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Rows that only the engine writes. Nothing here counts or sorts a whole table."""

    #: Parameters of a list's address besides those of its filters; anything else would be a scan.
    lookups: frozenset[str] = frozenset({"id__lt"})
    #: Columns too large for a list.
    deferred: tuple[str, ...] = ()

    empty_value_display = "–"
    list_per_page = 100
    paginator = CappedPaginator
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by: ClassVar[Any] = ()

    class Media:
        """Colours, for light and dark themes."""

        css = {"all": ("django_ayework/admin.css",)}  # noqa: RUF012  # as Django spells it

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the queue's database, whatever the routers say."""
        return super().get_queryset(request).using(alias())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that leaves large columns in the database."""
        return LightChangeList

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with what the list shows, and no more."""
        return rows.defer(*self.deferred)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow what filters and links of these pages ask for."""
        filters = {getattr(filter, "parameter_name", None) for filter in self.list_filter}
        return lookup in self.lookups or lookup in filters

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Works are queued by code."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Users who may change works see the page read-only, like users who may view them."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are pruned by the engine, which knows what still needs them."""
        return False


# --- newest ---
# Where no index serves a filter, the list looks at a bounded number of works, and says so.

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
