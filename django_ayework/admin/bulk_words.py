"""Bulk actions in words: their titles and filters, and the link of a list that leads to a new one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin import pages
from django_ayework.admin.actions import ACTS
from django_ayework.admin.pages import Links, found_address
from django_ayework.flow import bulk
from django_ayework.models import BulkAction
from django_ayework.models.work import REASON_CHOICES, STATUS_CHOICES
from django_ayework.rules.causes import normalised
from django_ayework.store.causes import cause_of
from django_ayework.store.selection import COUNTED, FILTERS

#: The labels of the parameters of a filter.
LABELS = {
    "status": gettext_lazy("status"),
    "type": gettext_lazy("type"),
    "queue": gettext_lazy("queue"),
    "reason": gettext_lazy("reason"),
    "cause": gettext_lazy("error"),
    "worker": gettext_lazy("worker"),
    "fairness": gettext_lazy("label"),
    "priority": gettext_lazy("priority"),
    "unit": gettext_lazy("unit"),
    "group_id": gettext_lazy("group"),
    "chain_id": gettext_lazy("chain"),
    "parent_id": gettext_lazy("queued by"),
    "about_type": gettext_lazy("about objects of"),
    "about_id": gettext_lazy("about the object"),
    "day": gettext_lazy("queued on"),
    "ids": gettext_lazy("ids"),
}
CHOICES = {"status": dict(STATUS_CHOICES), "reason": dict(REASON_CHOICES)}
#: Parameters of a list's address that choose no works.
OF_LISTS = frozenset({"p", "o", "all", "e", "_changelist_filters", "_popup", "_to_field", "_facets"})
#: Ids that a filter in words names.
IDS_NAMED = 3


def plain_filter(query: QueryDict) -> tuple[str, dict[str, Any]]:
    """Return the name of the act and the filter of an address; ``ids`` may come often, or with commas."""
    given: dict[str, Any] = {name: value for name, value in query.items() if name not in OF_LISTS}
    action = str(given.pop("action", ""))
    if "ids" in given:
        given["ids"] = [id for text in query.getlist("ids") for id in str(text).split(",") if id]
    return action, given


def filter_in_words(filter: Mapping[str, Any], links: Links | None = None) -> list[tuple[str, str]]:
    """Return a filter as labels and values; the cause as the error that its works share."""
    if not filter:
        return [(_("works"), _("all"))]
    return [(str(LABELS.get(name, name)), value_in_words(name, filter, links)) for name in filter]


def value_in_words(name: str, filter: Mapping[str, Any], links: Links | None) -> str:
    """Return one value of a filter."""
    value = filter[name]
    if name in CHOICES:
        return str(CHOICES[name].get(value, value))
    if name == "ids":
        more = len(value) - IDS_NAMED
        named = ", ".join(value[:IDS_NAMED])
        return named if more <= 0 else _("%(ids)s and %(count)d more") % {"ids": named, "count": more}
    if name == "cause" and {"type", "reason"} <= filter.keys():
        found = cause_of((filter["type"], filter["reason"], value))
        return str(value) if found is None else pages.printable(normalised(found.error)) or str(value)
    if name == "group_id" and links is not None:
        return links.group(value)
    return str(value)


def number_of(count: int | None) -> str:
    """Return a number of works, as far as it is known."""
    if count is None or count == bulk.UNKNOWN:
        return _("all matching works")
    if count > COUNTED:
        return _("more than %(count)s works") % {"count": number_format(COUNTED, force_grouping=True)}
    text = ngettext("%(number)s work", "%(number)s works", count)
    return text % {"number": number_format(count, force_grouping=True)}


def title_of(row: BulkAction) -> str:
    """Return what a bulk action does to how many works."""
    action = next((action for action in ACTS.values() if action.act == row.action), None)
    label = row.action if action is None else action.label
    return _("%(act)s %(number)s") % {"act": label, "number": number_of(row.expected)}


def bulk_address(site: Any, query: str) -> str | None:
    """Return the address of the page for a new bulk action, or None on a site without that page."""
    page = found_address(site, "django_ayework_bulkaction_new")
    return page and f"{page}?{query}"


class ActsOnAll:
    """A list of works with a link to act on all that match its filters."""

    #: Filters that the list has by itself.
    fixed_filter: Mapping[str, str] = MappingProxyType({})

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with the link."""
        response: HttpResponse = super().changelist_view(request, extra_context)  # type: ignore[misc]
        if isinstance(response, TemplateResponse) and response.context_data and "cl" in response.context_data:
            response.context_data["bulk"] = self.bulk_link(request, response.context_data["cl"])
        return response

    def bulk_link(self, request: HttpRequest, changelist: Any) -> dict[str, str] | None:
        """Return the address and the text of the link; None for a user who may not, or for other filters."""
        _action, filter = plain_filter(request.GET)
        usable = filter.keys() <= FILTERS and not changelist.query and changelist.result_count
        if not usable or not self.may_act_on_all(request):  # type: ignore[attr-defined]
            return None
        query = QueryDict(mutable=True)
        query.update({**self.fixed_filter, **request.GET.dict()})
        for name in OF_LISTS & query.keys():
            del query[name]
        address = bulk_address(self.admin_site, query.urlencode())  # type: ignore[attr-defined]
        if address is None:
            return None
        is_capped = getattr(changelist.paginator, "is_capped", False)
        number = number_format(changelist.result_count, force_grouping=True) + ("+" if is_capped else "")
        text = _("Act on all %(number)s matching…") if filter else _("Act on all %(number)s…")
        return {"url": address, "text": text % {"number": number}}
