"""Generated columns that lead MySQL and MariaDB to their index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Func, Manager, QuerySet
from django.db.models.expressions import Col, OrderBy
from django.db.models.lookups import IsNull
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


class IsAbsent(IsNull):
    """That a stand-in is null, as it is in rows outside its index; true of any row where there is none."""

    def as_sql(self, *args: Any, **kwargs: Any) -> Any:
        """Return what is always true."""
        return "1 = 1", []

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        """Return the condition."""
        return super().as_sql(compiler, connection)


class UrgentFirst(OrderBy):
    """By priority, the highest first; a rank, which stands in for it, is the lowest then."""

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        """Return the order of ranks."""
        return self.as_sql(compiler, connection, template="%(expression)s ASC")


#: When works ended, to order those by that :func:`ended_as` returns.
ENDED_AT = StandIn("ended_at", "moment")
#: What ``moment`` is in works of a status; in those that have ended it is when they did.
MOMENTS: Mapping[str, str] = {
    Status.SCHEDULED: "run_at",
    Status.BLOCKED: "deadline",
    Status.RUNNING: "leased_until",
}
#: The columns that the index has before ``moment`` are those of pending works. Of all others they are null,
#: which must be said to find those by ``moment``.
OF_PENDING = {
    "pending_in": "queue",
    "pending_type": "type",
    "pending_rank": "priority",
    "pending_sort_key": "sort_key",
}
IN_NO_LANE = tuple(IsAbsent(StandIn(column, stand_in), True) for stand_in, column in OF_PENDING.items())
#: The order within a lane.
IN_LANE = (
    UrgentFirst(StandIn("priority", "pending_rank"), descending=True),
    StandIn("sort_key", "pending_sort_key"),
    StandIn("run_at", "moment"),
    "id",
)


def with_status(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that have this status, found through the index that has it."""
    return ended_as(works, status) if is_terminal(status) else standing_as(works, status)


def standing_as(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that have this status, by the name that an index has for it."""
    found: Any = works.alias(standing=StandIn("status", "standing"))
    standing: QuerySet[Any] = found.filter(standing=status)
    return standing


def pending(works: QuerySet[M] | Manager[M], queue: str, type: str) -> QuerySet[M]:
    """Return those of the works that are pending in a queue, of a type, in the order of their lane."""
    found: Any = standing_as(works, Status.PENDING)
    found = found.alias(
        pending_in=StandIn("queue", "pending_in"), pending_type=StandIn("type", "pending_type")
    )
    in_lane: QuerySet[M] = found.filter(pending_in=queue, pending_type=type).order_by(*IN_LANE)
    return in_lane


def on_timeline(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that have this status, which is not pending, found through its index.

    Filter and order them by ``moment``: when they are due, overdue, lapse or ended.
    """
    moment = StandIn(MOMENTS.get(status, "ended_at"), "moment")
    found: Any = standing_as(works, status).alias(moment=moment)
    standing: QuerySet[Any] = found.filter(*IN_NO_LANE)
    return standing


def ended_as(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that ended with this status, found through the index over ended works."""
    return on_timeline(works, status).filter(moment__isnull=False)


def ended_by_type(works: QuerySet[Any] | Manager[Any], status: str) -> QuerySet[Any]:
    """Return those of the works that ended with this status, found through the index that has their types.

    Filter and order them by ``type`` and ``ended_at``.
    """
    found: Any = works.alias(ended_status=StandIn("status", "ended_status"))
    ended: QuerySet[Any] = found.filter(ended_status=status, ended_at__isnull=False)
    return ended
