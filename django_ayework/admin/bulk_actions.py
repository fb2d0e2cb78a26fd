"""Bulk actions in the admin: the page that asks, the page that shows how far one is, stopping, resuming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import lists, pages
from django_ayework.admin.actions import ACTS, ObjectAction, action_named
from django_ayework.admin.buttons import ButtonsAdmin, LoggedButton
from django_ayework.admin.filters import filter_in_words, plain_filter, title_of, title_with
from django_ayework.admin.lists import LiveAdmin
from django_ayework.admin.pages import Fact, Links, admin_of
from django_ayework.admin.refusals import shows_refusals
from django_ayework.flow import bulk_actions
from django_ayework.flow.drawing import number_text
from django_ayework.fragments import SCRIPT
from django_ayework.models import BulkAction, Work
from django_ayework.rules.formatting import duration
from django_ayework.store.database import atomic, clock
from django_ayework.store.selection import require_known

MOST_PER_MINUTE = 1_000_000
#: The statuses of bulk actions that can go on.
RESUMABLE = frozenset({"stopped", "failed"})
STOP = LoggedButton("stop", gettext_lazy("Stop"), logged=gettext_lazy("Stopped. It was running."))
RESUME = LoggedButton("resume", gettext_lazy("Resume"), logged=gettext_lazy("Resumed. It was %(state)s."))


class NewForm(forms.Form):
    """The pace of a bulk action, and the moment that its page was opened."""

    per_minute = forms.IntegerField(
        label=gettext_lazy("Works per minute"),
        required=False,
        min_value=1,
        max_value=MOST_PER_MINUTE,
        help_text=gettext_lazy("Leave it empty to go as fast as workers can."),
        widget=forms.NumberInput(attrs={"aria-describedby": "id_per_minute_helptext"}),
    )
    until = forms.CharField(required=False, widget=forms.HiddenInput)


# The list


@admin.display(description=gettext_lazy("bulk action"))
def title(row: BulkAction) -> str:
    """The act, and the number of works."""
    return title_of(row)


@admin.display(description=gettext_lazy("status"))
def standing(row: BulkAction) -> str:
    """How it stands, in its colour."""
    return pages.badge(BADGES.get(row.status, "unknown"), pages.choice_label(row, "status"))


@admin.display(description=gettext_lazy("done"))
def done(row: BulkAction) -> str:
    """How many works it has acted on, as a bar and in figures."""
    return format_html('<span class="ayework-narrow">{} {}</span>', bar(row), acted_of(row))


created = lists.moment_column("created_at", gettext_lazy("created"), "created")
ended = lists.moment_column("ended_at", gettext_lazy("ended"), "ended")


@admin.register(BulkAction)
class BulkActionAdmin(ButtonsAdmin, LiveAdmin):
    """Bulk actions, the newest first.

    To make, stop or resume one takes the permission of its act, asked without a work, and ``bulk_work``.
    """

    looks = ("bulk",)
    scripts = (SCRIPT,)
    buttons = (STOP, RESUME)
    change_form_template = "admin/django_ayework/bulk_page.html"
    live_template = "admin/django_ayework/bulk_progress.html"
    list_display = (title, standing, done, "refused", created, ended, "created_by")
    ordering: ClassVar[Any] = ("-id",)

    # Permissions

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Those who may make bulk actions may look at them."""
        return super().has_view_permission(request, obj) or self.may_act_in_bulk(request)

    def may_act_in_bulk(self, request: HttpRequest) -> bool:
        """Tell whether the user may act on all works that match a filter; no without a ``WorkAdmin``."""
        may = getattr(admin_of(self.admin_site, Work), "may_act_on_all", None)
        return may is not None and bool(may(request))

    def may(self, action: ObjectAction | None, request: HttpRequest) -> bool:
        """Tell whether the user may let workers carry out an act on all works that match a filter."""
        if action is None or not self.may_act_in_bulk(request):
            return False
        return bool(getattr(admin_of(self.admin_site, Work), f"has_{action.permission}_permission")(request))

    # Addresses

    def get_urls(self) -> list[URLPattern]:
        """Add the page of a new one."""
        view = self.admin_site.admin_view(self.new_view)
        return [path("new/", view, name=self.page_name("new")), *super().get_urls()]

    # A new one

    @shows_refusals
    def new_view(self, request: HttpRequest) -> HttpResponseBase:
        """Ask whether to act on all works that match, then store the bulk action and show its page."""
        name, filter = plain_filter(request.GET)
        if not name:
            return self.choice(request, filter)
        action = action_named(name)
        if not self.may(action, request) or action is None:
            raise PermissionDenied
        now = clock.now()
        form = NewForm(request.POST or None, initial={"until": now.isoformat()})
        given = action.form(request.POST or None) if action.form else None
        are_valid = form.is_valid() and (given is None or given.is_valid())
        try:
            if request.method == "POST" and are_valid:
                with atomic():
                    row = bulk_actions.start(
                        action.act,
                        filter,
                        parameters=given.cleaned_data if given else {},
                        per_minute=form.cleaned_data["per_minute"],
                        until=moment_of(form.cleaned_data["until"]),
                        by=str(request.user.get_username()),
                    )
                    self.log_new(request, row)
                messages.success(request, _("Workers begin to act on these works now."))
                return HttpResponseRedirect(self.address("change", row.pk))
            count = bulk_actions.count_of(action.act, filter, now)
        except ValueError as error:
            return self.refused(request, str(error))
        links = Links(self.admin_site, request)
        context = {
            "title": title_with(action.label, count),
            "action": action,
            "words": filter_in_words(filter, links),
            "forms": [form, given] if given else [form],
            "question": action.question,
            "is_empty": count == 0,
            "back": links.address(Work, "changelist"),
            "has_form": True,
        }
        return self.framed(request, "bulk_new.html", context)

    def choice(self, request: HttpRequest, filter: Mapping[str, Any]) -> HttpResponseBase:
        """Show the acts that the user may choose from."""
        acts = [
            (action, f"?{request.GET.urlencode()}&action={name}")
            for name, action in ACTS.items()
            if self.may(action, request) and accepts(action, filter)
        ]
        if not self.may_act_in_bulk(request):
            raise PermissionDenied
        links = Links(self.admin_site, request)
        context = {
            "title": _("Act on all matching works"),
            "acts": acts,
            "words": filter_in_words(filter, links),
        }
        return self.framed(request, "bulk_choice.html", context)

    def log_new(self, request: HttpRequest, row: BulkAction) -> None:
        """Write a new bulk action into the log."""
        words = "; ".join(f"{label}: {value}" for label, value in words_of(row))
        pace = "" if row.per_minute is None else _(" %(count)d per minute.") % {"count": row.per_minute}
        self.log_addition(request, row, f"{title_of(row)}. {words}.{pace}")

    def refused(self, request: HttpRequest, sentence: str) -> HttpResponse:
        """Show why a filter cannot be used."""
        return self.framed(request, "refused.html", {"title": _("Not possible"), "sentence": sentence}, 400)

    # The page of one

    def page_context(self, request: HttpRequest, obj: BulkAction) -> dict[str, Any]:
        """Return how far it is, and its buttons."""
        links = Links(self.admin_site, request)
        return {
            "title": title_of(obj),
            "subtitle": None,
            **self.live_context(request, obj),
            "words": words_of(obj, links),
            "live_url": self.address("live", obj.pk),
            **{f"{button.name}_url": button.url for button in self.shown_buttons(request, obj)},
            "history_url": links.address(BulkAction, "history", obj.pk),
        }

    def live_context(self, request: HttpRequest, obj: BulkAction) -> dict[str, Any]:
        """Return how far a bulk action is, with links to refused works."""
        return {"progress": progress_of(obj, Links(self.admin_site, request))}

    def offers(self, button: LoggedButton, obj: BulkAction) -> bool:
        """Tell whether the bulk action runs, or can go on."""
        return obj.status == "running" if button is STOP else obj.status in RESUMABLE

    def may_press(self, button: LoggedButton, request: HttpRequest, obj: BulkAction | None) -> bool:
        """Tell whether the user may let workers carry out this act."""
        return obj is None or self.may(action_named(obj.action), request)

    def press(self, button: LoggedButton, request: HttpRequest, obj: BulkAction) -> None:
        """Stop a bulk action after its present page, or let it go on, and log it."""
        sentence = button.logged % {"state": pages.choice_label(obj, "status")}
        with atomic():
            is_done = (bulk_actions.stop if button is STOP else bulk_actions.resume)(obj.pk)
            if is_done:
                self.log_change(request, obj, sentence)
        if is_done:
            messages.success(request, sentence)
        else:
            row = self.get_object(request, obj.pk) or obj  # its last page or another user may have ended it
            state = {"state": pages.choice_label(row, "status")}
            messages.warning(request, _("It is %(state)s now.") % state)


