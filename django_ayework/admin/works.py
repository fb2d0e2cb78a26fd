"""Works: the list, dead letters, and what can be done from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.db.models.functions import Left
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.urls import URLPattern, path, reverse

from django_ayework.admin import columns
from django_ayework.admin.actions import (
    Act,
    cancel_for,
    cancel_selected,
    delete_chains_selected,
    retry_for,
    retry_selected,
)
from django_ayework.admin.columns import HELP, QueueFilter, ReasonFilter, StatusFilter, TypeFilter, search
from django_ayework.admin.lists import LightChangeList, ReadOnlyAdmin, WorkChangeList
from django_ayework.admin.pages import Links
from django_ayework.admin.work_page import work_page
from django_ayework.models import DeadLetter, Work
from django_ayework.rules.states import LIVE, RETRYABLE, Status

# --- works ---
# Works: the list, and a page for each.


@admin.register(Work)
class WorkAdmin(ReadOnlyAdmin):
    """Works, the newest first. Whoever may change works may retry and cancel them.

    Whoever may delete works may delete their chains.
    """

    retry_permissions: tuple[str, ...] = ("django_ayework.change_work",)
    cancel_permissions: tuple[str, ...] = ("django_ayework.change_work",)
    delete_permissions: tuple[str, ...] = ("django_ayework.delete_work",)
    lookups = frozenset({"id__lt", "group_id", "unit"})
    deferred = ("input", "result", "error")

    actions: Any = (retry_selected, cancel_selected, delete_chains_selected)
    change_form_template = "admin/django_ayework/work_page.html"
    list_display: Any = (
        columns.short_id,
        columns.type_and_error,
        columns.standing,
        columns.attempt,
        columns.queued,
        columns.run,
        columns.ended,
        "queue",
        "priority",
    )
    list_filter: ClassVar[Any] = (StatusFilter, ReasonFilter, TypeFilter, QueueFilter)
    ordering: ClassVar[Any] = ("-id",)
    search_fields = ("id",)  # what is searched, and how, is get_search_results()'s
    search_help_text = HELP

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return works without inputs and results, and with the beginning of the error."""
        light: QuerySet[Any] = super().for_list(rows).annotate(error_start=Left("error", 200))
        return light

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that bounds what it looks at."""
        return WorkChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find works by what has an index, and by type."""
        term = search_term.strip()
        return (search(queryset, term) if term else queryset), False

    def has_retry_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may retry works, or this one; override it to decide by work."""
        user: Any = request.user
        return any(user.has_perm(permission) for permission in self.retry_permissions)

    def has_cancel_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may cancel works, or this one; override it to decide by work."""
        user: Any = request.user
        return any(user.has_perm(permission) for permission in self.cancel_permissions)

    def has_delete_chains_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may delete chains, or that of this work; override it to decide by work.

        Rows by themselves cannot be deleted.
        """
        user: Any = request.user
        return any(user.has_perm(permission) for permission in self.delete_permissions)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list; refuse actions of those who have none."""
        if request.method == "POST" and not self.get_actions(request):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Show a work."""
        may_retry = obj.status in RETRYABLE and self.has_retry_permission(request, obj)
        may_cancel = obj.status in LIVE and self.has_cancel_permission(request, obj)
        links = Links(self.admin_site, request)
        context |= {
            "page": work_page(obj, links),
            "retry_url": self.address("retry", context["object_id"]) if may_retry else None,
            "cancel_url": self.address("cancel", context["object_id"]) if may_cancel else None,
            "history_url": links.history(obj.pk),
        }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return none: the page has sections of its own."""
        return ()

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses that the buttons post to."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        retry, cancel = map(self.admin_site.admin_view, (self.retry_view, self.cancel_view))
        return [
            path("<path:object_id>/retry/", retry, name=f"{name}_retry"),
            path("<path:object_id>/cancel/", cancel, name=f"{name}_cancel"),
            *super().get_urls(),
        ]

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Retry a work, then show it."""
        return self.act(retry_for, self.has_retry_permission, request, unquote(object_id))

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Cancel a work, then show it."""
        return self.act(cancel_for, self.has_cancel_permission, request, unquote(object_id))

    def act(
        self, act: Act, may: Callable[[HttpRequest, Model | None], bool], request: HttpRequest, id: str
    ) -> HttpResponseBase:
        """Act on a work of the queryset, if the user may, then show it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        work = self.get_object(request, id)
        if not may(request, work):
            raise PermissionDenied
        if work is None:
            raise Http404(f"expected the id of a work of this list, got: {id!r}.")
        act(self, request, [work])
        links = Links(self.admin_site, request)
        shown = links.address(Work, "change", id) or links.address(self.model, "changelist")
        return HttpResponseRedirect(shown or reverse("admin:index", current_app=self.admin_site.name))

    def address(self, page: str, object_id: str) -> str:
        """Return the address of one of a work's pages; the id comes quoted."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=[object_id], current_app=self.admin_site.name)


# --- dead letters ---
# Dead letters: dead works, awaiting a human's decision.


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
    ordering: ClassVar[Any] = ("-ended_at", "-id")
    sortable_by = (columns.died.__name__,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the dead works."""
        return super().get_queryset(request).filter(status=Status.DEAD)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the plain list: an index leads to the dead."""
        return LightChangeList
