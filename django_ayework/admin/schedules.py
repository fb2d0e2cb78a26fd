"""Schedules: the list, a page for each, and what people can do to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth import get_permission_codename
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin import schedule_columns as columns
from django_ayework.admin.base import ReadOnlyAdmin
from django_ayework.admin.links import Links
from django_ayework.admin.schedule_form import MADE, ScheduleForm, schedulable_types
from django_ayework.admin.schedule_page import schedule_page
from django_ayework.flow.schedules.acting import run_now, save_made, set_paused
from django_ayework.models import Schedule


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules by name. Who may change them may pause, resume and run them."""

    deferred = ("input",)

    form = ScheduleForm
    change_form_template = "admin/django_ayework/schedule.html"
    list_display = (
        "name",
        columns.state,
        columns.when,
        columns.next_firing,
        columns.last_fired,
        "function",
        columns.error,
    )
    ordering = ("name",)
    actions: Any = ("pause_selected", "resume_selected", "run_selected")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what may be filled in; the page of any other has sections of its own."""
        may_fill_in = self.has_add_permission(request) if obj is None else self.may_change(request, obj)
        return [(None, {"fields": MADE})] if may_fill_in else ()

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Show a schedule; below the form, if it may be changed."""
        if obj is not None:
            context["page"] = schedule_page(obj, Links(self.admin_site, request))
        context["fills_in"] = obj is None or self.may_change(request, obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Schedules are made of types that may be scheduled by hand; all others are declared in code."""
        return self.is_allowed(request, "add") and bool(schedulable_types())

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What code declares is changed there."""
        return obj is not None and self.may_change(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What code declares would be there again at the next sync."""
        return obj is not None and obj.origin == "admin" and self.is_allowed(request, "delete")

    def may_change(self, request: HttpRequest, obj: Schedule) -> bool:
        """Tell whether the reader may change this schedule in the form."""
        return obj.origin == "admin" and self.is_allowed(request, "change")

    def is_allowed(self, request: HttpRequest, action: str) -> bool:
        """Tell whether the reader has a permission."""
        codename = get_permission_codename(action, self.opts)
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.{codename}"))

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Save what was filled in, and let it begin."""
        columns = {name: form.cleaned_data[name] for name in MADE}
        obj.pk = save_made(obj.pk if change else None, columns).pk

    def has_act_permission(self, request: HttpRequest) -> bool:
        """Tell whether the reader may pause, resume and run schedules."""
        return self.is_allowed(request, "change")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may act may look."""
        return super().has_view_permission(request, obj) or self.has_act_permission(request)

    @admin.action(description=gettext_lazy("Pause selected schedules"), permissions=["act"])
    def pause_selected(self, request: HttpRequest, chosen: QuerySet[Schedule]) -> None:
        """Pause; what was queued runs on."""
        changed = [schedule for schedule in chosen if set_paused(schedule.pk, True)]
        told = ngettext("%(count)d was paused.", "%(count)d were paused.", len(changed))
        self.tell(request, changed, _("Paused."), told)

    @admin.action(description=gettext_lazy("Resume selected schedules"), permissions=["act"])
    def resume_selected(self, request: HttpRequest, chosen: QuerySet[Schedule]) -> None:
        """Let them go on from now."""
        changed = [schedule for schedule in chosen if set_paused(schedule.pk, False)]
        told = ngettext("%(count)d was resumed.", "%(count)d were resumed.", len(changed))
        self.tell(request, changed, _("Resumed."), told)

    @admin.action(description=gettext_lazy("Run selected schedules now"), permissions=["act"])
    def run_selected(self, request: HttpRequest, chosen: QuerySet[Schedule]) -> None:
        """Fire each once, beside its occurrences; one that fails keeps no other from it."""
        fired = []
        for schedule in chosen:
            try:
                run_now(schedule.pk)
            except Exception as error:  # the project's code: whatever it raises is told
                failed = _("The schedule %(name)s could not be run: %(error)s")
                messages.error(request, failed % {"name": schedule.name, "error": error})
            else:
                fired.append(schedule)
        told = ngettext("%(count)d was run.", "%(count)d were run.", len(fired))
        self.tell(request, fired, _("Run by hand."), told)

    def tell(self, request: HttpRequest, changed: Sequence[Schedule], logged: str, told: str) -> None:
        """Write what was done into the history of each, and say how many there were."""
        for schedule in changed:
            self.log_change(request, schedule, logged)
        self.message_user(request, told % {"count": len(changed)})
