"""The page of a group."""

from __future__ import annotations

from django.db.models.functions import Left
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_ayework.admin import columns, pages
from django_ayework.admin.pages import Fact, Links, Page, Section, Table, shown
from django_ayework.conf import get_settings
from django_ayework.models import Group, Work
from django_ayework.store.database import rows

#: Works that the page shows.
SHOWN = 100


def group_page(group: Group, links: Links) -> Page:
    """Return a group's page."""
    return Page(_("Group %(id)s") % {"id": group.id}, [standing(group, links), members(group, links)])


def standing(group: Group, links: Links) -> Section:
    """Return how the group stands."""
    return Section(
        _("Group"),
        [
            Fact(_("first work"), links.work(group.id)),
            Fact(_("done"), columns.group_progress(group)),
            Fact(_("open"), str(group.open)),
            Fact(_("dead"), str(group.dead)),
            Fact(_("done at"), pages.full_moment(group.done_at)),
            Fact(_("value is final"), _("yes") if group.final else _("no")),
            Fact(_("value"), shown(group.value, get_settings().codec), wide=True),
        ],
    )


def members(group: Group, links: Links) -> Section:
    """Return the first works of the group, and the way to the others."""
    works = rows(Work).filter(group_id=group.id).order_by("id").defer("input", "result", "error")
    found = list(works.annotate(error_start=Left("error", 200))[:SHOWN])
    table = Table(
        [_("work"), _("type"), _("status"), _("attempt"), _("ended"), _("error")],
        [member_cells(work, links) for work in found],
    )
    note = _("The first %(shown)d of %(total)d.") if group.total > SHOWN else ""
    return Section(
        _("Works"),
        table=table,
        note=note and note % {"shown": SHOWN, "total": group.total},
        more=links.works_where(group_id=group.id),
    )


def member_cells(work: Work, links: Links) -> list[str]:
    """Return a work of the group as cells."""
    return [
        format_html('<span class="ayework-id">{}</span>', links.work(work.id, pages.short(work.id))),
        work.type,
        columns.status(work),
        columns.attempt(work),
        columns.ended(work),
        columns.error(work),
    ]