def accepts(action: ObjectAction, filter: Mapping[str, Any]) -> bool:
    """Tell whether an act is about works of the status that is filtered by, if one is."""
    return "status" not in filter or filter["status"] in action.statuses


def words_of(row: BulkAction, links: Links | None = None) -> list[tuple[str, str]]:
    """Return the filter of a bulk action in words; as it is stored if it cannot be read."""
    try:
        filter, error = bulk_actions.filter_of(row), bulk_actions.error_of(row)
        require_known(filter)
    except (AttributeError, ValueError):  # the former for what is no object
        return [(_("filter"), pages.printable(row.filter))]
    return filter_in_words(filter, links, error)


def moment_of(text: str) -> Any:
    """Return the moment of a hidden field; None for anything else."""
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


# How far one is: figures, rate, estimate and refusals, for its page and for the list

#: The colours of the statuses.
BADGES = {"running": "running", "stopped": "stopped", "done": "success", "failed": "dead"}
#: Seconds after which a rate is worth a figure.
MEASURED_AFTER = 2.0
#: Percent between two announcements.
ANNOUNCED = 10


def progress_of(row: BulkAction, links: Links) -> dict[str, Any]:
    """Return how far a bulk action is, in texts; ``announced`` changes rarely enough to be read out."""
    kept = [(pages.printable(id), pages.printable(text)) for id, text in bulk_actions.report_of(row)]
    refusals = [(links.work(id), sentence) for id, sentence in kept if id]
    return {
        "badge": standing(row),
        "bar": bar(row),
        "acted_text": acted_of(row),
        "announced": announced(row),
        "facts": facts(row),
        "error": next((sentence for id, sentence in kept if not id), ""),
        "refusals": refusals,
        "more_refusals": max(0, row.refused - len(refusals)),
        "is_over": row.status != "running",
    }


