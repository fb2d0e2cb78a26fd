"""Works by the plain parameters of a list: found, counted, and read page by page at a bounded cost.

An index leads through the works in the order of a moment. Whatever no index covers is compared on a bounded
number of them at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from django.db.models import BooleanField, F, Func, Q, QuerySet, Value
from django.utils.dateparse import parse_date
from django.utils.timezone import get_current_timezone, make_aware

from django_ayework.documentation import value_error
from django_ayework.errors import did_you_mean
from django_ayework.models import Work
from django_ayework.rules.formatting import is_storable
from django_ayework.rules.states import TERMINAL, Status
from django_ayework.store.database import by_index, chunked, dialect, fetch, matching, rows

#: Works of an index that one page looks at.
WINDOW = 10_000
#: Works that are counted, and those that are looked at for that.
COUNTED, COUNTED_AMONG = 10_000, 50_000
#: Inputs that are in memory at a time. An input has up to ``AYEWORK["MAX_PAYLOAD"]`` characters.
INPUTS = 250

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
#: Conditions that few works meet.
FEW = LEADING | {"id__in"}

Filters = Mapping[str, Any]

WORK = Work._meta.db_table
#: The lookups of the operators that compare a row with a cursor.
LOOKUPS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


Comparison: TypeAlias = Literal["<", "<=", ">", ">="]


class Cursor(NamedTuple):
    """The end of a page in the order of a moment and the id; the next page begins behind it."""

    moment: Any
    id: str


def compared(column: str, operator: Comparison, cursor: Cursor) -> Any:
    """Return the condition that a row compares so with a place; an index is searched for it."""
    if not dialect().compares_rows:
        beyond = Q(**{f"{column}__{LOOKUPS[operator[0]]}": cursor.moment})
        return beyond | Q(**{column: cursor.moment, f"id__{LOOKUPS[operator]}": cursor.id})
    moment: Any = Work._meta.get_field(column)
    here = Func(F(column), F("id"), function="", output_field=BooleanField())
    values = Value(cursor.moment, output_field=moment), Value(cursor.id)
    there = Func(*values, function="", output_field=BooleanField())
    joiner = f" {operator} "
    return Func(here, there, template="%(expressions)s", arg_joiner=joiner, output_field=BooleanField())


def cursor_after(works: QuerySet[Any], column: str, count: int) -> Cursor | None:
    """Return the cursor of the last of so many works, the latest first; None when there are fewer."""
    return cursor_at(works.order_by(f"-{column}", "-id").values_list(column, "id"), count)


def cursor_at(cursors: QuerySet[Any, Any], count: int) -> Cursor | None:
    """Return the last of so many cursors; None when there are fewer."""
    found = cursors[count - 1 : count].first()
    return found and Cursor._make(found)


def ids_in_order(works: QuerySet[Any], most: int) -> list[str]:
    """Return the ids of the first works in the order of an index, even where few works match."""
    with by_index():
        return list(works.values_list("pk", flat=True)[:most])


class Page(NamedTuple):
    """A page of works: their ids, and where the next page begins; None after the last one."""

    ids: list[str]
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Works in the order of a moment: those that an index covers, and what else they must meet.

    ``are_few`` tells that the index leads to few works, which are sorted. To find those of a small group in
    the order of the moment, PostgreSQL would read the entries of all works.
    """

    covered: QuerySet[Work]
    moment: str
    rest: Q = field(default_factory=Q)
    are_few: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a value that a column cannot have."""
        self.covered.filter(self.rest)

    @property
    def works(self) -> QuerySet[Work]:
        """All of the works, without an order."""
        return self.covered.filter(self.rest)

    def page(self, after: Cursor | None, most: int, latest_first: bool = False) -> Page:
        """Return the next works, at most so many; there may be none, and pages behind it.

        At most ``WINDOW`` works of the index are looked at. Reads in a transaction of its own.
        """
        beyond: Comparison = "<" if latest_first else ">"
        until: Comparison = ">=" if latest_first else "<="
        with by_index(then_sort=self.are_few):
            works = self.covered.order_by(self.moment, "id")
            works = works.reverse() if latest_first else works
            if after is not None:
                works = works.filter(compared(self.moment, beyond, after))
            end = cursor_at(works.values_list(self.moment, "id"), WINDOW) if self.rest else None
            within = works if end is None else works.filter(compared(self.moment, until, end))
            found = [Cursor(*row) for row in within.filter(self.rest).values_list(self.moment, "id")[:most]]
        return Page([cursor.id for cursor in found], found[-1] if len(found) == most else end)

    def pages(self, most: int) -> Iterator[list[str]]:
        """Yield the ids of all works, page by page; a page may be empty."""
        page = self.page(None, most)
        yield page.ids
        while page.next is not None:
            page = self.page(page.next, most)
            yield page.ids

    def among(self, ids: Sequence[str]) -> list[str]:
        """Return those of these ids whose works match, in their order."""
        found = {id for (id,) in matching(self.works, "pk", ids, "pk")}
        return [id for id in ids if id in found]

    def count(self) -> int | None:
        """Count the works, up to one more than ``COUNTED``; None when that would take too long."""
        with by_index(then_sort=self.are_few):
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
    rest = having(wanted)
    if set(statuses) != set(Status):
        rest &= Q(status__in=sorted(map(str, statuses)))
    return Selection(works, "queued_at", rest, are_few=not covered.keys().isdisjoint(FEW))


def by_end(wanted: dict[str, Any], status: Status, until: datetime) -> Selection:
    """Return ended works in the order in which they ended, through the index that covers most."""
    names: tuple[str, ...] = ("type", "reason", "cause")
    if status is not Status.DEAD or not all(name in wanted for name in names):
        names = ("type",)
    covered = {name: wanted.pop(name) for name in names if name in wanted}
    works = rows(Work).filter(status=str(status), ended_at__isnull=False, ended_at__lte=until, **covered)
    return Selection(works, "ended_at", having(wanted))


def having(wanted: Mapping[str, Any]) -> Q:
    """Return the condition that columns have these values."""
    others = Q(**{name: value for name, value in wanted.items() if name != "worker"})
    return others & of_worker(wanted["worker"]) if "worker" in wanted else others


def of_worker(worker: str | None) -> Q:
    """Return the condition that a worker runs a work, or has ended it; for None, that no worker runs it."""
    return Q(worker=None) if worker is None else Q(worker=worker) | Q(completed_by=worker)


def statuses_of(filters: Filters, statuses: Collection[Status]) -> frozenset[Status]:
    """Return those of the statuses that match; only dead works have a reason or a cause."""
    found = frozenset(statuses)
    if "status" in filters:
        found &= {status_named(filters["status"])}
    if filters.get("reason") or filters.get("cause"):
        found &= {Status.DEAD}
    return found


def status_named(text: str) -> Status:
    """Return a status by its name."""
    try:
        return Status(text)
    except ValueError:
        names = [str(status) for status in Status]
        raise value_error(
            "bulk-action-arguments",
            f"expected status= to be one of {', '.join(names)}; got: {text!r}."
            f"{did_you_mean(str(text), names)}",
        ) from None


def day_of(text: str) -> dict[str, datetime]:
    """Return the condition that a work was queued on a day of the current time zone."""
    day = parse_date(str(text))
    if day is None or not date.min.year < day.year < date.max.year:  # in UTC it may be another day
        raise value_error("bulk-action-arguments", f"expected day= as YYYY-MM-DD, got: {text!r}.")
    start = datetime.combine(day, time())
    zone = get_current_timezone()
    return {
        "queued_at__gte": make_aware(start, zone),
        "queued_at__lt": make_aware(start + timedelta(days=1), zone),
    }


def require_known(filters: Filters) -> None:
    """Raise ValueError for a parameter that works cannot be selected by."""
    if unknown := sorted(filters.keys() - FILTERS):
        raise value_error(
            "bulk-action-arguments",
            f"expected the keys of filter= to be among {', '.join(sorted(FILTERS))}; got: {unknown[0]!r}."
            f"{did_you_mean(unknown[0], FILTERS)}",
        )
    for name, value in filters.items():
        is_list = name == "ids" and isinstance(value, (list, tuple))
        expected = "a list of texts" if name == "ids" else "one text, whole number or None"
        if is_list != (name == "ids") or not all(map(can_be_stored, value if is_list else [value])):
            raise value_error(
                "bulk-action-arguments",
                f"expected {name}= in the filter to be {expected}, got: {value!r:.200}.",
            )


def can_be_stored(value: object) -> bool:
    """Tell whether a column can have a value: any text, without what databases refuse; a number; None."""
    return is_storable(value) if isinstance(value, str) else isinstance(value, (int, type(None)))


# Works that have yet to run, page by page, without locks.


class StoredWork(NamedTuple):
    """What decides whether a work can run."""

    id: str
    type: str
    queue: str
    status: str
    input: str


def stored_works(statuses: Collection[Status], until: datetime) -> Iterator[list[StoredWork]]:
    """Yield the works of these statuses that were queued until a moment, in that order, a few at a time.

    Each statement reads at most ``WINDOW`` entries of an index. A list may be empty: other works were passed
    over. Works that have changed their status meanwhile are left out.
    """
    allowed = frozenset(map(str, statuses))
    for page in selection_of({}, statuses, until).pages(WINDOW):
        for ids in chunked(page, INPUTS) or [()]:
            stored = matching(rows(Work).all(), "id", ids, *StoredWork._fields)
            found = {work.id: work for work in map(StoredWork._make, stored)}
            yield [found[id] for id in ids if id in found and found[id].status in allowed]


# Names that works have, found by one entry of an index each.

NEXT_NAME = f"SELECT MIN({{column}}) FROM {WORK} WHERE status = 'pending' AND {{column}} > {{after}}"
#: Queries repeat the condition of an index that holds some works only.
HAS_NAME = " AND NOT ({column} = '')"
NAMES = f"""
WITH RECURSIVE each(name, number) AS (
    SELECT ({NEXT_NAME.format(column="{column}", after="''")}{HAS_NAME}), 1
    UNION ALL
    SELECT ({NEXT_NAME.format(column="{column}", after="each.name")}{HAS_NAME}), each.number + 1 FROM each
    WHERE each.name IS NOT NULL AND each.number < %s
)
SELECT name FROM each WHERE name IS NOT NULL
"""


def pending_names(column: str, most: int) -> list[str]:
    """Return the first queues, or fairness labels, that pending works have: at most so many."""
    if dialect().recurses_by_index:
        return [name for (name,) in fetch(NAMES.format(column=column), (most,))]
    names: list[str] = []
    statement = NEXT_NAME.format(column=column, after="%s")
    while len(names) < most:
        [(name,)] = fetch(statement, (names[-1] if names else "",))
        if name is None:
            break
        names.append(name)
    return names


# The columns that a term names, by one statement.

#: The condition that no work meets, and its parameters.
NEVER: tuple[str, Sequence[str]] = ("1 = 0", ())


class TermColumns(NamedTuple):
    """Which columns have a term as their value in some work."""

    id: bool
    group_id: bool
    chain_id: bool
    unit: bool
    about: bool
    unit_of_type: bool


def named_by(term: str, pair: tuple[str, str] | None, types: Sequence[str]) -> TermColumns:
    """Ask which columns have this term: ids, units of these types, what a pair of label and key names."""
    in_types = f"type IN ({', '.join(['%s'] * len(types))}) AND unit = %s"
    conditions: list[tuple[str, Sequence[str]]] = [
        ("id = %s", (term,)),
        ("group_id = %s", (term,)),
        ("chain_id = %s", (term,)),
        (in_types, (*types, term)) if types else NEVER,
        NEVER if pair is None else ("about_type = %s AND about_id = %s", (pair[0].lower(), pair[1])),
        NEVER if pair is None else ("type = %s AND unit = %s", pair),
    ]
    parts = ", ".join(f"EXISTS(SELECT 1 FROM {WORK} WHERE {sql})" for sql, _ in conditions)
    [found] = fetch(f"SELECT {parts}", [param for _, params in conditions for param in params])
    return TermColumns._make(map(bool, found))
