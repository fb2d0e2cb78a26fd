"""Columns by the names that lead a database to their index.

An index over a few rows is a partial one, which a query finds by its condition. MySQL and MariaDB have none:
there a virtual column stands in for the real one, null in all other rows, and a query must name it. What each
stands in for is said where the index is (``models.work``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Func, Manager, QuerySet
from django.db.models.expressions import Col
from django.db.models.sql.compiler import SQLCompiler

from django_ayework.rules.states import Status, is_terminal
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


#: When works ended, to order those by that :func:`ended_as` returns.
ENDED_AT = StandIn("ended_at", "timeline_at")
#: What ``timeline_at`` is in works of a status; in those that have ended it is when they did.
MOMENTS: Mapping[str, str] = {
    Status.SCHEDULED: "run_at",
    Status.BLOCKED: "deadline",
    Status.RUNNING: "leased_until",
}


def pending(works: QuerySet[M] | Manager[M], queue: str, type: str) -> QuerySet[M]:
    """Return those of the works that are pending in a queue, of a type, found through the lanes' index."""
    found: Any = works.alias(pending_in=StandIn("queue", "pending_in"))
    in_lane: QuerySet[M] = found.filter(status=Status.PENDING, pending_in=queue, type=type)
    return in_lane


def all_pending(works: QuerySet[Any] | Manager[Any]) -> QuerySet[Any]:
    """Return those of the works that are pending, found by the lanes' index; ``pending_in`` is the queue."""
    found: Any = works.alias(pending_in=StandIn("queue", "pending_in"))
    every: QuerySet[Any] = found.filter(status=Status.PENDING, pending_in__isnull=False)
    return every


def on_timeline(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that have this status, which is not pending, found through its index.

    Filter and order them by ``timeline_at``: when they are due, overdue, lapse or ended.
    """
    moment = MOMENTS.get(status, "ended_at")
    found: Any = works.alias(
        timeline_status=StandIn("status", "timeline_status"), timeline_at=StandIn(moment, "timeline_at")
    )
    standing: QuerySet[Any] = found.filter(timeline_status=status)
    return standing


def ended_as(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that ended with this status, found through the index over ended works."""
    return on_timeline(works, status).filter(timeline_at__isnull=False)


def with_status(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that have this status, found through the index that has it."""
    if status == Status.PENDING:
        return all_pending(works)
    return ended_as(works, status) if is_terminal(status) else on_timeline(works, status)
