"""Schedules: the list, the form of those made in the admin, and a page for each."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_ayework.admin import lists, pages
from django_ayework.admin.buttons import LoggedButton, LoggedButtonsAdmin, selection_of
from django_ayework.admin.pages import Fact, Links, Page, Section, Table
from django_ayework.define.schedules import schedules
from django_ayework.define.types import registry
from django_ayework.errors import AyeworkError, CronError
from django_ayework.flow.payloads import encoded_input
from django_ayework.flow.scheduler import run_now
from django_ayework.flow.schedules import State, delete_by_hand, save_by_hand, set_paused, state_of, upcoming
from django_ayework.models import Firing, Schedule
from django_ayework.rules.formatting import duration
from django_ayework.rules.schedules import parse_cron, zone_of
from django_ayework.store.database import rows

KINDS = [("cron", gettext_lazy("cron expression")), ("every", gettext_lazy("interval"))]
#: The columns that the form fills in.
FILLED_IN = (
    "name", "function", "input", "kind", "cron", "every", "tz", "overlap", "catch_up", "dst", "jitter",
    "start_at", "end_at",
)  # fmt: skip
#: Firings that the page shows, and occurrences that it foresees.
SHOWN, FORESEEN = 50, 10
#: The colour and the word of each state.
STATES: dict[State, tuple[str, Any]] = {
    "not declared": ("stopped", gettext_lazy("not declared")),
    "paused": ("blocked", gettext_lazy("paused")),
    "failing": ("silent", gettext_lazy("failing")),
    "ended": ("stopped", gettext_lazy("ended")),
    "active": ("alive", gettext_lazy("active")),
}
RUN = LoggedButton(
    "run",
    gettext_lazy("Run now"),
    gettext_lazy("Fire once now, in addition to its occurrences."),
    logged=gettext_lazy("Run by hand. It was %(state)s."),
    said=gettext_lazy("The schedule %(name)s was run."),
    selected=gettext_lazy("Run selected schedules now"),
    counted=ngettext_lazy("%(count)d was run.", "%(count)d were run.", "count"),
)
PAUSE = LoggedButton(
    "pause",
    gettext_lazy("Pause"),
    gettext_lazy("Stop firing; queued works continue."),
    logged=gettext_lazy("Paused. It was %(state)s."),
    said=gettext_lazy("The schedule %(name)s was paused."),
    selected=gettext_lazy("Pause selected schedules"),
    counted=ngettext_lazy("%(count)d was paused.", "%(count)d were paused.", "count"),
)
RESUME = LoggedButton(
    "resume",
    gettext_lazy("Resume"),
    gettext_lazy("Fire again from now on; missed occurrences are not caught up."),
    logged=gettext_lazy("Resumed. It was %(state)s."),
    said=gettext_lazy("The schedule %(name)s fires again from now on."),
    selected=gettext_lazy("Resume selected schedules"),
    counted=ngettext_lazy("%(count)d was resumed.", "%(count)d were resumed.", "count"),
)


# Columns


@admin.display(description=gettext_lazy("when"))
def when(schedule: Schedule) -> str:
    """When it fires, in words."""
    if schedule.kind == "cron":
        return f"{schedule.cron} ({schedule.tz})"
    if schedule.kind == "every":
        return _("every %(duration)s") % {"duration": duration(schedule.every or 0)}
    return _("set by its function")


@admin.display(description=gettext_lazy("state"))
def state(schedule: Schedule) -> str:
    """Whether it fires, or what prevents it."""
    return pages.badge(*STATES[state_of(schedule)])


@admin.display(description=gettext_lazy("error"))
def error(schedule: Schedule) -> str:
    """The first line of the last error, while it fails."""
    return pages.error_line(schedule.error)


# The form


def schedulable_types() -> list[str]:
    """Return the types that may be scheduled by hand."""
    return sorted(work_type.name for work_type in registry if work_type.settings.schedulable)


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]  # which Django does not take
    """The form of a schedule of a type that is declared schedulable, with an input that its handler takes."""

    kind = forms.ChoiceField(choices=KINDS, label=gettext_lazy("Kind"))
    function = forms.ChoiceField(label=gettext_lazy("Type"))

    class Meta:
        """All columns that the engine does not write."""

        model = Schedule
        fields = FILLED_IN
        widgets: ClassVar[Any] = {"input": forms.Textarea(attrs={"rows": 4, "class": "vLargeTextField"})}
        help_texts: ClassVar[Any] = {
            "input": gettext_lazy('The inputs as a JSON object, such as {"days": 7}; empty for none.'),
            "cron": gettext_lazy("Minute, hour, day of the month, month, day of the week: 0 3 * * *"),
            "every": gettext_lazy("Seconds from one occurrence to the next."),
            "tz": gettext_lazy("The zone in which the cron expression is read, such as Europe/Paris."),
            "jitter": gettext_lazy("Each firing is delayed at random, by up to this many seconds."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "tz" not in self.fields:  # a page for reading
            return
        offered = {*schedulable_types(), *filter(None, [self.instance.function])}
        self.fields["function"].choices = [(name, name) for name in sorted(offered)]  # type: ignore[attr-defined]
        self.fields["tz"].initial = settings.TIME_ZONE

    def clean_name(self) -> str:
        """Refuse a name that is taken."""
        name: str = self.cleaned_data["name"]
        if schedules.find(name) is not None:
            raise forms.ValidationError(_("Code declares a schedule of this name."))
        if rows(Schedule).filter(name=name).exclude(pk=self.instance.pk).exists():
            raise self.instance.unique_error_message(Schedule, ("name",))
        return name

    def validate_unique(self) -> None:
        """Leave out Django's search for the name, which is where the routers say: see ``clean_name()``."""

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
        except (AyeworkError, RecursionError, TypeError, ValueError) as refusal:
            self.add_error(field, str(refusal))


