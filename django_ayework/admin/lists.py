"""The lists: columns, paging at a cost that does not grow with the table, base classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import Error
from django.db.models import Model, QuerySet
from django.forms.widgets import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _

from django_ayework.admin import pages
from django_ayework.admin.refusals import show_refusal, shows_refusals
from django_ayework.compat import changeform_without_transaction
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.payloads import DEFAULT_QUEUE, decode_options
from django_ayework.flow.startup_checks import known_queues
from django_ayework.fragments import fragment
from django_ayework.models import Group, Work
from django_ayework.models.work import REASON_LABELS, STATUS_LABELS
from django_ayework.rules.states import Status
from django_ayework.store.database import alias, clock

#: Rows that a list counts and pages through; beyond them, ``id__lt`` goes on.
COUNTED = 10_000


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
died = moment_column("ended_at", _("died"), "died", ordering="ended_at")


@admin.display(description=_("id"))
def short_id(row: Any) -> str:
    """The id, shortened; in full on hovering."""
    return pages.short_in_full(row.pk)


@admin.display(description=_("type"))
def type_and_error(work: Any) -> str:
    """The type, the unit, and the first line of the last error."""
    named = pages.type_name(work.type)
    named = named if work.unit is None else format_html("{}<br><b>{}</b>", named, work.unit)
    return format_html("{}<br>{}", named, error(work)) if work.error_start else named


@admin.display(description=_("reason"))
def reason(work: Work) -> str:
    """Why a dead work died."""
    return str(REASON_LABELS.get(work.reason, work.reason))


@admin.display(description=_("attempt"))
def attempt(work: Work) -> str:
    """Which attempt of how many; a gate has none."""
    if work.type == GATE_TYPE:
        return pages.NOTHING
    most = decode_options(work.options).retry.attempts
    return format_html('<span class="ayework-narrow">{} / {}</span>', work.attempt, most)


@admin.display(description=_("type"))
def type_and_place(work: Any) -> str:
    """The type, the unit and the error; then the queue, and the priority unless it is the usual one."""
    priority = format_html(" · {} <b>{}</b>", _("priority"), work.priority) if work.priority else ""
    place = format_html('<span class="ayework-where">{} <b>{}</b>{}</span>', _("queue"), work.queue, priority)
    return format_html("{}{}", type_and_error(work), place)


@admin.display(description=_("status"))
def standing_and_attempt(work: Work) -> str:
    """The status with the reason of a dead work or the progress of a running one, and which attempt it is."""
    more = progress_of(work.progress) if work.status == Status.RUNNING else reason(work)
    standing = status(work.status)
    if more:
        standing = format_html("{}<br><small>{}</small>", standing, more)
    tried = attempt(work)
    if tried == pages.NOTHING:
        return standing
    return format_html('{}<span class="ayework-where">{} {}</span>', standing, _("attempt"), tried)


@admin.display(description=_("times"))
def times(work: Work) -> str:
    """When the work was queued, started or may start, and ended."""
    waits = work.status in (Status.SCHEDULED, Status.PENDING) or work.started_at is None
    start = pages.moment(work.run_at if waits else work.started_at, clock.now())
    moments = [(_("queued"), queued(work)), (_("not before") if waits else _("started"), start)]
    if work.ended_at is not None:
        moments.append((_("ended"), ended(work)))
    lines = format_html_join("", "<span><span>{}</span> {}</span>", moments)
    return format_html('<span class="ayework-times">{}</span>', lines)


@admin.display(description=_("error"))
def error(work: Any) -> str:
    """The first line of the last error."""
    return pages.error_line(work.error_start)


@admin.display(description=_("done"))
def group_progress(group: Group) -> str:
    """How many works of a group have ended, as a bar and in figures."""
    done = group.total - group.open
    drawn = bar(done, max(group.total, 1), _("done"))
    return format_html('<span class="ayework-narrow">{} {} / {}</span>', drawn, done, group.total)


def status(status: str) -> str:
    """Return a status in its colour, as HTML."""
    return pages.badge(status if status in STATUS_LABELS else "unknown", STATUS_LABELS.get(status, status))


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
    drawn = bar(done, total, _("progress"))
    return format_html('<span class="ayework-narrow">{} {} / {}</span> {}', drawn, done, total, note)


def bar(done: float, total: float | None, label: Any) -> str:
    """Return a bar as HTML, with its name for screen readers; without a value if the total is not known."""
    value = format_html(' value="{}" max="{}"', done, total) if total else ""
    return format_html('<progress class="ayework-bar"{} aria-label="{}"></progress>', value, label)


def declared_queues() -> list[str]:
    """Return the queues that types name, and the default one."""
    return sorted({*known_queues(), DEFAULT_QUEUE})


# Paging


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # which Django does not take
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

    def get_filters(self, request: HttpRequest) -> Any:
        """Return the filters. Raises IncorrectLookupParameters for a text that no column can have."""
        if any("\0" in value for values in self.filter_params.values() for value in values):
            raise IncorrectLookupParameters
        return super().get_filters(request)

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
        last = self.result_list[len(self.result_list) - 1]
        return self.get_query_string({"id__lt": last.pk}, remove=[PAGE_VAR])

    @property
    def is_last_page(self) -> bool:
        """Whether this is the last page that can be reached by number."""
        return self.show_all or self.page_num == self.paginator.num_pages


# Base classes


def has_any(request: HttpRequest, permissions: Iterable[str]) -> bool:
    """Tell whether the user has one of these permissions."""
    user: Any = request.user
    return any(user.has_perm(permission) for permission in permissions)


class QueueAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows of the queue's database, whatever the routers say."""

    #: The looks of the pages by the names of their files, and scripts, besides those of all pages.
    looks: ClassVar[Sequence[str]] = ()
    scripts: ClassVar[Sequence[Any]] = ()

    @property
    def media(self) -> forms.Media:
        """Colours, for light and dark themes; the script that sends a form once."""
        css = [f"django_ayework/{name}.css" for name in ("admin", *self.looks)]
        once: Any = Script("django_ayework/once.js", type="module")
        return super().media + forms.Media(css={"all": css}, js=[once, *self.scripts])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the queue's database."""
        return super().get_queryset(request).using(alias())

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row with this id; None for an id that no row has, also one that no column can have."""
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return a form that is shown again, with what was entered, once the database has refused it."""
        form: Any = super().get_form(request, obj, change, **kwargs)
        if getattr(request, "_ayework_refused", False):
            form.is_valid = lambda self: False
        return form

    @shows_refusals
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, or act on the ticked rows."""
        return super().changelist_view(request, extra_context)

    @shows_refusals
    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask before a row is deleted, or delete it."""
        return super().delete_view(request, object_id, extra_context)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the page of a row or its form, or save the form."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except Error as error:
            if request.method != "POST":
                raise
            show_refusal(request, error)
            request._ayework_refused = True  # type: ignore[attr-defined]
            # A read-only file of SQLite refuses the transaction that changeform_view() would begin.
            return changeform_without_transaction(self, request, object_id, form_url, extra_context)

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        """Return the changes, with the old values."""
        return pages.changed_in_words(form)

    def framed(
        self, request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200
    ) -> TemplateResponse:
        """Return a page of this app's admin, from a template that extends ``framed.html``."""
        request.current_app = self.admin_site.name
        shared = self.admin_site.each_context(request)
        shared |= {"subtitle": None, "opts": self.opts, "media": self.media, **context}
        return TemplateResponse(request, f"admin/django_ayework/{template}", shared, status=status)

    def not_pressed(self, request: HttpRequest) -> HttpResponse:
        """Return the page for the address of a button that was opened, as after signing in again."""
        sentence = _(
            "The address of a button was opened, as happens when you sign in again after pressing it. Go "
            "back to the page, and press the button again."
        )
        context = {"title": _("Nothing was done"), "sentence": sentence}
        response = self.framed(request, "refused.html", context, 405)
        response["Allow"] = "POST"
        return response

    def page_name(self, page: str) -> str:
        """Return the name of the address of one of this admin's pages."""
        return f"{self.opts.app_label}_{self.opts.model_name}_{page}"

    def address(self, page: str, *ids: Any) -> str:
        """Return the address of one of this admin's pages, or of a row's pages."""
        args = [quote(id) for id in ids]
        return reverse(f"admin:{self.page_name(page)}", args=args, current_app=self.admin_site.name)


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

    def is_allowed(self, request: HttpRequest, action: str) -> bool:
        """Tell whether the user has the permission of this model for an action, such as "change"."""
        return has_any(request, (f"{self.opts.app_label}.{get_permission_codename(action, self.opts)}",))

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

    def row_path(self, page: str, view: Callable[..., HttpResponseBase]) -> URLPattern:
        """Return the pattern of the address of one of a row's pages; the view takes the quoted id."""
        address = f"<path:object_id>/{page}/"
        return path(address, self.admin_site.admin_view(view), name=self.page_name(page))

    def row_for(self, request: HttpRequest, object_id: str, may: Callable[[Any], bool]) -> Any:
        """Return the row with this quoted id. Raises PermissionDenied unless the user may, then Http404."""
        obj = self.get_object(request, unquote(object_id))
        if not may(obj):
            raise PermissionDenied
        if obj is None:
            kind = self.opts.verbose_name
            raise Http404(f"expected the id of a {kind} of this list, got: {unquote(object_id)!r}.")
        return obj


class LiveAdmin(PageAdmin):
    """Rows whose page has a part that refreshes itself: see ``django_ayework.fragments``."""

    #: The template of the part.
    live_template = "admin/django_ayework/sections.html"

    def live_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Return the template variables of the part."""
        raise NotImplementedError

    def may_refresh(self, request: HttpRequest, obj: Any) -> bool:
        """Tell whether the user may look at the part; ``obj`` is None for an id that does not exist."""
        return self.has_view_or_change_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the part."""
        return [self.row_path("live", self.live_view), *super().get_urls()]

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Return the part of a row's page."""
        obj = self.row_for(request, object_id, partial(self.may_refresh, request))
        return fragment(request, self.live_template, self.live_context(request, obj))
