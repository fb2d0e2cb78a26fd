"""Finding works among millions: in which order, how far to look, and what a term may name.

An index leads to the works of most statuses. Other filters, and texts, look at a bounded number of works,
the newest ones, and a link goes on to older ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from django.contrib.admin.views.main import PAGE_VAR
from django.core.paginator import Page
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import lists
from django_ayework.admin.filters import queued_on
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import dialect, rows
from django_ayework.store.lanes import ORDER_IN_LANE
from django_ayework.store.rows import with_status
from django_ayework.store.selection import (
    Cursor,
    compared,
    cursor_after,
    ids_in_order,
    named_by,
    pending_names,
)

SEARCH_HELP = gettext_lazy(
    "The id of a work, a group or a chain; a unit; the object a work is about, such as shop.order:17; the "
    "beginning of a type; or a text in an input or an error, which is looked for in the newest works."
)
#: Works that a filter without an index, or a search for a text, looks at.
LOOKED_AT = 10_000
#: Queues in which pending works of a type are looked for.
QUEUES = 100
#: The attribute of a request for the ids that its list has found among some works.
FOUND = "_ayework_found"
#: The parameter of the cursor from which a list goes on.
OLDER = "older"
#: Filters that a walk may have to look for.
FILTERS = ("status", "type", "queue", "reason", "worker", "fairness")
ABOUT = re.compile(r"(?P<label>[\w.-]+):(?P<key>.+)")


# The columns that a term names


@dataclass(frozen=True, slots=True)
class Search:
    """The condition of a term. A broad one has no index."""

    condition: Q
    is_broad: bool = False


def search_for(term: str) -> Search:
    """Return what a term names: a work, a group, a chain, a unit, an object; else a type or a text."""
    about = ABOUT.fullmatch(term)
    types = registry.names()
    named = named_by(term, about and (about["label"], about["key"]), types)
    found = Q()
    for column in ("id", "group_id", "chain_id"):
        if getattr(named, column):
            found |= Q(**{column: term})
    if named.unit:
        found |= Q(type__in=types, unit=term)
    if about and named.about:
        found |= Q(about_type=about["label"].lower(), about_id=about["key"])
    if about and named.unit_of_type:
        found |= Q(type=about["label"], unit=about["key"])
    if found:
        return Search(found)
    if any(name.startswith(term) for name in (GATE_TYPE, *types)):
        return Search(Q(type__startswith=term), is_broad=True)
    text = Q(type__startswith=term) | Q(error__contains=term) | (Q(input__contains=term) & ~is_redacted())
    return Search(text, is_broad=True)


def is_redacted() -> Q:
    """Return the condition of works whose input people are not shown as it is: a search must not tell it."""
    redacting = [work_type.name for work_type in registry if work_type.settings.redact]
    hidden = [*redacting, GATE_TYPE] if redacting else []
    return Q(type__in=hidden) | Q(options__contains='"redact"')


def searched(request: HttpRequest, term: str) -> Search | None:
    """Return what a term names, which is asked once for each request; None without one that a form takes."""
    term = term.strip()
    if not term or "\0" in term:
        return None
    known: tuple[str, Search] | None = getattr(request, "_ayework_search", None)
    if known is None or known[0] != term:
        known = term, search_for(term)
        request._ayework_search = known  # type: ignore[attr-defined]
    return known[1]


# In which order


@dataclass(frozen=True, slots=True)
class Walk:
    """An order that an index has. ``column`` is the moment that leads it, if a list can go on from there.

    ``bounded`` tells that only so many works are looked at, of those of the status that ``base`` names.
    """

    order: tuple[str, ...]
    column: str = ""
    bounded: bool = False
    base: str = ""


NEWEST = Walk(("-queued_at", "-id"), "queued_at")
NEWEST_BOUNDED = Walk(NEWEST.order, "queued_at", bounded=True)
#: Statuses by themselves.
BY_STATUS = {
    Status.DEAD: Walk(("-ended_at", "-id"), "ended_at"),
    Status.CANCELLED: Walk(("-type", "-ended_at")),
    Status.SCHEDULED: Walk(("run_at",)),
    Status.BLOCKED: Walk(("deadline", "id")),
    Status.PENDING: Walk(("queue", "type", *ORDER_IN_LANE)),
}
DEAD_BOUNDED = Walk(("-ended_at", "-id"), "ended_at", bounded=True, base=Status.DEAD)
BY_TYPE = Walk(("-ended_at",))
RUNNING = Walk(("started_at", "id"))


def walk_of(params: Mapping[str, str], search: Search | None) -> Walk:
    """Return the walk for the parameters of a list and a search."""
    if (search and not search.is_broad) or "group_id" in params or {"type", "unit"} <= params.keys():
        return NEWEST
    given = {name for name in FILTERS if params.get(name)}
    status = Status.DEAD if "reason" in given else params.get("status")
    others = given - {"status"} | ({"q"} if search else set())
    if not given and not others:
        return NEWEST
    return walk_of_status(status, others, bool(params.get("day")))


def walk_of_status(status: str | None, others: set[str], is_of_day: bool) -> Walk:
    """Return the walk for a status and the names of other filters."""
    if status == Status.RUNNING:
        return RUNNING
    if is_of_day or status not in set(Status):
        return NEWEST_BOUNDED
    if not others and status in BY_STATUS:
        return BY_STATUS[Status(status)]
    if others == {"type"} and status in Status.terminal:
        return BY_TYPE
    if others <= {"type", "queue"} and status == Status.PENDING:
        return BY_STATUS[Status.PENDING]
    return DEAD_BOUNDED if status == Status.DEAD else NEWEST_BOUNDED


# The list


class FoundPaginator(lists.CappedPaginator):
    """Pages through works whose ids were found: those that were looked at are looked at once."""

    def __init__(self, works: Any, per_page: Any, *args: Any, ids: Sequence[str], **kwargs: Any) -> None:
        super().__init__(works, per_page, *args, **kwargs)
        self.ids = ids

    @cached_property
    def reached(self) -> int:
        """The number of works, up to one more than ``COUNTED``."""
        return len(self.ids)

    def page(self, number: Any) -> Any:
        """Return the works of a page."""
        number = self.validate_number(number)
        ids = self.ids[(number - 1) * self.per_page : min(number * self.per_page, self.count)]
        works: Any = self.object_list
        known = {work.pk: work for work in works.order_by().filter(pk__in=ids)}
        return Page([known[id] for id in ids if id in known], number, self)


class WorkChangeList(lists.LightChangeList):
    """A list of works: filters without an index look at the newest works; a link goes on to older ones."""

    walk: Walk = NEWEST
    #: The last work that was looked at; None when all were.
    oldest: Cursor | None = None

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Any]:
        """Return the filtered works in the order of the walk; without an index, those among the newest."""
        found = super().get_queryset(request, exclude_parameters)
        self.walk = walk_of(self.chosen, searched(request, self.query))
        found = in_lanes(found, self.params, self.walk).order_by(*self.order())
        if not self.walk.column:
            return found
        start = cursor_from(self.params.get(OLDER))
        if start is not None:
            found = found.filter(compared(self.walk.column, "<", start))
        if not self.walk.bounded:
            return found
        self.oldest = cursor_after(self.base(start), self.walk.column, LOOKED_AT)
        if self.oldest is not None:
            found = found.filter(compared(self.walk.column, ">=", self.oldest))
        setattr(request, FOUND, ids_in_order(found, lists.COUNTED + 1))
        return found

    @property
    def chosen(self) -> Mapping[str, str]:
        """The filter that this list always has, and what was chosen besides."""
        return {**self.model_admin.fixed_filter, **self.params}  # type: ignore[attr-defined]

    def order(self) -> Sequence[str]:
        """Return the order of the walk, without leading columns that have one value: MariaDB would sort."""
        if self.walk is BY_STATUS[Status.BLOCKED]:
            return dialect().order_of_blocked
        given = (self.params.get(column) for column in self.walk.order)
        fixed = len(list(takewhile(bool, given)))
        return self.walk.order[fixed:]

    def get_results(self, request: HttpRequest) -> None:
        """Page through the works that were found by their ids, if they were."""
        super().get_results(request)
        if isinstance(self.paginator, FoundPaginator):
            number = self.page_num if self.multi_page and not self.show_all else 1
            self.result_list = self.paginator.page(number).object_list

    def base(self, start: Cursor | None) -> QuerySet[Work]:
        """Return the works that are looked at, in whatever number."""
        works = rows(Work).filter(**queued_on(self.params.get("day", "")))
        if self.walk.base:
            works = with_status(works, self.walk.base)
        return works if start is None else works.filter(compared(self.walk.column, "<", start))

    @property
    def looked_at(self) -> int:
        """How many works were looked at, when not all were."""
        return LOOKED_AT

    @property
    def hint(self) -> str:
        """Which filter finds works that were not looked at, if there is one."""
        if self.oldest is None or not self.params.get("type") or "status" in self.chosen:
            return ""
        return _("An ended status beside the type finds all of its works.")

    @property
    def older_url(self) -> str | None:
        """The address of the works after the last page, or None."""
        if not self.walk.column or not self.is_last_page:
            return None
        if self.paginator.is_capped:
            last = self.result_list[len(self.result_list) - 1]
            return self.from_here(Cursor(getattr(last, self.walk.column), last.pk))
        return None if self.oldest is None else self.from_here(self.oldest)

    def from_here(self, cursor: Cursor) -> str:
        """Return the address of this list from a cursor on."""
        return self.get_query_string({OLDER: text_of(cursor)}, remove=[PAGE_VAR])


def in_lanes(works: QuerySet[Any], params: Mapping[str, str], walk: Walk) -> QuerySet[Any]:
    """Return the works; of the pending ones of a type, name the queues, with which their index begins."""
    is_lane = walk is BY_STATUS[Status.PENDING]
    if not is_lane or not params.get("type") or params.get("queue"):
        return works
    queues = pending_names("queue", QUEUES)
    return works.filter(queue__in=queues) if len(queues) < QUEUES else works


def text_of(cursor: Cursor) -> str:
    """Return a cursor as a parameter."""
    return f"{cursor.moment.isoformat()}~{cursor.id}"


def cursor_from(text: str | None) -> Cursor | None:
    """Read a cursor; None for a missing or unreadable text."""
    moment, _, id = (text or "").partition("~")
    try:
        return Cursor(datetime.fromisoformat(moment).astimezone(UTC), id)
    except (ValueError, OverflowError):  # the latter for a moment that UTC does not have
        return None
