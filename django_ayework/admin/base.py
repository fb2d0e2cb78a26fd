"""What all pages of the admin have in common: they are to be read, on the queue's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from django_ayework.admin.paging import CappedPaginator, LightChangeList
from django_ayework.store.database import alias

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
        """Whoever may change sees the page all the same, as whoever may view does."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are pruned by the engine, which knows what still needs them."""
        return False
