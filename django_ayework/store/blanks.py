"""An INSERT to fill in, for works whose rows differ in what is their own only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_ayework.store.columns import INSERTED, values_of
from django_ayework.store.inserts import rows_made, statement_of
from django_ayework.store.rows import WorkRow


@dataclass(frozen=True, slots=True)
class BlankInsert:
    """An INSERT without a work's id, its input, and the moment at which it is queued and due."""

    sql: str
    before: tuple[Any, ...]  # the parameters between id and input
    between: tuple[Any, ...]  # those between input and queued_at, which run_at follows
    after: tuple[Any, ...]

    @classmethod
    def of(cls, vendor: str, sample: WorkRow) -> BlankInsert:
        """Return the INSERT of works as this one, of which id and input must be something."""
        values = values_of(sample)
        given = {name: value for name, value in zip(INSERTED, values, strict=True) if value}
        names, params = [*given], tuple(given.values())
        input, queued_at = names.index("input"), names.index("queued_at")
        sql = statement_of(vendor, values)
        return cls(sql, params[1:input], params[input + 1 : queued_at], params[queued_at + 2 :])

    def insert(self, database: Any, id: str, input: str, now: datetime) -> int:
        """Insert a work; return 0 when its id is taken, else 1."""
        moment = now if database.vendor == "postgresql" else database.ops.adapt_datetimefield_value(now)
        params = (id, *self.before, input, *self.between, moment, moment, *self.after)
        return rows_made(database, self.sql, params)