# The page


def standing(schedule: Schedule) -> Section:
    """Return the schedule's options and its state."""
    facts = [
        Fact(_("state"), state(schedule)),
        Fact(_("when"), when(schedule)),
        Fact(_("runs"), schedule.function),
        Fact(_("time zone"), schedule.tz),
        Fact(_("origin"), pages.choice_label(schedule, "origin")),
        Fact(_("overlap"), pages.choice_label(schedule, "overlap")),
        Fact(_("catch up"), pages.choice_label(schedule, "catch_up")),
        Fact(_("missing hour"), pages.choice_label(schedule, "dst")),
        Fact(_("jitter"), duration(schedule.jitter) if schedule.jitter else pages.NOTHING),
        Fact(_("start"), pages.full_moment(schedule.start_at)),
        Fact(_("end"), pages.full_moment(schedule.end_at)),
        Fact(_("last fired"), pages.full_moment(schedule.last_fired_at)),
        Fact(_("waiting for the previous firing"), str(schedule.queued)),
    ]
    if schedule.failures:
        tries = _("%(count)d failures in a row; the next try is at %(moment)s")
        tries %= {"count": schedule.failures, "moment": pages.full_moment(schedule.due_at)}
        facts.append(Fact(_("error"), format_html("{}<br>{}", tries, schedule.error), wide=True))
    return Section(_("Schedule"), facts)


def foreseen(schedule: Schedule) -> Section:
    """Return its next occurrences."""
    moments = upcoming(schedule, FORESEEN)
    note = "" if moments else _("No firing is planned.")
    if moments and schedule.kind == "next":
        note = _("Its function plans one firing at a time.")
    table = Table([_("occurrence")], [[pages.full_moment(at)] for at in moments]) if moments else None
    return Section(_("Next firings"), table=table, note=note)


def history(schedule: Schedule, links: Links) -> Section:
    """Return the last firings, with links to their works."""
    found = list(rows(Firing).filter(schedule_id=schedule.pk).order_by("-occurrence")[: SHOWN + 1])
    table = Table(
        [_("occurrence"), _("status"), _("occurrences"), _("at"), _("work"), _("error")],
        [firing_cells(firing, links) for firing in found[:SHOWN]],
    )
    note = "" if found else _("It has not fired yet.")
    if len(found) > SHOWN:
        note = _("The last %(count)d.") % {"count": SHOWN}
    return Section(_("History"), table=table if found else None, note=note)


