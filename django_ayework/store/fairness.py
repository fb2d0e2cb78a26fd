"""The order of works with a fairness label, as SQL: the next turn of a label in its lane.

A turn is a number that is stored as text, the sort key of the work.
"""

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
from django_ayework.store.database import chunked, fetch, vendor
from django_ayework.store.lanes import LANES
from django_ayework.store.rows import WorkRow

WORK = Work._meta.db_table


class Dialect(NamedTuple):
    """How a database finds the sort keys that give the turn of a new work, and turns them into numbers."""

    last_of_label: str
    first_of_lane: str
    number: str
    text: str


LANE = "queue = %s AND type = %s AND priority = %s"
LAST_OF_LABEL = (
    f"SELECT sort_key FROM {WORK} {{by}} WHERE status = 'pending' AND NOT (fairness = '') AND fairness = %s "
    f"AND {LANE} ORDER BY sort_key DESC LIMIT 1"
)
#: A turn has 16 digits (``rules.controls``). Any other sort key is a unit, of a work whose type went by unit:
#: it has no number.
POSTGRESQL = Dialect(
    last_of_label=LAST_OF_LABEL.format(by=""),
    first_of_lane=f"SELECT sort_key FROM {WORK} WHERE status = 'pending' AND {LANE} AND sort_key > '' "
    "ORDER BY sort_key LIMIT 1",
    number="CAST(SUBSTRING(({key}) FROM '^[0-9]{{16}}$') AS bigint)",
    text="LPAD(CAST({number} AS text), 16, '0')",
)
DIALECTS = {
    "postgresql": POSTGRESQL,
    #: SQLite would scan the lane without the hint.
    "sqlite": POSTGRESQL._replace(
        last_of_label=LAST_OF_LABEL.format(by="INDEXED BY ayework_turn"),
        number="NULLIF(CAST(({key}) AS INTEGER), 0)",
        text="PRINTF('%%016d', {number})",
    ),
    #: See ``store.generated_columns``. By MIN it reads the first entry behind those of works without a turn.
    "mysql": Dialect(
        last_of_label=f"SELECT MAX(turn) FROM {WORK} WHERE turn_label = %s AND {LANE}",
        first_of_lane=f"SELECT MIN(pending_sort_key) FROM {WORK} WHERE standing = 'pending' "
        "AND pending_in = %s AND pending_type = %s AND pending_rank = 0 - %s AND pending_sort_key > ''",
        number="CAST(NULLIF(REGEXP_SUBSTR(({key}), '^[0-9]{{16}}$'), '') AS UNSIGNED)",
        text="LPAD({number}, 16, '0')",
    ),
}


def takes_turn(row: WorkRow) -> bool:
    """Tell whether a new work takes turns with works of other labels."""
    return bool(row.fairness) and row.status == Status.PENDING and row.place is not None


@cache
def next_turn(vendor: str) -> str:
    """Return the next turn in a place as an expression; its parameters are :func:`params_of`.

    Places are parameters: MySQL and MariaDB would scan the lane for a place that another row gives.
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
    return turn_as_key(next_turn(vendor), vendor)


def turn_as_key(turn: str, vendor: str) -> str:
    """Return a turn that is given as an expression as a sort key."""
    return DIALECTS[vendor].text.format(number=turn)


def key_params(row: WorkRow) -> tuple[object, ...]:
    """Return the parameters of :func:`next_key`; the row has the turn of a lane without any."""
    return params_of(place_of(row), int(row.sort_key))


def place_of(row: WorkRow) -> Place:
    """Return the place of a work that takes turns."""
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
