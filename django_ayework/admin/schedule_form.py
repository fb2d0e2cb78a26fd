"""The form of a schedule that is made in the admin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.define.registry import registry
from django_ayework.define.schedules import schedules
from django_ayework.errors import AyeworkError, CronError
from django_ayework.flow.gate_payload import encoded_input
from django_ayework.models import Schedule
from django_ayework.rules.cron import parse_cron
from django_ayework.rules.cron.moments import zone_of

if TYPE_CHECKING:
    Form = forms.ModelForm[Schedule]
else:
    Form = forms.ModelForm

KINDS = [("cron", gettext_lazy("cron expression")), ("every", gettext_lazy("interval"))]
MADE = (
    "name", "function", "input", "kind", "cron", "every", "tz", "overlap", "catch_up", "dst", "jitter",
    "start_at", "end_at",
)  # fmt: skip


def schedulable_types() -> list[str]:
    """Return the types that may be scheduled by hand."""
    return sorted(work_type.name for work_type in registry if work_type.settings.schedulable)


class ScheduleForm(Form):
    """A schedule of a type that is declared schedulable, with an input that its handler takes."""

    kind = forms.ChoiceField(choices=KINDS, label=gettext_lazy("Kind"))
    function = forms.ChoiceField(label=gettext_lazy("Type"))

    class Meta:
        """Everything but what the engine writes."""

        model = Schedule
        fields = MADE
        widgets: ClassVar[Any] = {"input": forms.Textarea(attrs={"rows": 4, "class": "vLargeTextField"})}
        help_texts: ClassVar[Any] = {
            "input": gettext_lazy('The inputs as a JSON object, such as {"days": 7}; empty for none.'),
            "cron": gettext_lazy("Minute, hour, day of the month, month, day of the week: 0 3 * * *"),
            "every": gettext_lazy("Seconds from one occurrence to the next."),
            "tz": gettext_lazy("The zone in which the cron expression is read, such as Europe/Paris."),
            "jitter": gettext_lazy("A firing comes up to so many seconds later, at random."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "tz" not in self.fields:  # a page to be read
            return
        offered = {*schedulable_types(), *filter(None, [self.instance.function])}
        self.fields["function"].choices = [(name, name) for name in sorted(offered)]  # type: ignore[attr-defined]
        self.fields["tz"].initial = settings.TIME_ZONE

    def clean_name(self) -> str:
        """Refuse a name that code has taken."""
        name: str = self.cleaned_data["name"]
        if schedules.find(name) is not None:
            raise forms.ValidationError(_("Code declares a schedule of this name."))
        return name

    def clean_tz(self) -> str:
        """Refuse a zone that is not known."""
        tz: str = self.cleaned_data["tz"]
        try:
            zone_of(tz)
        except CronError as refusal:
            raise forms.ValidationError(str(refusal)) from None
        return tz

    def clean_jitter(self) -> float:
        """Refuse a negative jitter."""
        jitter: float = self.cleaned_data["jitter"]
        if jitter < 0:
            raise forms.ValidationError(_("A jitter is 0 seconds or more."))
        return jitter

    def clean(self) -> dict[str, Any]:
        """Refuse a time that does not go with the kind, and an input that the handler does not take."""
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("kind") == "every":
            cleaned["cron"] = ""
            if "every" in cleaned and (cleaned["every"] or 0) < 1:
                self.add_error("every", _("An interval is 1 second or more."))
        else:
            cleaned["every"] = None
            self.refuse_unless_read("cron", lambda: parse_cron(cleaned.get("cron") or ""))
        if cleaned.get("function"):
            self.refuse_unless_read("input", lambda: self.require_input(cleaned))
        return cleaned

    def require_input(self, cleaned: dict[str, Any]) -> None:
        """Raise unless the input can be read, fits the handler's signature, and can be stored."""
        work_type = registry.get(cleaned["function"])
        given = json.loads(cleaned.get("input") or "{}")
        if registry.batch(work_type.name) is None and not isinstance(given, dict):
            raise ValueError(_("Expected a JSON object, from the names of inputs to their values."))
        encoded_input(work_type.build(given))

    def refuse_unless_read(self, field: str, read: Any) -> None:
        """Add what a check raises as the error of a field."""
        try:
            read()
        except (AyeworkError, TypeError, ValueError) as refusal:
            self.add_error(field, str(refusal))
