"""Execution of actions on works: permissions, the page that asks first, messages, and log entries.

Works come from the queryset of their model admin, whose permission is asked for each of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import Error
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from django_ayework.admin import lists
from django_ayework.admin.actions import ACTS, FORBIDDEN, FORBIDDEN_IN_PART, ObjectAction, ParametersForm
from django_ayework.admin.pages import Links, seen_works
from django_ayework.admin.refusals import OF_LOG, show_refusal
from django_ayework.flow.acts import ActReport
from django_ayework.models import Work
from django_ayework.store.database import chunked, in_transaction
from django_ayework.store.deletion import steps_among

Row = TypeVar("Row", bound=Model)

#: Works that one press of a button acts on: the browser waits.
AT_ONCE = 500
#: Refusals, and new works, that are shown one by one.
SHOWN_EACH = 10
#: Works that the page before an act names.
SHOWN = 100

WAITS_AGAIN = ngettext_lazy(
    "%(count)d work waits again for others.", "%(count)d works wait again for others.", "count"
)
NOT_LISTED = ngettext_lazy(
    "%(count)d of the selected works is no longer in this list; nothing was done with it.",
    "%(count)d of the selected works are no longer in this list; nothing was done with them.",
    "count",
)
MORE_REFUSED = ngettext_lazy("%(count)d more was refused.", "%(count)d more were refused.", "count")


# Acting


@dataclass(frozen=True, slots=True)
class Acting:
    """An act that the user of a request carries out on works of a model admin."""

    action: ObjectAction
    model_admin: Any
    request: HttpRequest

    def carry_out(self, works: Sequence[Work], parameters: Mapping[str, Any]) -> None:
        """Act on works: log it, and show the result."""
        action, request = self.action, self.request
        allowed, refusals = self.split_by_permission(works)
        report = action.run(list(allowed), parameters)
        done = ((allowed[id], report.before.get(id, {})) for id in report.done)
        entries = [(work, action.logged(work, before, parameters)) for work, before in done]
        log_done(request, entries, action.is_deletion)
        show(request, messages.SUCCESS, action.done, len(report.done))
        show(request, messages.SUCCESS, WAITS_AGAIN, len(report.revived))
        show_new(request, Links(self.model_admin.admin_site, request), report)
        passed = len(allowed) - len(report.done) - len(report.revived) - len(report.refused)
        show(request, messages.WARNING, action.untouched, passed)
        refuse(request, [*report.refused.values(), *refusals])

    def act_on_first(self, chosen: QuerySet[Work]) -> list[Work]:
        """Act on the first works of a selection, and return them; show a message if there are more."""
        note = _("These were the first %(count)d of the selection; repeat the action for the others.")
        works = first_of(chosen, self.request, note)
        self.carry_out(works, {})
        return works

    def ask(self, works: Sequence[Work], hidden: Mapping[str, str], back: str) -> HttpResponse | None:
        """Carry out an act that was asked about and confirmed; else return the page that asks."""
        given = self.request.POST if "post" in self.request.POST else None
        form = self.action.form(given) if self.action.form else None
        if given is not None and (form is None or form.is_valid()):
            self.carry_out(works, form.cleaned_data if form else {})
            return None
        allowed, refusals = self.split_by_permission(works)
        refuse(self.request, refusals)
        return self.question(list(allowed.values()), form, hidden, back) if allowed else None

    def question(
        self, works: Sequence[Work], form: ParametersForm | None, hidden: Mapping[str, str], back: str
    ) -> HttpResponse:
        """Return the page that asks before an act, and names the works that it is about."""
        action = self.action
        counts, named = affected(action, works)
        links = Links(self.model_admin.admin_site, self.request)
        context = {
            "title": action.label if len(works) == 1 else action.selected,
            "has_form": True,
            "action": action,
            "form": form,
            "hidden": hidden,
            "back": back,
            "model_count": counts,
            "works": [
                format_html("{} {} {}", work.type, links.work(work.id), lists.status(work.status))
                for work in named[:SHOWN]
            ],
            "more": max(len(named) - SHOWN, 0),
            "queryset": works,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
        }
        response: HttpResponse = self.model_admin.framed(self.request, "act.html", context)
        return response

    # Permissions

    def split_by_permission(self, works: Iterable[Work]) -> tuple[dict[str, Work], list[str]]:
        """Return the works on which the user may act, by id; and a refusal for each other work."""
        permission = self.action.permission
        may = getattr(self.model_admin, f"has_{permission}_permission")
        allowed: dict[str, Work] = {}
        refusals: list[str] = []
        for work in works:
            if may(self.request, work):
                allowed[work.pk] = work
            else:
                refusals.append(FORBIDDEN[permission] % {"id": work.pk, "type": work.type})
        if self.action.is_deletion:
            refusals += self.refused_in_part(may, allowed)
        return allowed, refusals

    def refused_in_part(self, may: Callable[..., bool], allowed: dict[str, Work]) -> list[str]:
        """Remove the works whose chains have works that the user may not see or delete; return the refusals.

        Works are seen in the admin of works: that of dead letters shows parts of chains.
        """
        request = self.request
        seen = seen_works(self.model_admin.admin_site, request).defer(*self.model_admin.deferred)
        steps = steps_among(list(dict.fromkeys(work.chain for work in allowed.values())))
        others = [step.id for step in steps if step.id not in allowed]
        others_seen = (work for some in chunked(others) for work in seen.filter(pk__in=some))
        free = {work.pk for work in others_seen if may(request, work)}
        closed = Counter(step.chain for step in steps if step.id not in free and step.id not in allowed)
        refusals = []
        for work in list(allowed.values()):
            if work.chain in closed:
                del allowed[work.pk]
                values = {"id": work.pk, "type": work.type, "count": closed[work.chain]}
                refusals.append(FORBIDDEN_IN_PART % values)
        return refusals


# Messages, the log


def show(request: HttpRequest, level: int, text: Any, count: int) -> None:
    """Show the user a message with a count, unless that is zero."""
    if count > 0:
        messages.add_message(request, level, text % {"count": count})


def refuse(request: HttpRequest, refusals: Sequence[str]) -> None:
    """Show the user why works were left as they are."""
    for refusal in refusals[:SHOWN_EACH]:
        messages.error(request, refusal)
    show(request, messages.ERROR, MORE_REFUSED, len(refusals) - SHOWN_EACH)


def log_acts(request: HttpRequest, entries: Iterable[tuple[Work, str]], is_deletion: bool = False) -> None:
    """Write into the admin's log what the user did to works. Dead letters are logged as works."""
    from django.contrib.admin.models import CHANGE, DELETION, LogEntry  # needs an installed admin

    alike: defaultdict[str, list[Any]] = defaultdict(list)
    for work, sentence in entries:
        alike[sentence].append(Work(id=work.id, type=work.type))
    for sentence, works in alike.items():
        LogEntry.objects.log_actions(
            request.user.pk,  # type: ignore[arg-type]
            works,
            DELETION if is_deletion else CHANGE,
            sentence,
        )


