"""The form of a control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.define.registry import registry
from django_ayework.errors import did_you_mean
from django_ayework.models import WorkControl

if TYPE_CHECKING:
    Form = forms.ModelForm[WorkControl]
else:
    Form = forms.ModelForm

#: What can be decided about a type alone.
OF_TYPES = ("priority", "weight", "max_running", "max_claimed", "continuous", "interval")


class WorkControlForm(Form):
    """A control of a type that is known, or of any queue."""

    class Meta:
        """Everything but what the engine writes."""

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
        """Refuse a weight with which a type would never be served; pausing says that better."""
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
        """Refuse types that are not known, and of queues everything but pausing."""
        cleaned = super().clean() or self.cleaned_data
        scope, name = cleaned.get("scope", self.instance.scope), cleaned.get("name", self.instance.name)
        if scope == "type" and name and registry.find(name) is None and not self.instance.pk:
            self.add_error("name", _("No work is named so.") + did_you_mean(name, registry.names()))
        for field in OF_TYPES if scope == "queue" else ():
            if cleaned.get(field) is not None:
                self.add_error(field, _("A queue can only be paused."))
        return cleaned


class Suggesting(forms.TextInput):
    """A text that may be one of these."""

    template_name = "admin/django_ayework/suggesting.html"

    def __init__(self, suggestions: list[str]) -> None:
        super().__init__(attrs={"class": "vTextField", "list": "ayework-names"})
        self.suggestions = suggestions

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Add the suggestions."""
        return {**super().get_context(name, value, attrs), "suggestions": self.suggestions}
