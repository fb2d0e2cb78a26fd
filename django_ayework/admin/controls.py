"""Controls: types and queues are paused, limited and weighted while workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_ayework.admin import pages
from django_ayework.admin.lists import QueueAdmin, declared_queues
from django_ayework.define.registry import registry
from django_ayework.errors import did_you_mean
from django_ayework.flow.controls import control_of, write
from django_ayework.models import WorkControl

if TYPE_CHECKING:
    Form = forms.ModelForm[WorkControl]
else:
    Form = forms.ModelForm

#: Columns that apply to types, and not to queues.
OF_TYPES = ("priority", "weight", "max_running", "max_claimed", "continuous", "interval")
PAUSED = ngettext_lazy("%(count)d was paused.", "%(count)d were paused.", "count")
RESUMED = ngettext_lazy("%(count)d was resumed.", "%(count)d were resumed.", "count")


class WorkControlForm(Form):
    """The form of a control of a registered type, or of any queue."""

    class Meta:
        """All columns that the engine does not write."""

        model = WorkControl
        fields = ("scope", "name", "paused", *OF_TYPES)
        help_texts: ClassVar[Any] = {
            "name": gettext_lazy("The name of a type or of a queue."),
            "paused": gettext_lazy("Nothing more is claimed; what runs goes on."),
            "priority": gettext_lazy("Types of a larger priority are served first within their queue."),
            "weight": gettext_lazy("The share of the queue among types of the same priority; 20 unless set."),
            "max_running": gettext_lazy("How many may run at a time in the whole fleet; 0 is no limit."),
            "max_claimed": gettext_lazy("How many a worker may claim at once; 0 is no limit."),
            "continuous": gettext_lazy("Whether a type that is declared continuous is so now."),
            "interval": gettext_lazy("Seconds from one work of a continuous type to the next."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "continuous" in self.fields:
            choices = [("unknown", _("as declared")), ("true", _("yes")), ("false", _("no"))]
            self.fields["continuous"].widget.choices = choices

    def clean_weight(self) -> int | None:
        """Refuse a weight of 0, with which a type would never be served: that is a pause."""
        weight: int | None = self.cleaned_data["weight"]
        if weight == 0:
            raise forms.ValidationError(_("A weight is at least 1; pause the type to stop it."))
        return weight

    def clean_interval(self) -> float | None:
        """Refuse a negative interval."""
        interval: float | None = self.cleaned_data["interval"]
        if interval is not None and interval < 0:
            raise forms.ValidationError(_("An interval is 0 seconds or more."))
        return interval

    def clean(self) -> dict[str, Any]:
        """Refuse unknown types, and for a queue everything but a pause."""
        cleaned = super().clean() or self.cleaned_data
        scope, name = cleaned.get("scope", self.instance.scope), cleaned.get("name", self.instance.name)
        if scope == "type" and name and registry.find(name) is None and not self.instance.pk:
            self.add_error("name", _("No work is named so.") + did_you_mean(name, registry.names()))
        for field in OF_TYPES if scope == "queue" else ():
            if cleaned.get(field) is not None:
                self.add_error(field, _("A queue can only be paused."))
        return cleaned


class Suggesting(forms.TextInput):
    """A text field with suggestions."""

    template_name = "admin/django_ayework/suggesting.html"

    def __init__(self, suggestions: list[str]) -> None:
        super().__init__(attrs={"class": "vTextField", "list": "ayework-names"})
        self.suggestions = suggestions

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Add the suggestions."""
        return {**super().get_context(name, value, attrs), "suggestions": self.suggestions}


@admin.display(description=gettext_lazy("state"), ordering="paused")
def state(control: WorkControl) -> str:
    """Whether works are claimed."""
    return pages.badge("blocked", _("paused")) if control.paused else pages.badge("alive", _("served"))


@admin.display(description=gettext_lazy("as declared"))
def declared(control: WorkControl) -> str:
    """The values that the code declares, which apply where the control's own are empty."""
    work_type = registry.find(control.name) if control.scope == "type" else None
    if work_type is None:
        return pages.NOTHING
    values = control_of(work_type.settings, None)
    words = [_("weight %(number)s") % {"number": values.weight}]
    if values.max_running:
        words.append(_("at most %(number)s running") % {"number": values.max_running})
    if values.interval is not None:
        words.append(_("every %(number)g s") % {"number": values.interval})
    return ", ".join(words)


@admin.register(WorkControl)
class WorkControlAdmin(QueueAdmin):
    """The controls of types and queues. Every worker applies a change within a poll."""

    form = WorkControlForm
    fields: ClassVar[Any] = ("scope", "name", "paused", *OF_TYPES, declared)
    readonly_fields: ClassVar[Any] = (declared,)
    list_display = ("name", "scope", state, "priority", "weight", "max_running", declared, "changed_at")
    list_filter: ClassVar[Any] = ("scope", "paused")
    ordering = ("scope", "name")
    actions: Any = ("pause_selected", "resume_selected")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """The type or queue of a control does not change."""
        return (*self.readonly_fields, "scope", "name") if obj else self.readonly_fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Suggest the registered types and their queues."""
        form = super().get_form(request, obj, change, **kwargs)
        if "name" in form.base_fields:
            form.base_fields["name"].widget = Suggesting([*registry.names(), *declared_queues()])
        return form

    def save_model(self, request: HttpRequest, obj: WorkControl, form: Any, change: bool) -> None:
        """Write the control, so that workers read it."""
        values = {name: form.cleaned_data[name] for name in ("paused", *OF_TYPES)}
        write("queue" if obj.scope == "queue" else "type", obj.name, **values)
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
        """Write and log the change of each control, and show how many there were."""
        changed = list(controls.exclude(paused=paused))
        for control in changed:
            write("queue" if control.scope == "queue" else "type", control.name, paused=paused)
            self.log_change(request, control, _("Paused.") if paused else _("Resumed."))
        self.message_user(request, (PAUSED if paused else RESUMED) % {"count": len(changed)})
