"""What the database says, read by plain SQL: the checker does not ask the engine."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

LIVE = ("blocked", "scheduled", "pending", "running")
#: The reserved type of gates.
GATE = "@work/dependency"


@dataclass(slots=True)
class Work:
    """A row of the table of works."""

    id: str
    type: str
    status: str
    reason: str
    attempt: int
    group_id: str | None
    parent_id: str | None
    chain_id: str | None
    chain_index: int
    result: str | None
    error: str
    unit: str | None
    dedup_key: str | None
    queued_at: float
    ended_at: float | None
    delivery: int
    begun_delivery: int

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.status in LIVE


@dataclass(slots=True)
class Attempt:
    """A row of the table of attempts that did not succeed."""

    work_id: str
    number: int
    worker: str
    outcome: str
    error: str


@dataclass(slots=True)
class Group:
    """A row of the table of groups."""

    id: str
    open: int
    total: int
    value: str | None


@dataclass
class Tables:
    """Every row that matters."""

    works: dict[str, Work] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    #: Pairs of a work and the kind of its effect.
    effects: list[tuple[str, str]] = field(default_factory=list)

    @cached_property
    def by_parent(self) -> dict[str, list[Work]]:
        """What each work has queued, continuations and released works among it."""
        found: dict[str, list[Work]] = defaultdict(list)
        for work in self.works.values():
            found[work.parent_id or ""].append(work)
        return found

    @cached_property
    def by_group(self) -> dict[str, list[Work]]:
        """The works of each group."""
        found: dict[str, list[Work]] = defaultdict(list)
        for work in self.works.values():
            found[work.group_id or work.id].append(work)
        return found

    @cached_property
    def by_chain(self) -> dict[str, list[Work]]:
        """The steps of each chain, in order."""
        found: dict[str, list[Work]] = defaultdict(list)
        for work in sorted(self.works.values(), key=lambda work: work.chain_index):
            found[work.chain_id or work.id].append(work)
        return found


WORKS = (
    "SELECT id, type, status, reason, attempt, group_id, parent_id, chain_id, chain_index, result, error, "
    "unit, dedup_key, queued_at, ended_at, delivery, begun_delivery FROM django_ayework_work"
)
ATTEMPTS = "SELECT work_id, number, worker, outcome, error FROM django_ayework_attempt"
GROUPS = "SELECT id, open, total, value FROM django_ayework_group"
EFFECTS = "SELECT work, kind FROM chaos_effect"
COUNT_LIVE = "SELECT count(*) FROM django_ayework_work WHERE ended_at IS NULL"


def read(cursor: Any) -> Tables:
    """Read everything."""
    works = [Work(*row) for row in fetch(cursor, WORKS)]
    for work in works:
        work.queued_at, work.ended_at = moment(work.queued_at) or 0.0, moment(work.ended_at)
    return Tables(
        works={work.id: work for work in works},
        attempts=[Attempt(*row) for row in fetch(cursor, ATTEMPTS)],
        groups={row[0]: Group(*row) for row in fetch(cursor, GROUPS)},
        effects=[(row[0], row[1]) for row in fetch(cursor, EFFECTS)],
    )


def count_live(cursor: Any) -> int:
    """Return how many works have not ended."""
    return int(fetch(cursor, COUNT_LIVE)[0][0])


def fetch(cursor: Any, statement: str) -> list[tuple[Any, ...]]:
    """Return all rows of a statement; texts are texts, whatever the driver gives."""
    cursor.execute(statement)
    return [tuple(as_text(value) for value in row) for row in cursor.fetchall()]


def as_text(value: Any) -> Any:
    """Decode what MariaDB's driver gives for a binary collation."""
    return value.decode() if isinstance(value, bytes) else value


def moment(value: Any) -> float | None:
    """Return a moment as seconds. SQLite gives texts, MariaDB datetimes without a zone."""
    if value is None:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return float((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
