"""The overview: the first page of an operator, and the controls in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import Error
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from django_ayework import fragments
from django_ayework.admin import lists
from django_ayework.admin.controls import decide, label_of
from django_ayework.admin.overview_tables import Control, board
from django_ayework.admin.pages import Links, admin_of
from django_ayework.admin.refusals import refused
from django_ayework.define.options import MAX_INTEGER, check_queue
from django_ayework.define.types import registry
from django_ayework.errors import AyeworkError
from django_ayework.flow.overview import overview
from django_ayework.models import Overview, WorkControl
from django_ayework.store.controls import is_due_or_running
from django_ayework.store.database import rows

#: Seconds between two refreshes of the page.
REFRESH_EVERY = 5


class LimitForm(forms.Form):
    """The values of a type that can be set in place; an empty field means the declared value."""

    max_running = forms.IntegerField(min_value=0, max_value=MAX_INTEGER, required=False)
    weight = forms.IntegerField(min_value=1, max_value=MAX_INTEGER, required=False)


@admin.register(Overview)
class OverviewAdmin(lists.ReadOnlyAdmin):
    """One page, and the address to which its buttons post. There is no table."""

    looks = ("overview",)
    scripts = (fragments.SCRIPT,)

    def get_urls(self) -> list[URLPattern]:
        """Return the two addresses."""
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=self.page_name("changelist")),
            path("control/", view(self.control_view), name=self.page_name("control")),
        ]

    def changelist_view(  # type: ignore[override]
        self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None
    ) -> HttpResponseBase:
        """Show the page, or with ``?fragment`` the part of it that refreshes itself."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context: dict[str, Any] = {"board": self.board(request)}
        if "fragment" in request.GET:
            return fragments.fragment(request, "admin/django_ayework/overview_fragment.html", context)
        context |= {
            "title": _("Overview"),
            "is_list": True,
            "control_url": self.address("control"),
            "fragment_url": f"{self.address('changelist')}?fragment",
            "refresh_every": REFRESH_EVERY,
            **(extra_context or {}),
        }
        return self.framed(request, "overview.html", context)

    def board(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the page shows, with the buttons that the user may press."""
        controls = {(row.scope, row.name): row for row in rows(WorkControl).all()}

        def control(scope: str, name: str) -> Control:
            row = controls.get((scope, name))
            return Control(scope, name, row, self.may_control(request, row), self.address("control"))

        return board(overview(), Links(self.admin_site, request), control)

    # Controls in place

    def may_control(self, request: HttpRequest, row: WorkControl | None) -> bool:
        """Tell whether the user may change this control, or make one where there is none."""
        controls = admin_of(self.admin_site, WorkControl) or admin.ModelAdmin(WorkControl, self.admin_site)
        if row is None:
            return bool(controls.has_add_permission(request))
        return bool(controls.has_change_permission(request, row))

    def control_view(self, request: HttpRequest) -> HttpResponseBase:
        """Pause, resume or limit a type or a queue, and return to the page."""
        if request.method != "POST":
            return self.not_pressed(request)
        scope, name, act = (request.GET.get(key, "") for key in ("scope", "name", "act"))
        row = rows(WorkControl).filter(scope=scope, name=name).first()
        if not self.may_control(request, row):
            raise PermissionDenied
        try:
            changes = self.changes(request, scope, act)
            require_known(scope, name, row)
            decide(self, request, scope, name, changes)
        except (AyeworkError, TypeError, ValueError) as refusal:
            messages.error(request, str(refusal))
        except Error as error:
            return refused(request, error, self.address("changelist"))
        return HttpResponseRedirect(self.address("changelist"))

    def changes(self, request: HttpRequest, scope: str, act: str) -> dict[str, Any]:
        """Return the columns that an act changes. Raises ValueError for a limit that cannot be used."""
        if act in ("pause", "resume"):
            return {"paused": act == "pause"}
        if act != "limit":
            raise BadRequest(f"expected pause, resume or limit, got: {act!r}.")
        if scope == "queue":
            raise ValueError(_("A queue can only be paused."))
        key = request.GET.get("key", "")
        form = LimitForm({field: request.POST.get(f"{field}-{key}") for field in LimitForm.base_fields})
        if not form.is_valid():
            found = form.errors.as_data().items()
            wrong = [f"{label_of(field)}: {error.messages[0]}" for field, errors in found for error in errors]
            raise ValueError(" ".join(wrong))
        # Others may have changed a value since the page was shown: one that was left as shown stays as it is.
        return {
            field: value
            for field, value in form.cleaned_data.items()
            if form.data[field] != request.GET.get(f"shown_{field}")
        }


def require_known(scope: str, name: str, row: WorkControl | None) -> None:
    """Raise unless this control can be made or changed.

    Raises UnknownWorkType for a type that is neither registered nor in use, InvalidOption for a queue that
    cannot be one.
    """
    if scope not in ("type", "queue"):
        raise BadRequest(f"expected type or queue, got: {scope!r}.")
    if row is None and scope == "queue":
        check_queue(name, "queue")
    elif row is None and not is_due_or_running(name):
        registry.get(name)