def figures_of(row: BulkAction) -> tuple[int, int | None]:
    """Return how many works were acted on, and how many were expected.

    The latter is None when there are more than were counted, or nobody counted.
    """
    is_unknown = bulk_actions.is_capped(row) or row.expected == bulk_actions.UNKNOWN
    return row.done + row.refused, None if is_unknown else row.expected


def announced(row: BulkAction) -> str:
    """Return the status and the share that is done, in steps."""
    status, (acted, total) = pages.choice_label(row, "status"), figures_of(row)
    if not total:
        return status
    percent = min(100, 100 * acted // total) // ANNOUNCED * ANNOUNCED
    share = _("%(share)d %% done") % {"share": percent}
    return f"{status}, {share}"


def bar(row: BulkAction) -> str:
    """Return the bar as HTML; that of an action that is done is full."""
    acted, total = figures_of(row)
    if row.status == "done":
        acted = total = max(1, acted)
    return lists.bar(min(acted, total or acted), total, _("Works acted on"))


def acted_of(row: BulkAction) -> str:
    """Return how many works were acted on, of how many."""
    acted, total = figures_of(row)
    if total is None or row.status == "done":
        return number_text(acted)
    return _("%(acted)s of %(total)s") % {"acted": number_text(acted), "total": number_text(total)}


def facts(row: BulkAction) -> list[Fact]:
    """Return the figures of a bulk action."""
    acted, total = figures_of(row)
    took = max(0.0, ((row.ended_at or clock.now()) - row.created_at).total_seconds())
    rate = acted * 60 / took if took >= MEASURED_AFTER else None
    pace = _("as fast as workers can") if row.per_minute is None else number_text(row.per_minute)
    left = None if total is None else max(0, total - acted)
    return [
        Fact(_("done"), number_text(row.done)),
        Fact(_("refused"), number_text(row.refused)),
        *([] if left is None or row.status == "done" else [Fact(_("left"), number_text(left))]),
        Fact(_("per minute, as set"), pace),
        Fact(_("per minute, as measured"), pages.NOTHING if rate is None else number_text(round(rate))),
        *([Fact(_("ends in about"), estimate(row, left, rate))] if row.status == "running" else []),
        Fact(_("created"), f"{pages.full_moment(row.created_at)} {row.created_by}".strip()),
        Fact(_("works up to"), pages.full_moment(row.until)),
        *([Fact(_("ended"), pages.full_moment(row.ended_at))] if row.ended_at else []),
    ]


def estimate(row: BulkAction, left: int | None, rate: float | None) -> str:
    """Return how long the rest takes at its pace, or else at the measured rate."""
    pace = row.per_minute or rate
    return pages.NOTHING if left is None or not pace else duration(round(left * 60 / pace))
