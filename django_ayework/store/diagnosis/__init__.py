"""Figures about the database for ``ayework_doctor``: here those that every database has.

Functions read a bounded amount, and lock nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Model

from django_ayework import models
from django_ayework.models import Schedule, Work
from django_ayework.store import backlog
from django_ayework.store.database import atomic, connection, dialect, fetch, rows, run
from django_ayework.store.lanes import FIRST_OF_LANE, Lane

#: The models that have tables.
TABLES: tuple[type[Model], ...] = tuple(
    model for model in (getattr(models, name) for name in models.__all__) if not model._meta.proxy
)
NAMES = tuple(model._meta.db_table for model in TABLES)
#: The explained claim asks for this number of works.
CLAIMED = 10


def plan_of_claim(lane: Lane) -> str:
    """Return how the database would find the first works of a lane, as text. Nothing is claimed."""
    verb = "EXPLAIN QUERY PLAN" if connection().vendor == "sqlite" else "EXPLAIN"
    found = fetch(f"{verb} SELECT id {FIRST_OF_LANE}", (*lane, CLAIMED))
    return "\n".join(" ".join(map(str, row)) for row in found)


def has_more_works_than(number: int) -> bool:
    """Tell whether there are more works than this, in any status."""
    return len(rows(Work).order_by().values_list("id", flat=True)[: number + 1]) > number


def columns_of(model: type[Model]) -> list[str]:
    """Return the columns of a table."""
    return [str(field.column) for field in model._meta.concrete_fields]


def try_writes() -> None:
    """Raise the error by which the database refuses to write rows of a table. No row is written or locked."""
    with atomic():
        for model in TABLES:
            table, *columns = map(dialect().quoted, (model._meta.db_table, *columns_of(model)))
            listed = ", ".join(columns)
            run(f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {table} WHERE 1 = 0")
            run(f"UPDATE {table} SET {columns[0]} = {columns[0]} WHERE 1 = 0")
            run(f"DELETE FROM {table} WHERE 1 = 0")


def missing_indexes() -> tuple[list[str], int]:
    """Return the declared indexes and constraints that the tables lack, and how many are declared."""
    declared: dict[str, set[str]] = {}
    for model in TABLES:
        named = (*model._meta.indexes, *model._meta.constraints)
        declared[model._meta.db_table] = {each.name for each in named}
    missing: list[str] = []
    with connection().cursor() as cursor:
        for table, names in declared.items():
            there = connection().introspection.get_constraints(cursor, table) if names else {}
            missing += sorted(names - there.keys())
    return missing, sum(map(len, declared.values()))


def waiting_types(most_lanes: int, most: int) -> set[str]:
    """Return the types of works that have not ended: of so many lanes, and of so many other works at most."""
    lanes, _ = backlog.first_lanes(most_lanes)
    others = (depth.type for status in backlog.IN_ORDER for depth in backlog.depths_at(status, most))
    return {*(lane.type for lane in lanes), *others}


def number_of_schedules() -> int:
    """Count the schedules that are enabled."""
    return rows(Schedule).filter(enabled=True).count()


def driver() -> tuple[str, str, str]:
    """Return the driver of the connection, its version if it has one, and the database with its version."""
    database: Any = connection()
    module = database.Database
    version = getattr(module, "__version__", "")
    if not version and database.vendor == "mysql":  # that of sqlite3 is Python's own
        version = dotted(module.version_info)
    server = dotted(database.get_database_version())
    return module.__name__, str(version).split(" ")[0], f"{database.display_name} {server}"


def dotted(version: Iterable[object]) -> str:
    """Return the first numbers of a version.

    >>> dotted((2, 2, 7, "final", 0))
    '2.2.7'
    """
    return ".".join(map(str, [*version][:3]))
