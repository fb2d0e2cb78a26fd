"""Why works are dead: their causes, found by one entry of an index each, however many works share one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models.functions import Left

from django_ayework.models import Work
from django_ayework.store.database import by_index, chunked, dialect, fetch, rows
from django_ayework.store.lanes import LANES, WORK, as_moment

#: Causes that are found; and works of one cause that are counted, fewer where there are many causes.
MOST, COUNTED, COUNTED_LEAST = 200, 10_000, 100
#: Works that are counted in all, over all causes: each may cost a look at its row.
COUNTED_IN_ALL = 20_000
#: Characters of an example's error that are read.
ERROR_READ = 4000


class Cause(NamedTuple):
    """The works that died of one cause; ``works`` is at most one more than ``counted``."""

    type: str
    reason: str
    cause: str
    works: int
    counted: int
    first: datetime
    last: datetime
    example: str  # the id of the last one
    error: str  # of that work

    @property
    def is_capped(self) -> bool:
        """Whether there are more than were counted."""
        return self.works > self.counted


Key = tuple[str, str, str]

OF = f"FROM {WORK} WHERE status = 'dead' AND type"
#: From each type, reason and cause the statement goes on to the next one in the index. It ends when it has
#: found enough, as the last part is read row by row.
KEYS_BY_RECURSION = f"""
WITH RECURSIVE kind(type) AS (
    SELECT MIN(type) FROM {WORK} WHERE status = 'dead'
    UNION ALL
    SELECT (SELECT MIN(type) {OF} > kind.type) FROM kind WHERE kind.type IS NOT NULL
), why(type, reason) AS (
    SELECT kind.type, (SELECT MIN(reason) {OF} = kind.type) FROM kind WHERE kind.type IS NOT NULL
    UNION ALL
    SELECT why.type, (SELECT MIN(reason) {OF} = why.type AND reason > why.reason)
    FROM why WHERE why.reason IS NOT NULL
), cause(type, reason, cause) AS (
    SELECT why.type, why.reason, (SELECT MIN(cause) {OF} = why.type AND reason = why.reason)
    FROM why WHERE why.reason IS NOT NULL
    UNION ALL
    SELECT cause.type, cause.reason,
        (SELECT MIN(cause) {OF} = cause.type AND reason = cause.reason AND cause > cause.cause)
    FROM cause WHERE cause.cause IS NOT NULL
)
SELECT type, reason, cause FROM cause WHERE cause IS NOT NULL LIMIT %s
"""
#: MySQL and MariaDB use no index for a bound that another row gives. They skip from group to group instead,
#: but only where the status is compared as a range.
KEYS_BY_GROUPS = f"""
SELECT type, reason, cause FROM {WORK} FORCE INDEX (ayework_cause)
WHERE status >= 'dead' AND status <= 'dead' GROUP BY status, type, reason, cause LIMIT %s
"""

OF_CAUSE = (
    f"FROM {WORK} WHERE status = 'dead' "
    "AND type = wanted.type AND reason = wanted.reason AND cause = wanted.cause"
)
FIGURES = f"""
SELECT wanted.type, wanted.reason, wanted.cause, {{count}},
    (SELECT ended_at {OF_CAUSE} ORDER BY ended_at LIMIT 1),
    (SELECT ended_at {OF_CAUSE} ORDER BY ended_at DESC LIMIT 1),
    (SELECT id {OF_CAUSE} ORDER BY ended_at DESC LIMIT 1)
FROM wanted
"""
#: A count that stops early. MySQL and MariaDB allow none that depends on another row.
COUNT = f"(SELECT COUNT(*) FROM (SELECT 1 AS one {OF_CAUSE} LIMIT %s) AS counted)"
COUNT_OF_ONE = re.sub(r"wanted\.\w+", "%s", COUNT)
#: A text that is compared byte by byte, as the columns are.
TEXT = "CONVERT(%s USING utf8mb4) COLLATE utf8mb4_bin"


def causes(most: int = MOST) -> tuple[list[Cause], bool]:
    """Return the causes of dead works, the most frequent first, and whether more exist."""
    sql = KEYS_BY_RECURSION if dialect().recurses_by_index else KEYS_BY_GROUPS
    with by_index():
        keys: list[Key] = [(type, reason, cause) for type, reason, cause in fetch(sql, (most + 1,))]
        found = with_figures(keys[:most])
    return sorted(found, key=lambda cause: (-cause.works, cause[:3])), len(keys) > most


def cause_of(key: Key) -> Cause | None:
    """Return one cause; None when no work is dead of it."""
    with by_index():
        return next(iter(with_figures([key])), None)


def with_figures(keys: Sequence[Key]) -> list[Cause]:
    """Return causes with their figures, without causes that have no dead works left."""
    counted = min(COUNTED, max(COUNTED_LEAST, COUNTED_IN_ALL // max(1, len(keys))))
    found = [row for some in chunked(keys, LANES) for row in figures_of(some, counted + 1) if row[3]]
    errors = errors_of([row[-1] for row in found])
    return [
        Cause._make((*row[:4], counted, *map(as_moment, row[4:6]), row[6], errors.get(row[6], "")))
        for row in found
    ]


def figures_of(keys: Sequence[Key], most: int) -> list[tuple[Any, ...]]:
    """Return the figures of causes. On MySQL and MariaDB the parts that count are planned one by one."""
    if dialect().recurses_by_index:
        values = ", ".join(["(%s, %s, %s)"] * len(keys))
        sql = f"WITH wanted(type, reason, cause) AS (VALUES {values}) {FIGURES.format(count=COUNT)}"
        return fetch(sql, [*(value for key in keys for value in key), most])
    part = f"SELECT {TEXT} AS type, {TEXT} AS reason, {TEXT} AS cause, {COUNT_OF_ONE} AS works"
    sql = f"WITH wanted AS ({' UNION ALL '.join([part] * len(keys))}) {FIGURES.format(count='works')}"
    return fetch(sql, [value for key in keys for value in (*key, *key, most)])


def errors_of(ids: Sequence[str]) -> dict[str, str]:
    """Return the beginnings of the errors of works."""
    works = rows(Work).filter(id__in=ids).annotate(error_start=Left("error", ERROR_READ))
    return dict(works.values_list("id", "error_start"))
