"""Schedules: the list, a page for each, and what people can do to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import get_permission_codename
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin import pages
from django_ayework.admin.lists import ReadOnlyAdmin
from django_ayework.admin.pages import Fact, Links, Page, Section, Table
from django_ayework.define.registry import registry
from django_ayework.define.schedules import schedules
from django_ayework.errors import AyeworkError, CronError
from django_ayework.flow.firing import run_now
from django_ayework.flow.gates import encoded_input
from django_ayework.flow.schedules import State, save_by_hand, set_paused, state_of, upcoming
from django_ayework.models import Firing, Schedule
from django_ayework.models.schedule import (
    CATCH_UP_CHOICES,
    DST_CHOICES,
    FIRING_CHOICES,
    ORIGIN_CHOICES,
    OVERLAP_CHOICES,
)
from django_ayework.rules.schedules import parse_cron, zone_of
from django_ayework.rules.texts import duration
from django_ayework.store.clock import clock
from django_ayework.store.database import rows

# --- schedule columns ---
# What the list and the page of schedules say of one.


@admin.display(description=gettext_lazy("when"))
def when(schedule: Schedule) -> str:
    """When it fires, in words."""
    if schedule.kind == "cron":
        return f"{schedule.cron} ({schedule.tz})"
    if schedule.kind == "every":
        return _("every %(duration)s") % {"duration": duration(schedule.every or 0)}
    return _("as its function says")


@admin.display(description=gettext_lazy("state"))
def state(schedule: Schedule) -> str:
    """Whether it fires, and what keeps it."""
    kind, word = STATES[state_of(schedule)]
    return format_html('<span class="ayework-status ayework-{}">{}</span>', kind, word)


#: The colour and the word of each state.
STATES: dict[State, tuple[str, Any]] = {
    "not declared": ("stopped", gettext_lazy("not declared")),
    "paused": ("blocked", gettext_lazy("paused")),
    "failing": ("silent", gettext_lazy("failing")),
    "ended": ("stopped", gettext_lazy("ended")),
    "active": ("alive", gettext_lazy("active")),
}


@admin.display(description=gettext_lazy("next firing"))
def next_firing(schedule: Schedule) -> str:
    """The next occurrence."""
    return pages.moment(schedule.next_at, clock.now())


@admin.display(description=gettext_lazy("last fired"))
def last_fired(schedule: Schedule) -> str:
    """When it last fired."""
    return pages.moment(schedule.last_fired_at, clock.now())


@admin.display(description=gettext_lazy("error"))
def error(schedule: Schedule) -> str:
    """The first line of the last error, while it fails."""
    return format_html('<span class="ayework-error">{}</span>', pages.first_line(schedule.error, 140))


# --- schedule form ---
# The form of a schedule that is made in the admin.

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


# --- schedule page ---
# The page of a schedule.

#: Firings that the page shows, and how many it foresees.
SHOWN, FORESEEN = 50, 10


def schedule_page(schedule: Schedule, links: Links) -> Page:
    """Return a schedule's page."""
    headline = _("Schedule %(name)s") % {"name": schedule.name}
    return Page(headline, [standing(schedule), foreseen(schedule), history(schedule, links)])


def standing(schedule: Schedule) -> Section:
    """Return what it is, and how it stands."""
    facts = [
        Fact(_("state"), state(schedule)),
        Fact(_("when"), when(schedule)),
        Fact(_("runs"), schedule.function),
        Fact(_("time zone"), schedule.tz),
        Fact(_("origin"), label(ORIGIN_CHOICES, schedule.origin)),
        Fact(_("overlap"), label(OVERLAP_CHOICES, schedule.overlap)),
        Fact(_("catch up"), label(CATCH_UP_CHOICES, schedule.catch_up)),
        Fact(_("missing hour"), label(DST_CHOICES, schedule.dst)),
        Fact(_("jitter"), duration(schedule.jitter) if schedule.jitter else pages.NOTHING),
        Fact(_("start"), pages.full_moment(schedule.start_at)),
        Fact(_("end"), pages.full_moment(schedule.end_at)),
        Fact(_("last fired"), pages.full_moment(schedule.last_fired_at)),
        Fact(_("waiting for the firing before"), str(schedule.queued)),
    ]
    if schedule.failures:
        tries = _("%(count)d failures in a row; the next try is at %(moment)s")
        told = tries % {"count": schedule.failures, "moment": pages.full_moment(schedule.due_at)}
        facts.append(Fact(_("error"), format_html("{}<br>{}", told, schedule.error), wide=True))
    return Section(_("Schedule"), facts)


def label(choices: Iterable[tuple[str, Any]], value: str) -> str:
    """Return the word that people read for a value."""
    return str(dict(choices).get(value, value))


def foreseen(schedule: Schedule) -> Section:
    """Return its next occurrences."""
    moments = upcoming(schedule, FORESEEN)
    note = "" if moments else _("None is known.")
    if moments and schedule.kind == "next":
        note = _("Its function tells one at a time.")
    table = Table([_("occurrence")], [[pages.full_moment(at)] for at in moments]) if moments else None
    return Section(_("Next firings"), table=table, note=note)


def history(schedule: Schedule, links: Links) -> Section:
    """Return what became of its last occurrences, with links to their works."""
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
    work = firing.work_id or None
    return [
        pages.full_moment(firing.occurrence),
        label(FIRING_CHOICES, firing.status),
        str(firing.number),
        pages.full_moment(firing.made_at),
        format_html('<span class="ayework-id">{}</span>', links.work(work, work and pages.short(work))),
        format_html('<span class="ayework-error">{}</span>', pages.first_line(firing.error, 140)),
    ]


# --- schedules ---
# Schedules: the list, a page for each, and what people can do to them.


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules by name. Who may change them may pause, resume and run them."""

    deferred = ("input",)

    form = ScheduleForm
    change_form_template = "admin/django_ayework/schedule.html"
    list_display = (
        "name",
        state,
        when,
        next_firing,
        last_fired,
        "function",
        error,
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
        obj.pk = save_by_hand(obj.pk if change else None, columns).pk

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