def firing_cells(firing: Firing, links: Links) -> list[str]:
    """Return a firing as cells."""
    return [
        pages.full_moment(firing.occurrence),
        pages.choice_label(firing, "status"),
        str(firing.number),
        pages.full_moment(firing.made_at),
        links.short_work(firing.work_id or None),
        pages.error_line(firing.error),
    ]


# The list


@admin.register(Schedule)
class ScheduleAdmin(LoggedButtonsAdmin):
    """Schedules by name. The change permission allows pausing, resuming and running them."""

    looks = ("pages",)
    buttons = (RUN, PAUSE, RESUME)
    deferred = ("input",)

    form = ScheduleForm
    change_form_template = "admin/django_ayework/schedule.html"
    list_display = (
        "name",
        state,
        when,
        lists.moment_column("next_at", gettext_lazy("next firing"), "next_firing"),
        lists.moment_column("last_fired_at", gettext_lazy("last fired"), "last_fired"),
        "function",
        error,
    )
    ordering = ("name",)
    actions: Any = tuple(map(selection_of, (PAUSE, RESUME, RUN)))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields if they may be filled in."""
        may_fill_in = self.has_add_permission(request) if obj is None else self.may_change(request, obj)
        return [(None, {"fields": FILLED_IN})] if may_fill_in else ()

    def page_context(self, request: HttpRequest, obj: Schedule | None) -> dict[str, Any]:
        """Return the schedule's page, and whether there is a form above it."""
        if obj is None:
            return {"fills_in": True}
        sections = [standing(obj), foreseen(obj), history(obj, Links(self.admin_site, request))]
        return {
            "page": Page(_("Schedule %(name)s") % {"name": obj.name}, sections),
            "buttons": self.shown_buttons(request, obj),
            "history_url": self.address("history", obj.pk),
            "fills_in": self.may_change(request, obj),
        }

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Schedules of schedulable types are made here; all others are declared in code."""
        return self.is_allowed(request, "add") and bool(schedulable_types())

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Schedules that code declares are changed there."""
        return obj is not None and self.may_change(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Schedules that code declares would be inserted again at the next sync."""
        return obj is not None and obj.origin == "admin" and self.is_allowed(request, "delete")

    def may_change(self, request: HttpRequest, obj: Schedule) -> bool:
        """Tell whether the user may change this schedule in the form."""
        return obj.origin == "admin" and self.is_allowed(request, "change")

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Save the form; if its occurrences change, the schedule begins anew."""
        columns = {name: form.cleaned_data[name] for name in FILLED_IN}
        obj.pk = save_by_hand(obj.pk if change else None, columns).pk

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return the schedules, and the number of the firings that go with them."""
        firings = rows(Firing).filter(schedule__in=[obj.pk for obj in objs]).count()
        counts = {Schedule._meta.verbose_name_plural: len(objs), Firing._meta.verbose_name_plural: firings}
        return [str(obj) for obj in objs], counts, set(), []

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        """Delete a schedule and its history where the queue is."""
        delete_by_hand(obj.pk)

    def offers(self, button: LoggedButton, obj: Schedule) -> bool:
        """Tell whether a schedule can be paused, or resumed; one can always be run."""
        return button is RUN or obj.paused is (button is RESUME)

    def state_in_words(self, obj: Schedule) -> Any:
        """Return the state of a schedule."""
        return STATES[state_of(obj)][1]

    def carry_out(self, name: str, obj: Schedule) -> bool:
        """Run, pause or resume a schedule; return whether that changed anything."""
        if name != "run":
            return set_paused(obj.pk, name == "pause")
        run_for_people(obj)
        return True

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The change permission allows looking, too."""
        return super().has_view_permission(request, obj) or self.has_command_permission(request)


def run_for_people(schedule: Schedule) -> None:
    """Fire a schedule once. Raises AyeworkError for whatever its code raises."""
    try:
        run_now(schedule.pk)
    except Exception as error:  # the project's code may raise anything
        failed = _("The schedule %(name)s could not be run: %(error)s")
        raise AyeworkError(
            failed % {"name": schedule.name, "error": error}, code="schedule-run-failed"
        ) from error
