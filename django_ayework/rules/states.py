"""The states of a work, the moves between them, and a move as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeGuard

from django_ayework.rules.controls import FairnessKey


class Status(StrEnum):
    """The state of a work. The last three are *terminal*: the work is done.

    >>> Status("dead") is Status.DEAD, Status.DEAD == "dead"
    (True, True)
    >>> Status.SUCCESS in Status.terminal
    True
    """

    BLOCKED = "blocked"  # waits for other works
    SCHEDULED = "scheduled"  # waits for its moment
    PENDING = "pending"  # due: the next free worker takes it
    RUNNING = "running"  # leased to a worker
    SUCCESS = "success"  # ended well
    DEAD = "dead"  # ended badly; ``reason`` says why; can be retried by hand
    CANCELLED = "cancelled"  # ended on request; can be retried by hand

    # The same members under the names that are shown and stored: ``Status.dead is Status.DEAD``.
    blocked = BLOCKED
    scheduled = SCHEDULED
    pending = PENDING
    running = RUNNING
    success = SUCCESS
    dead = DEAD
    cancelled = CANCELLED

    terminal: frozenset[Status]


class Reason(StrEnum):
    """Why a dead work is dead."""

    EXHAUSTED = "exhausted"  # every attempt failed, or its worker was lost too often
    ABORTED = "aborted"  # its handler or ``on_failure`` gave up
    EXPIRED = "expired"  # past its deadline, or a gate past its timeout
    UNSATISFIABLE = "unsatisfiable"  # its condition can no longer be met
    UNKNOWN_TYPE = "unknown_type"  # no worker knew its type for long enough
    BAD_INPUT = "bad_input"  # its stored input cannot be read or does not fit its handler


class Outcome(StrEnum):
    """How an attempt ended. Successes are kept for types that ask for it, all others always."""

    FAILED = "failed"  # the handler raised, another attempt follows
    DIED = "died"  # the handler raised, and that was the end
    DEFERRED = "deferred"  # the handler asked to come back later
    LOST = "lost"  # the lease lapsed: its worker was killed or cut off
    REVOKED = "revoked"  # the work was cancelled, or completed without its worker, while the handler ran
    SUCCESS = "success"  # the handler returned; kept where the type has ``keep_attempts``


TERMINAL: Final = frozenset({Status.SUCCESS, Status.DEAD, Status.CANCELLED})
LIVE: Final = frozenset(Status) - TERMINAL
RETRYABLE: Final = frozenset({Status.DEAD, Status.CANCELLED})
#: Not ended, and with no worker.
WAITING: Final = LIVE - {Status.RUNNING}


class OfTheClass:
    """An attribute of the class alone: of a single status, the set of all terminal ones would be true."""

    def __get__(self, status: Status | None, owner: type[Status]) -> frozenset[Status]:
        if status is not None:
            meant = "Did you mean status in Status.terminal?"
            raise AttributeError(f"a single status has no attribute 'terminal'. {meant}")
        return TERMINAL


Status.terminal = OfTheClass()  # type: ignore[assignment]  # which returns one

#: Every move by a claim, a settlement or an act: from a status, to the statuses it may become. The page "The
#: life of a work" draws it. A newer start also makes a pending work scheduled: ``transitions.renew``.
MOVES: Final[dict[Status, frozenset[Status]]] = {
    Status.BLOCKED: frozenset(
        {Status.PENDING, Status.SCHEDULED, Status.SUCCESS, Status.DEAD, Status.CANCELLED}
    ),
    Status.SCHEDULED: frozenset({Status.PENDING, Status.SUCCESS, Status.DEAD, Status.CANCELLED}),
    Status.PENDING: frozenset({Status.RUNNING, Status.SUCCESS, Status.DEAD, Status.CANCELLED}),
    Status.RUNNING: frozenset(
        {Status.PENDING, Status.SCHEDULED, Status.SUCCESS, Status.DEAD, Status.CANCELLED}
    ),
    Status.SUCCESS: frozenset(),
    Status.DEAD: frozenset({Status.PENDING, Status.BLOCKED}),
    Status.CANCELLED: frozenset({Status.SCHEDULED, Status.PENDING, Status.BLOCKED}),
}


def is_terminal(status: Status | str | None) -> TypeGuard[Status]:
    """Tell whether a work of this status is done; a missing work is not.

    >>> is_terminal("success"), is_terminal("running"), is_terminal(None)
    (True, False, False)
    """
    return status in TERMINAL


#: The columns of a work that no worker holds, in any status.
UNHELD = {"worker": None, "leased_until": None}
#: Columns that a transition may leave as they are.
LASTING = ("attempt", "run_at", "deadline", "group_id", "chain_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The new values of a row, written if its status is in ``leaves``, and delivery and worker are as read.

    The delivery alone does not name a claim: a crash of the server may lose the last claims, and the next
    claim of a work then has the same number. Without a worker, any may hold the work.

    A transition is made from the row that was read, so every field is the full new value.
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
    fairness_key: FairnessKey | None = None
    sort_key: str = ""

    def __post_init__(self) -> None:
        for status in self.leaves:
            if self.status not in MOVES[status]:
                raise ValueError(f"no work moves from {status} to {self.status}.")

    @property
    def written(self) -> dict[str, Any]:
        """The columns that every transition writes; whatever a work becomes, no worker holds it any more."""
        own = {name: getattr(self, name) for name in ("error", "result", "ended_at", "completed_by")}
        return {"status": str(self.status), "reason": str(self.reason), **own, **UNHELD}
