"""A move from one status to another, as a value. ``store.transitions`` alone carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django_ayework.rules.states import MOVES, Reason, Status
from django_ayework.rules.turns import Place

#: Columns that a transition may leave as they are.
LASTING = ("attempt", "run_at", "deadline", "group_id", "chain_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What a work's row becomes, if it is still in one of ``leaves``, at this ``delivery`` of ``worker``.

    The delivery alone does not name a claim: a crash of the server may lose the last claims, and the next
    claim of a work then has the same number. Without a worker, any may hold the work.

    Whoever makes a transition has read the row, so every field is the full new value.
    """

    id: str
    delivery: int
    worker: str | None = None
    leaves: frozenset[Status]
    status: Status
    attempt: int
    run_at: datetime
    deadline: datetime | None
    group_id: str | None
    chain_id: str | None
    reason: Reason | str = ""
    error: str = ""
    result: str | None = None
    ended_at: datetime | None = None
    completed_by: str | None = None
    #: The columns among ``LASTING`` that do not stay as they were.
    renews: tuple[str, ...] = LASTING
    #: Where the work takes turns with those of other labels, if it goes back there; gives it a ``sort_key``.
    place: Place | None = None
    sort_key: str = ""

    def __post_init__(self) -> None:
        for status in self.leaves:
            if self.status not in MOVES[status]:
                raise ValueError(f"no work moves from {status} to {self.status}.")
