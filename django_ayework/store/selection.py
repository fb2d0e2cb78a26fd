"""Works by the plain parameters of a list: found, counted, and read page by page at a bounded cost.

An index leads through the works in the order of a moment. Whatever no index covers is compared on a bounded
number of them at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_date
from django.utils.timezone import get_current_timezone, make_aware

from django_ayework.documentation import documented
from django_ayework.models import Work
from django_ayework.rules.states import TERMINAL, Status
from django_ayework.store.database import by_index, rows
from django_ayework.store.walks import Place, compared

#: Works of an index that one page looks at.
WINDOW = 10_000
#: Works that are counted, and those that are looked at for that.
COUNTED, COUNTED_AMONG = 10_000, 50_000

#: Parameters that are compared with the column of their name.
COLUMNS = frozenset(
    {
        *("type", "queue", "reason", "cause", "worker", "fairness", "priority", "unit"),
        *("group_id", "chain_id", "parent_id", "about_type", "about_id"),
    }
)
#: Parameters that are none: the status, the day of queueing, and explicit ids.
OTHERS = frozenset({"status", "day", "ids"})
FILTERS = COLUMNS | OTHERS
#: Columns that lead to few works by an index of their own.
LEADING = frozenset({"group_id", "chain_id"})

Filters = Mapping[str, Any]


class Page(NamedTuple):
    """A page of works: their ids, and where the next page begins; None after the last one."""

    ids: list[str]
    next: Place | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Works in the order of a moment: those that an index covers, and what else they must meet."""

    covered: QuerySet[Work]
    moment: str
    rest: Q = field(default_factory=Q)

    @property
    def works(self) -> QuerySet[Work]:
        """All of the works, without an order."""
        return self.covered.filter(self.rest)

    def page(self, after: Place | None, most: int) -> Page:
        """Return the next works, at most so many; there may be none, and pages behind it.

        At most ``WINDOW`` works of the index are looked at. Reads in a transaction of its own.
        """
        with by_index():
            works = self.covered.order_by(self.moment, "id")
            if after is not None:
                works = works.filter(compared(self.moment, ">", after))
            end = self._end_of(works) if self.rest else None
            within = works if end is None else works.filter(compared(self.moment, "<=", end))
            found = [Place(*row) for row in within.filter(self.rest).values_list(self.moment, "id")[:most]]
        return Page([place.id for place in found], found[-1] if len(found) == most else end)

    def _end_of(self, works: QuerySet[Work]) -> Place | None:
        """Return the last of the works that one page looks at; None when it looks at all of them."""
        end = works.values_list(self.moment, "id")[WINDOW - 1 : WINDOW].first()
        return None if end is None else Place(*end)

    def count(self) -> int | None:
        """Count the works, up to one more than ``COUNTED``; None when that would take too long."""
        with by_index():
            if not self.rest:
                return self.covered.order_by().values("id")[: COUNTED + 1].count()
            first = self.covered.order_by(self.moment, "id").values_list(self.moment, flat=True)
            end = first[COUNTED_AMONG : COUNTED_AMONG + 1].first()
            looked_at = self.covered if end is None else self.covered.filter(**{f"{self.moment}__lt": end})
            # In order, so that the rest is compared along the index, and no other one is merged with it.
            in_order = looked_at.filter(self.rest).order_by(self.moment, "id")
            found = in_order.values("id")[: COUNTED + 1].count()
        return found if end is None or found > COUNTED else None


def selection_of(filters: Filters, statuses: Collection[Status], until: datetime) -> Selection:
    """Return the works that match, have one of these statuses, and are not newer than a moment.

    Dead works count by when they died, all others by when they were queued. Raises ValueError for a parameter
    that there is not, or a value that it cannot have.
    """
    require_known(filters)
    wanted = {name: filters[name] for name in filters.keys() & COLUMNS}
    allowed = statuses_of(filters, statuses)
    if "day" in filters:
        return by_queueing(wanted, allowed, until, day_of(filters["day"]))
    if "ids" in filters:
        return by_queueing(wanted, allowed, until, {"id__in": list(filters["ids"])})
    if leading := {name: wanted.pop(name) for name in LEADING & wanted.keys()}:
        return by_queueing(wanted, allowed, until, leading)
    if allowed == {Status.DEAD} or (len(allowed) == 1 and "type" in wanted and allowed <= TERMINAL):
        return by_end(wanted, next(iter(allowed)), until)
    return by_queueing(wanted, allowed, until, {})


def by_queueing(
    wanted: dict[str, Any], statuses: Collection[Status], until: datetime, covered: Mapping[str, Any]
) -> Selection:
    """Return works in the order in which they were queued."""
    works = rows(Work).filter(queued_at__lte=until, **covered)
    return Selection(works, "queued_at", rest_of(wanted) & having(statuses))


def by_end(wanted: dict[str, Any], status: Status, until: datetime) -> Selection:
    """Return ended works in the order in which they ended, through the index that covers most."""
    names: tuple[str, ...] = ("type", "reason", "cause")
    if status is not Status.DEAD or not all(name in wanted for name in names):
        names = ("type",)
    covered = {name: wanted.pop(name) for name in names if name in wanted}
    works = rows(Work).filter(status=str(status), ended_at__isnull=False, ended_at__lte=until, **covered)
    return Selection(works, "ended_at", rest_of(wanted))


def rest_of(wanted: Mapping[str, Any]) -> Q:
    """Return the condition that columns have these values."""
    return Q(**wanted) if wanted else Q()


def having(statuses: Collection[Status]) -> Q:
    """Return the condition that a work has one of these statuses; an empty one if any will do."""
    if set(statuses) == set(Status):
        return Q()
    return Q(status__in=sorted(map(str, statuses)))


def statuses_of(filters: Filters, statuses: Collection[Status]) -> frozenset[Status]:
    """Return those of the statuses that match; only dead works have a reason or a cause."""
    found = frozenset(statuses)
    if "status" in filters:
        found &= {Status(filters["status"])}
    if filters.get("reason") or filters.get("cause"):
        found &= {Status.DEAD}
    return found


def day_of(text: str) -> dict[str, datetime]:
    """Return the condition that a work was queued on a day of the current time zone."""
    day = parse_date(str(text))
    if day is None:
        raise documented(ValueError(f"expected day= as YYYY-MM-DD, got: {text!r}."), "bulk-action-arguments")
    start = datetime.combine(day, time())
    zone = get_current_timezone()
    return {
        "queued_at__gte": make_aware(start, zone),
        "queued_at__lt": make_aware(start + timedelta(days=1), zone),
    }


def require_known(filters: Filters) -> None:
    """Raise ValueError for a parameter that works cannot be selected by."""
    if unknown := sorted(filters.keys() - FILTERS):
        raise documented(
            ValueError(f"expected parameters among {', '.join(sorted(FILTERS))}; got: {', '.join(unknown)}."),
            "bulk-action-arguments",
        )
