"""Columns by the names that lead a database to their index.

An index over a few rows is a partial one, which a query finds by its condition. MySQL and MariaDB have none:
there a virtual column stands in for the real one, null in all other rows, and a query must name it. What each
stands in for is said where the index is (``models.work``).
"""

from __future__ import annotations

from typing import Any, cast

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Func, Manager, QuerySet
from django.db.models.expressions import Col
from django.db.models.sql.compiler import SQLCompiler

from django_ayework.store.database import M


class StandIn(Func):
    """A column, or what stands in for it on the database that is asked.

    Example: ``works.alias(due_at=StandIn("run_at", "due_at")).filter(due_at__lte=now)``
    """

    template = "%(expressions)s"
    arity = 1

    def __init__(self, column: str, stand_in: str) -> None:
        super().__init__(F(column))
        self.stand_in = stand_in

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
        """Return the stand-in, of the same table."""
        [column] = cast(list[Col], self.get_source_expressions())
        table = compiler.quote_name_unless_alias(column.alias)
        return f"{table}.{connection.ops.quote_name(self.stand_in)}", []


def ended_as(works: QuerySet[M] | Manager[M], status: str) -> QuerySet[M]:
    """Return those of the works that ended with this status, found through the index over ended works."""
    found: Any = works.alias(ended_as=StandIn("status", "ended_as"))
    ended: QuerySet[M] = found.filter(ended_as=status, ended_at__isnull=False)
    return ended
