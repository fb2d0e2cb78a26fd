"""The order of works with a fairness label, as SQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import count
from typing import NamedTuple

from django_ayework.models import Work
from django_ayework.rules.controls import Place, first_turn, turn_text
from django_ayework.rules.states import Status
from django_ayework.store.bulk import ByColumn, adapted_shared, by_column, field_of, into, mark_of
from django_ayework.store.database import chunked, fetch, vendor
from django_ayework.store.lanes import LANES
from django_ayework.store.parameters import source_of
from django_ayework.store.rows import WorkRow

WORK = Work._meta.db_table


class Dialect(NamedTuple):
    """How a database finds the sort keys that tell the turn of a new work, and what makes them numbers."""

    last_of_label: str
    first_of_lane: str
    number: str
    text: str


LANE = "queue = %s AND type = %s AND priority = %s"
LAST_OF_LABEL = (
    f"SELECT sort_key FROM {WORK} {{by}} WHERE status = 'pending' AND NOT (fairness = '') AND fairness = %s "
    f"AND {LANE} ORDER BY sort_key DESC LIMIT 1"
)
#: A sort key that is no turn is the unit of a work whose type went by unit: it has no number. A turn has 16
#: digits (``rules.turns``).
POSTGRESQL = Dialect(
    last_of_label=LAST_OF_LABEL.format(by=""),
    first_of_lane=f"SELECT sort_key FROM {WORK} WHERE status = 'pending' AND {LANE} AND sort_key > '' "
    "ORDER BY sort_key LIMIT 1",
    number="CAST(SUBSTRING(({key}) FROM '^[0-9]{{16}}$') AS bigint)",
    text="LPAD(CAST({number} AS text), 16, '0')",
)
DIALECTS = {
    "postgresql": POSTGRESQL,
    #: It would go through the lane.
    "sqlite": POSTGRESQL._replace(
        last_of_label=LAST_OF_LABEL.format(by="INDEXED BY ayework_turn"),
        number="NULLIF(CAST(({key}) AS INTEGER), 0)",
        text="PRINTF('%%016d', {number})",
    ),
    "mysql": POSTGRESQL._replace(
        number="CAST(NULLIF(REGEXP_SUBSTR(({key}), '^[0-9]{{16}}$'), '') AS UNSIGNED)",
        text="LPAD({number}, 16, '0')",
    ),
}

#: A field whose values are numbers.
NUMBER = field_of(Work, "attempt")


def takes_turn(row: WorkRow) -> bool:
    """Tell whether a new work waits in turn with those of other labels."""
    return bool(row.fairness) and row.status == Status.PENDING and row.place is not None


@cache
def next_turn(vendor: str) -> str:
    """Return the next turn in a place as an expression; its parameters are :func:`params_of`.

    Places are parameters: MySQL and MariaDB would go through the lane for one that another row gives.
    """
    dialect = DIALECTS[vendor]
    last = dialect.number.format(key=dialect.last_of_label)
    lowest = dialect.number.format(key=dialect.first_of_lane)
    return f"COALESCE({last} + 1, {lowest}, %s)"


def params_of(place: Place, first: int) -> tuple[object, ...]:
    """Return the parameters of :func:`next_turn`; ``first`` is the turn in a lane without any."""
    lane = (place.queue, place.type, place.priority)
    return (place.fairness, *lane, *lane, first)


def next_key(vendor: str) -> str:
    """Return the sort key of a new work as an expression; its parameters are :func:`key_params`."""
    return DIALECTS[vendor].text.format(number=next_turn(vendor))


def key_params(row: WorkRow) -> tuple[object, ...]:
    """Return the parameters of :func:`next_key`; the row has the turn of a lane without any."""
    return params_of(place_of(row), int(row.sort_key))


def place_of(row: WorkRow) -> Place:
    """Return where a work takes turns that does."""
    return Place(row.queue, row.type, row.priority, row.fairness)


def of_few_places(works: Iterable[WorkRow]) -> Iterator[list[WorkRow]]:
    """Yield works that take turns, in portions whose places fit into one statement."""
    portion: list[WorkRow] = []
    places: set[Place] = set()
    for work in works:
        if len(places) == LANES and place_of(work) not in places:
            yield portion
            portion, places = [], set()
        portion.append(work)
        places.add(place_of(work))
    if portion:
        yield portion


def insertion_in_turn(works: Sequence[WorkRow]) -> tuple[str, list[object]] | None:
    """Return an INSERT of works that take turns, and its parameters; None if it would lose a text.

    It finds the next turn of each place once, and sees what was there before it, so works are numbered here.
    """
    places = [place_of(work) for work in works]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    columns, first = by_column(works), min(int(work.sort_key) for work in works)
    varying = {name: column for name, column in columns.varying.items() if name != "sort_key"}
    shared = {name: value for name, value in columns.shared.items() if name != "sort_key"}
    source = source_of(
        [*(field_of(Work, name) for name in varying), NUMBER, NUMBER],
        [*varying.values(), [numbers[place] for place in places], numbered(places)],
    )
    if source.loses_text:
        return None
    values = {name: f"v.v{number}" for number, name in enumerate(varying)}
    values |= {name: mark_of(field_of(Work, name)) for name in shared}
    values["sort_key"] = DIALECTS[vendor()].text.format(number=f"t.turn + v.v{len(varying) + 1}")
    turns = select_turns(numbers.values())
    # WHERE tells SQLite that an ON CONFLICT behind it is no condition of a join.
    sql = (
        f"INSERT INTO {into(Work, [*values])} SELECT {', '.join(values.values())} "
        f"FROM {source.sql} JOIN ({turns}) AS t ON t.number = v.v{len(varying)} WHERE true"
    )
    params = [param for place in numbers for param in params_of(place, first)]
    return sql, [*adapted_shared(Work, ByColumn(shared, varying)), *source.params, *params]


def select_turns(numbers: Iterable[int]) -> str:
    """Return a SELECT of the next turns of places that have these numbers, with the parameters of each."""
    turn = next_turn(vendor())
    return " UNION ALL ".join(f"SELECT {number} AS number, {turn} AS turn" for number in numbers)


def turns_of(places: Sequence[Place], now: datetime) -> list[str]:
    """Return sort keys for works that are to wait in these places, in this order."""
    turns = next_turns([*dict.fromkeys(places)], first_turn(now))
    return [turn_text(turns[place] + n) for place, n in zip(places, numbered(places), strict=True)]


def numbered(places: Sequence[Place]) -> list[int]:
    """Return how many of the places before it are the same, for each."""
    counts = defaultdict[Place, Iterator[int]](count)
    return [next(counts[place]) for place in places]


def next_turns(places: Sequence[Place], first: int) -> dict[Place, int]:
    """Read the next turn in each of some places; ``first`` is that of a lane without any."""
    found: dict[Place, int] = {}
    for some in chunked(places, LANES):
        params = [param for place in some for param in params_of(place, first)]
        turns = fetch(select_turns(range(len(some))), params)
        found.update((some[int(number)], int(turn)) for number, turn in turns)
    return found
