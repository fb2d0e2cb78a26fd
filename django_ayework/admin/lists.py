"""The lists: columns, filters, search, paging at a cost that does not grow with the table, base classes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_ayework.admin import pages
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.requests import DEFAULT_QUEUE, decode_options
from django_ayework.models import Group, Work
from django_ayework.models.work import REASON_CHOICES, REASON_LABELS, STATUS_CHOICES, STATUS_LABELS
from django_ayework.rules.states import Reason, Status
from django_ayework.store.clock import clock
from django_ayework.store.database import alias, rows
from django_ayework.store.generated_columns import ENDED_AT, ended_as, with_status

if TYPE_CHECKING:
    BaseAdmin = admin.ModelAdmin[Any]
    BasePaginator = Paginator[Any]
else:
    BaseAdmin = admin.ModelAdmin
    BasePaginator = Paginator

Choices: TypeAlias = list[tuple[str, Any]]

#: Rows that a list counts and pages through; beyond them, ``id__lt`` goes on.
COUNTED = 10_000
#: Works that a filter without an index looks at, the newest ones.
LOOKED_AT = 100_000
#: Statuses with an index of their own.
INDEXED = frozenset({Status.SCHEDULED, Status.PENDING, Status.RUNNING, Status.DEAD, Status.CANCELLED})

SEARCH_HELP = _(
    "The id of a work or of a group, the beginning of a type, "
    "the object a work is about, such as shop.order:17, or a unit of a type, such as site.fetch:page/7."
)
ABOUT = re.compile(r"(?P<label>[\w.-]+):(?P<key>.+)")


# Columns


def moment_column(field: str, description: Any, name: str, ordering: Any = None) -> Callable[[Any], str]:
    """Return a column of this name that shows a moment."""

    @admin.display(description=description, ordering=ordering)
    def column(row: Any) -> str:
        return pages.moment(getattr(row, field), clock.now())

    column.__name__ = name
    return column


queued = moment_column("queued_at", _("queued"), "queued")
ended = moment_column("ended_at", _("ended"), "ended")
died = moment_column("ended_at", _("died"), "died", ordering=ENDED_AT)


@admin.display(description=_("id"))
def short_id(row: Any) -> str:
    """The id, shortened; in full on hovering."""
    return format_html('<span class="ayework-id" title="{}">{}</span>', row.pk, pages.short(row.pk))


@admin.display(description=_("type"))
def type_and_error(work: Any) -> str:
    """The type, the unit, and the first line of the last error."""
    named = str(work.type) if work.unit is None else format_html("{}<br><b>{}</b>", work.type, work.unit)
    return format_html("{}<br>{}", named, error(work)) if work.error_start else named


@admin.display(description=_("status"))
def standing(work: Work) -> str:
    """The status; of a dead work the reason too, of a running work its progress."""
    more = progress_of(work.progress) if work.status == Status.RUNNING else reason(work)
    return format_html("{}<br><small>{}</small>", status(work.status), more) if more else status(work.status)


@admin.display(description=_("reason"))
def reason(work: Work) -> str:
    """Why a dead work died."""
    return str(REASON_LABELS[Reason(work.reason)]) if work.reason in set(Reason) else work.reason


@admin.display(description=_("attempt"))
def attempt(work: Work) -> str:
    """Which attempt of how many; a gate has none."""
    if work.type == GATE_TYPE:
        return pages.NOTHING
    most = decode_options(work.options).retry.attempts
    return format_html('<span class="ayework-narrow">{} / {}</span>', work.attempt, most)


@admin.display(description=_("run"))
def run(work: Work) -> str:
    """When the last attempt started; for a work that waits, when it may start."""
    waits = work.status in (Status.SCHEDULED, Status.PENDING) or work.started_at is None
    return pages.moment(work.run_at if waits else work.started_at, clock.now())


@admin.display(description=_("error"))
def error(work: Any) -> str:
    """The first line of the last error."""
    return pages.error_line(work.error_start)


@admin.display(description=_("done"))
def group_progress(group: Group) -> str:
    """How many works of a group have ended, as a bar and in figures."""
    done = group.total - group.open
    drawn = bar(done, max(group.total, 1))
    return format_html('<span class="ayework-narrow">{} {} / {}</span>', drawn, done, group.total)


def status(status: str) -> str:
    """Return a status in its colour, as HTML."""
    if status not in set(Status):
        return pages.badge("unknown", status)
    return pages.badge(status, STATUS_LABELS[Status(status)])


def progress_of(text: str | None) -> str:
    """Return stored progress as HTML."""
    try:
        stored = json.loads(text or "{}")
        done, total, note = stored.get("done"), stored.get("total"), stored.get("note") or ""
    except (ValueError, AttributeError):
        return text or ""
    if done is None:
        return ""
    if not total:
        return format_html("{} {}", done, note)
    drawn = bar(done, total)
    return format_html('<span class="ayework-narrow">{} {} / {}</span> {}', drawn, done, total, note)


def bar(done: float, total: float) -> str:
    """Return a bar as HTML."""
    return format_html('<progress class="ayework-bar" value="{}" max="{}"></progress>', done, total)


# Filters with declared choices: none of them queries the table for its values


class ColumnFilter(admin.SimpleListFilter):
    """Works whose column of the parameter's name has the chosen value."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the works that match."""
        value = self.value()
        return queryset if value is None else self.chosen(queryset, value)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the works that have this value."""
        return queryset.filter(**{str(self.parameter_name): value})


class StatusFilter(ColumnFilter):
    """By status."""

    title, parameter_name = _("status"), "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return every status."""
        return list(STATUS_CHOICES)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return works of the status, through its index.

        Not for success: most works succeed, so the newest are found at once in the order of ids.
        """
        return super().chosen(queryset, value) if value == Status.SUCCESS else with_status(queryset, value)


class ReasonFilter(ColumnFilter):
    """By the reason of death."""

    title, parameter_name = _("reason"), "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return every reason."""
        return list(REASON_CHOICES)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Only dead works have a reason; the status leads the database to their index."""
        return super().chosen(ended_as(queryset, Status.DEAD), value)


class TypeFilter(ColumnFilter):
    """By type, of those that the running code knows."""

    title, parameter_name = _("type"), "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return the registered types, and gates."""
        return [(name, name) for name in (*registry.names(), GATE_TYPE)]


