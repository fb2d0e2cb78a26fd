"""What the list and the page of schedules say of one."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import words
from django_ayework.flow.schedules.overview import State, state_of
from django_ayework.models import Schedule
from django_ayework.store.clock import clock


@admin.display(description=gettext_lazy("when"))
def when(schedule: Schedule) -> str:
    """When it fires, in words."""
    if schedule.kind == "cron":
        return f"{schedule.cron} ({schedule.tz})"
    if schedule.kind == "every":
        return _("every %(duration)s") % {"duration": words.duration(schedule.every or 0)}
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
    return words.moment(schedule.next_at, clock.now())


@admin.display(description=gettext_lazy("last fired"))
def last_fired(schedule: Schedule) -> str:
    """When it last fired."""
    return words.moment(schedule.last_fired_at, clock.now())


@admin.display(description=gettext_lazy("error"))
def error(schedule: Schedule) -> str:
    """The first line of the last error, while it fails."""
    return format_html('<span class="ayework-error">{}</span>', words.first_line(schedule.error, 140))
