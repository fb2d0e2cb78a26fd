"""Works about an object, on the page that a project's own admin has of the object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from django.contrib import admin
from django.db.models import Model
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.template.loader import select_template
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_ayework.admin import lists, pages
from django_ayework.admin.buttons import ButtonsAdmin, Shown
from django_ayework.admin.pages import Links, admin_of
from django_ayework.define.options import check_about
from django_ayework.models import Waiter, Work
from django_ayework.rules.formatting import duration
from django_ayework.rules.states import Status
from django_ayework.store.database import alias, clock, rows

#: The template variables of a work of the panel.
Row: TypeAlias = dict[str, Any]

#: The acts that have a button for each work of the panel.
OFFERED = frozenset({"retry", "cancel"})
#: The columns that a panel reads: no inputs, no results, and the beginning of an error.
COLUMNS = (
    "id", "type", "status", "reason", "attempt", "queue", "progress", "worker", "group_id", "unit",
    "queued_at", "run_at", "started_at", "ended_at",
)  # fmt: skip


class WorkPanel(admin.ModelAdmin):  # type: ignore[type-arg]
    """A mixin for the admin of any model: the page of an object shows the last works about it.

    Example::

        @admin.register(Order)
        class OrderAdmin(WorkPanel, admin.ModelAdmin):
            ...
    """

    #: Works that the panel shows.
    works_shown = 20

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show the page of an object with the works about it, if the user may look at works."""
        response = super().render_change_form(request, context, *args, **kwargs)
        obj = context.get("original")
        works = None if obj is None else works_about(obj, self.admin_site, request, self.works_shown)
        if works is None:
            return response
        shown: Any = response
        shown.context_data |= {
            "work_panel": works,
            "work_panel_base": base_template(shown.template_name),
        }
        shown.template_name = "admin/django_ayework/panel_form.html"
        return response


def base_template(names: Any) -> Any:
    """Return the template that the page would have without the panel."""
    found = names if isinstance(names, (list, tuple)) else [names]
    return select_template(found).template


def works_about(obj: Model, site: Any, request: HttpRequest, number: int) -> list[Row] | None:
    """Return the last works about an object, the newest first; None for users who may not look at works."""
    links = Links(site, request)
    if not links.may_view(Work):
        return None
    work_admin = admin_of(site, Work)
    label, key = check_about(obj, "obj")
    about = work_admin.get_queryset(request).filter(about_type=label, about_id=key)
    light = about.using(alias()).only(*COLUMNS).annotate(error_start=Left("error", 200))
    found = list(light.order_by("-queued_at", "-id")[:number])
    tallies = tallies_of([work.pk for work in found if work.status == Status.BLOCKED])
    return [panel_row(work, tallies, work_admin, links) for work in found]


def tallies_of(ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return how many of the works that these wait for have succeeded, and how many there are."""
    if not ids:
        return {}
    found = rows(Waiter).filter(work_id__in=ids).values_list("work_id", "succeeded", "total")
    return {id: (succeeded, total) for id, succeeded, total in found}


def panel_row(work: Any, tallies: Mapping[str, tuple[int, int]], work_admin: Any, links: Links) -> Row:
    """Return a work as a row of the panel: its cells as HTML or text, and its buttons."""
    buttons: Sequence[Shown] = ()
    if isinstance(work_admin, ButtonsAdmin):
        buttons = [each for each in work_admin.shown_buttons(links.request, work) if each.name in OFFERED]
    return {
        "link": links.short_work(work.pk),
        "type": work.type,
        "status": lists.status(work.status),
        "why": why(work, tallies),
        "queued": pages.moment(work.queued_at, clock.now()),
        "buttons": buttons,
    }


# Why a work stands as it does, in one sentence


def why(work: Any, tallies: Mapping[str, tuple[int, int]]) -> str:
    """Return why a work stands as it does, in one sentence that costs no query; its page says more."""
    if work.status == Status.BLOCKED and work.pk in tallies:
        succeeded, total = tallies[work.pk]
        counts = {"succeeded": succeeded, "total": total}
        return _("It waits for others: %(succeeded)d of %(total)d have succeeded.") % counts
    sentence = SENTENCES.get(work.status)
    return sentence(work) if sentence else ""


def of_pending(work: Any) -> str:
    """Return the sentence for a work that is due."""
    text = _("It has been due since {moment}, and waits for a worker that serves the queue {queue}.")
    return format_html(text, moment=pages.moment(work.run_at, clock.now()), queue=work.queue)


def of_scheduled(work: Any) -> str:
    """Return the sentence for a work whose start has not come."""
    at = pages.moment(work.run_at, clock.now())
    if not work.attempt:
        return format_html(_("It starts at {moment}."), moment=at)
    text = _("It will be tried again at {moment}. Its last error: {error}")
    return format_html(text, moment=at, error=pages.error_line(work.error_start))


def of_running(work: Any) -> str:
    """Return the sentence for a work that runs."""
    since = pages.moment(work.started_at, clock.now())
    progress = lists.progress_of(work.progress)
    return format_html(_("It has run since {moment}. {progress}"), moment=since, progress=progress)


def of_success(work: Any) -> str:
    """Return the sentence for a work that has succeeded."""
    at = pages.moment(work.ended_at, clock.now())
    if work.started_at is None or work.ended_at is None or work.ended_at < work.started_at:
        return format_html(_("It succeeded at {moment}."), moment=at)
    took = duration((work.ended_at - work.started_at).total_seconds())
    return format_html(_("It succeeded at {moment}, after {duration}."), moment=at, duration=took)


def of_dead(work: Any) -> str:
    """Return the sentence for a work that has died."""
    at = pages.moment(work.ended_at, clock.now())
    return format_html(
        _("It died at {moment} ({reason}): {error}"),
        moment=at,
        reason=lists.reason(work),
        error=pages.error_line(work.error_start),
    )


SENTENCES: Mapping[str, Callable[[Any], str]] = {
    Status.BLOCKED: lambda work: _("It waits for others."),
    Status.SCHEDULED: of_scheduled,
    Status.PENDING: of_pending,
    Status.RUNNING: of_running,
    Status.SUCCESS: of_success,
    Status.DEAD: of_dead,
    Status.CANCELLED: lambda work: format_html(
        _("It was cancelled at {moment}."), moment=pages.moment(work.ended_at, clock.now())
    ),
}