class QueueFilter(ColumnFilter):
    """By queue, of those that the registered types name."""

    title, parameter_name = _("queue"), "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return the queues."""
        return [(queue, queue) for queue in declared_queues()]


def declared_queues() -> list[str]:
    """Return the queues that the registered types name, and the default one."""
    return sorted({work_type.settings.queue or DEFAULT_QUEUE for work_type in registry} | {DEFAULT_QUEUE})


# Search by columns with an index, and by type


def search(works: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the works that the term names."""
    if about := ABOUT.fullmatch(term):
        of_object = Q(about_type=about["label"].lower(), about_id=about["key"])
        of_unit = Q(type=about["label"], unit=about["key"])
        return works.filter(of_object | of_unit | has_id(term))
    return works.filter(type__startswith=term) if is_by_type(term) else works.filter(has_id(term))


def has_id(term: str) -> Q:
    """Return the condition that finds a work or the works of a group by id."""
    return Q(id=term) | Q(group_id=term)


def is_by_type(term: str) -> bool:
    """Tell whether the term is the beginning of a type, and not an id that looks like one.

    Types that are not registered are recognized by their dot.
    """
    if ABOUT.fullmatch(term):
        return False
    begins_type = "." in term or any(name.startswith(term) for name in (GATE_TYPE, *registry.names()))
    return begins_type and not rows(Work).filter(has_id(term)).exists()


# Paging


class CappedPaginator(BasePaginator):
    """Counts a bounded number of rows, so that a table of millions opens as fast as an empty one."""

    @cached_property
    def reached(self) -> int:
        """The number of rows, up to one more than ``COUNTED``."""
        rows: Any = self.object_list
        found: int = rows.order_by().values("pk")[: COUNTED + 1].count()
        return found

    @cached_property
    def count(self) -> int:
        """The number of rows that the pages show."""
        return min(self.reached, COUNTED)

    @property
    def is_capped(self) -> bool:
        """Whether there are rows beyond the last page."""
        return self.reached > COUNTED


class LightChangeList(ChangeList):
    """A list without large columns; a link after its last page goes on by key."""

    paginator: Any

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Any]:
        """Return the filtered rows without their large columns."""
        found = super().get_queryset(request, exclude_parameters)
        light: QuerySet[Any] = self.model_admin.for_list(found)  # type: ignore[attr-defined]
        return light

    def get_results(self, request: HttpRequest) -> None:
        """Count within bounds; beside the search, show the number of all rows only if it is known."""
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


class WorkChangeList(LightChangeList):
    """A list of works: filters without an index look at the newest works; a link goes on to older ones."""

    #: The oldest work that was looked at; None when all were.
    oldest: str | None = None
    looked_at = LOOKED_AT

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Any]:
        """Return the filtered works; without an index, those among the newest."""
        found = super().get_queryset(request, exclude_parameters)
        if is_broad(self.params, self.query):
            self.oldest = oldest_of_newest(self.params.get("id__lt"))
        return found if self.oldest is None else found.filter(id__gte=self.oldest)

    @property
    def older_url(self) -> str | None:
        """The address of the works that were not looked at, or None."""
        if (url := super().older_url) is not None or self.oldest is None or not self.is_last_page:
            return url
        return self.older_than(self.oldest)


def is_broad(params: Mapping[str, str], query: str) -> bool:
    """Tell whether works are looked for by columns without an index, and by none with one.

    Most statuses lead to their few works by an index. Works that succeeded are many, so they are found at
    once; only together with another filter is there far to look.
    """
    status = params.get("status")
    if status in INDEXED or "reason" in params or "group_id" in params:
        return False
    if query:
        return is_by_type(query)
    return status == Status.BLOCKED or "type" in params or "queue" in params


def oldest_of_newest(before: str | None) -> str | None:
    """Return the id of the last work to look at, or None when there are fewer."""
    works = rows(Work).order_by("-id")
    if before is not None:
        works = works.filter(id__lt=before)
    return works.values_list("id", flat=True)[LOOKED_AT - 1 : LOOKED_AT].first()


# Base classes


class QueueAdmin(BaseAdmin):
    """Rows of the queue's database, whatever the routers say."""

    class Media:
        """Colours, for light and dark themes."""

        css = {"all": ("django_ayework/admin.css",)}  # noqa: RUF012  # as Django spells it

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the queue's database."""
        return super().get_queryset(request).using(alias())


class ReadOnlyAdmin(QueueAdmin):
    """Rows that only the engine writes. No list counts or sorts a whole table."""

    #: Parameters of a list's address besides those of its filters; anything else would be a scan.
    lookups: frozenset[str] = frozenset({"id__lt"})
    #: Columns too large for a list.
    deferred: tuple[str, ...] = ()

    empty_value_display = pages.NOTHING
    list_per_page = 100
    paginator = CappedPaginator
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by: ClassVar[Any] = ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that leaves large columns in the database."""
        return LightChangeList

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the columns of the list, and no others."""
        return rows.defer(*self.deferred)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow the parameters of the filters and links of these pages."""
        filters = {getattr(filter, "parameter_name", None) for filter in self.list_filter}
        return lookup in self.lookups or lookup in filters

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Works are queued by code."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """The change permission allows looking at a page, as the view permission does."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are pruned by the engine, which knows the rows that are still needed."""
        return False


class PageAdmin(ReadOnlyAdmin):
    """Rows whose page has sections of its own."""

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Return the template variables of a row's page."""
        raise NotImplementedError

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return none: the page has sections of its own."""
        return ()

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show the page."""
        context |= self.page_context(request, context["original"])
        return super().render_change_form(request, context, *args, **kwargs)

    def address(self, page: str, id: str) -> str:
        """Return the address of one of a row's pages."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=[quote(id)], current_app=self.admin_site.name)