def log_done(request: HttpRequest, entries: Iterable[tuple[Work, str]], is_deletion: bool = False) -> None:
    """Write into the admin's log what has been committed; show an error if the database refuses that."""
    try:
        log_acts(request, entries, is_deletion)
    except Error as error:
        if in_transaction():
            raise
        show_refusal(request, error, OF_LOG)


def show_new(request: HttpRequest, links: Links, report: ActReport) -> None:
    """Show links to the first new works."""
    for old, new in list(report.made.items())[:SHOWN_EACH]:
        text = _("The work {old} runs again as {new}.")
        messages.success(request, format_html(text, old=old, new=links.work(new)))


def first_of(chosen: QuerySet[Row], request: HttpRequest, note: str) -> list[Row]:
    """Return the first rows of a selection; show a note if there are more."""
    found = list(chosen[: AT_ONCE + 1])
    if len(found) > AT_ONCE:
        messages.warning(request, note % {"count": AT_ONCE})
    return found[:AT_ONCE]


def show_unlisted(request: HttpRequest, found: Sequence[Work]) -> None:
    """Show how many of the ticked works have left the list, as others may have acted on them."""
    if request.POST.get("select_across", "0") == "0" and len(found) < AT_ONCE:
        ticked = set(request.POST.getlist(ACTION_CHECKBOX_NAME))
        show(request, messages.WARNING, NOT_LISTED, len(ticked) - len(found))


def affected(action: ObjectAction, works: Sequence[Work]) -> tuple[list[tuple[str, int]], Sequence[Any]]:
    """Return how many rows an act is about, and those rows: of a deletion, all works of the chains."""
    if not action.is_deletion:
        return [(_("works"), len(works))], works
    chains = list(dict.fromkeys(work.chain for work in works))
    steps = steps_among(chains)
    return [(_("chains"), len(chains)), (_("works"), len(steps))], steps


# Actions of a list


Selected = Callable[[Any, HttpRequest, "QuerySet[Work]"], HttpResponse | None]


def selection_of(action: ObjectAction) -> Selected:
    """Return the action of a list that acts on the ticked works."""

    def selected(model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> HttpResponse | None:
        acting = Acting(action, model_admin, request)
        if not action.asks:
            show_unlisted(request, acting.act_on_first(chosen))
            return None
        note = _("These are the first %(count)d of the selection; repeat the action for the others.")
        hidden = {"action": f"{action.name}_selected"}
        works = first_of(chosen, request, note)
        show_unlisted(request, works)
        return acting.ask(works, hidden, request.get_full_path())

    selected.__name__ = selected.__qualname__ = f"{action.name}_selected"
    selected.__doc__ = f"{action.selected}."
    selected.short_description = action.selected  # type: ignore[attr-defined]
    selected.allowed_permissions = [action.permission]  # type: ignore[attr-defined]
    return selected


#: The actions of lists by the name of the act.
SELECTED: Mapping[str, Selected] = {name: selection_of(action) for name, action in ACTS.items()}
