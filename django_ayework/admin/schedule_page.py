"""The page of a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_ayework.admin import schedule_columns, words
from django_ayework.admin.links import Links
from django_ayework.admin.sections import Fact, Page, Section, Table
from django_ayework.flow.schedules.timings import upcoming
from django_ayework.models import Firing, Schedule
from django_ayework.models.schedule import (
    CATCH_UP_CHOICES,
    DST_CHOICES,
    FIRING_CHOICES,
    ORIGIN_CHOICES,
    OVERLAP_CHOICES,
)
from django_ayework.store.database import rows

#: Firings that the page shows, and how many it foresees.
SHOWN, FORESEEN = 50, 10


def schedule_page(schedule: Schedule, links: Links) -> Page:
    """Return a schedule's page."""
    headline = _("Schedule %(name)s") % {"name": schedule.name}
    return Page(headline, [standing(schedule), foreseen(schedule), history(schedule, links)])


def standing(schedule: Schedule) -> Section:
    """Return what it is, and how it stands."""
    facts = [
        Fact(_("state"), schedule_columns.state(schedule)),
        Fact(_("when"), schedule_columns.when(schedule)),
        Fact(_("runs"), schedule.function),
        Fact(_("time zone"), schedule.tz),
        Fact(_("origin"), label(ORIGIN_CHOICES, schedule.origin)),
        Fact(_("overlap"), label(OVERLAP_CHOICES, schedule.overlap)),
        Fact(_("catch up"), label(CATCH_UP_CHOICES, schedule.catch_up)),
        Fact(_("missing hour"), label(DST_CHOICES, schedule.dst)),
        Fact(_("jitter"), words.duration(schedule.jitter) if schedule.jitter else words.NOTHING),
        Fact(_("start"), words.full_moment(schedule.start_at)),
        Fact(_("end"), words.full_moment(schedule.end_at)),
        Fact(_("last fired"), words.full_moment(schedule.last_fired_at)),
        Fact(_("waiting for the firing before"), str(schedule.queued)),
    ]
    if schedule.failures:
        tries = _("%(count)d failures in a row; the next try is at %(moment)s")
        told = tries % {"count": schedule.failures, "moment": words.full_moment(schedule.due_at)}
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
    table = Table([_("occurrence")], [[words.full_moment(at)] for at in moments]) if moments else None
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
        words.full_moment(firing.occurrence),
        label(FIRING_CHOICES, firing.status),
        str(firing.number),
        words.full_moment(firing.made_at),
        format_html('<span class="ayework-id">{}</span>', links.work(work, work and words.short(work))),
        format_html('<span class="ayework-error">{}</span>', words.first_line(firing.error, 140)),
    ]
