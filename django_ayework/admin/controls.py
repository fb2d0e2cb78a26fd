"""Controls: pausing, limiting and weighting types and queues while workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin.control_form import OF_TYPES, Suggesting, WorkControlForm
from django_ayework.admin.filters import declared_queues
from django_ayework.define.registry import registry
from django_ayework.flow.controls import control_of, write
from django_ayework.models import WorkControl
from django_ayework.rules.controls import TypeControl
from django_ayework.store.database import alias

if TYPE_CHECKING:
    Base = admin.ModelAdmin[WorkControl]
else:
    Base = admin.ModelAdmin


@admin.display(description=gettext_lazy("state"), ordering="paused")
def state(control: WorkControl) -> str:
    """Whether works are claimed."""
    kind, word = ("blocked", _("paused")) if control.paused else ("alive", _("served"))
    return format_html('<span class="ayework-status ayework-{}">{}</span>', kind, word)


@admin.display(description=gettext_lazy("as declared"))
def declared(control: WorkControl) -> str:
    """What the code says, which counts for everything that is left empty."""
    work_type = registry.find(control.name) if control.scope == "type" else None
    if work_type is None:
        return "–"
    return in_words(control_of(work_type.settings, None))


def in_words(control: TypeControl) -> str:
    """Return a type's declaration in words."""
    told = [
        _("weight %(number)s") % {"number": control.weight},
        _("at most %(number)s running") % {"number": control.max_running} if control.max_running else "",
        "" if control.interval is None else _("every %(number)g s") % {"number": control.interval},
    ]
    return ", ".join(filter(None, told))


@admin.register(WorkControl)
class WorkControlAdmin(Base):
    """Types and queues that operators have decided about. Every worker heeds them within a poll."""

    form = WorkControlForm
    fields: ClassVar[Any] = ("scope", "name", "paused", *OF_TYPES, declared)
    readonly_fields: ClassVar[Any] = (declared,)
    list_display = ("name", "scope", state, "priority", "weight", "max_running", declared, "changed_at")
    list_filter: ClassVar[Any] = ("scope", "paused")
    ordering = ("scope", "name")
    actions: Any = ("pause_selected", "resume_selected")

    class Media:
        """Colours, for light and dark themes."""

        css = {"all": ("django_ayework/admin.css",)}  # noqa: RUF012  # as Django spells it

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkControl]:
        """Return the rows of the queue's database, whatever the routers say."""
        return super().get_queryset(request).using(alias())

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """What a control is about does not change."""
        return (*self.readonly_fields, "scope", "name") if obj else self.readonly_fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Suggest the names that the code knows."""
        form = super().get_form(request, obj, change, **kwargs)
        if "name" in form.base_fields:
            form.base_fields["name"].widget = Suggesting([*registry.names(), *declared_queues()])
        return form

    def save_model(self, request: HttpRequest, obj: WorkControl, form: Any, change: bool) -> None:
        """Write what was decided, so that workers read it."""
        decided = {name: form.cleaned_data[name] for name in ("paused", *OF_TYPES)}
        write("queue" if obj.scope == "queue" else "type", obj.name, **decided)
        obj.pk = self.get_queryset(request).get(scope=obj.scope, name=obj.name).pk

    @admin.action(
        description=gettext_lazy("Pause the selected controls' types and queues"), permissions=["change"]
    )
    def pause_selected(self, request: HttpRequest, controls: QuerySet[WorkControl]) -> None:
        """Pause."""
        self.set_paused(request, controls, True)

    @admin.action(
        description=gettext_lazy("Resume the selected controls' types and queues"), permissions=["change"]
    )
    def resume_selected(self, request: HttpRequest, controls: QuerySet[WorkControl]) -> None:
        """Resume."""
        self.set_paused(request, controls, False)

    def set_paused(self, request: HttpRequest, controls: QuerySet[WorkControl], paused: bool) -> None:
        """Write it for each, and into its history."""
        changed = list(controls.exclude(paused=paused))
        for control in changed:
            write("queue" if control.scope == "queue" else "type", control.name, paused=paused)
            self.log_change(request, control, _("Paused.") if paused else _("Resumed."))
        told = (
            ngettext("%(count)d was paused.", "%(count)d were paused.", len(changed))
            if paused
            else ngettext("%(count)d was resumed.", "%(count)d were resumed.", len(changed))
        )
        self.message_user(request, told % {"count": len(changed)})
