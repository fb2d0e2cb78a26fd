"""Works from outside: handles, the states that they show, and the events that hooks are given."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from django_ayework.errors import by_other_name, no_attribute
from django_ayework.rules.durations import Seconds
from django_ayework.rules.retry import RetryPolicy
from django_ayework.rules.states import Status

if TYPE_CHECKING or sys.version_info < (3, 13):
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

# The type variables of works: their result, their contribution to the group, the result of their chain. The
# result of a chain is that of its last work. For a work that does not hand over to another it is the work's
# own, which is the default (PEP 696). The result of the chain that goes on with a work is that work's
# contribution unless it says otherwise.
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
G = TypeVar("G")
C = TypeVar("C")
R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)
C_co = TypeVar("C_co", covariant=True, default=R_co)
S_co = TypeVar("S_co", covariant=True, default=G_co)


@dataclass(frozen=True, slots=True)
class WorkCount:
    """How many works of a queue and a type have a status; if ``capped``, there may be more."""

    queue: str
    type: str
    status: Status
    works: int
    capped: bool = False

    @property
    def place(self) -> tuple[str, str, str]:
        """The queue, the type and the status."""
        return self.queue, self.type, self.status.value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkState:
    """The present state of a work. ``timeout`` is in seconds; moments are aware datetimes.

    ``error`` is the error that made a work dead; ``last_error`` is that of the last unsuccessful attempt.
    Both are None after success.
    """

    id: str
    type: str
    queue: str
    status: Status
    attempt: int
    attempts: int
    result: Any
    error: str | None
    last_error: str | None
    reason: str | None
    queued_at: datetime
    start_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    priority: int
    fairness: str | None
    retry: RetryPolicy
    timeout: float | None
    deadline: datetime | None
    group_id: str
    chain_id: str
    chain_index: int
    parent: str | None
    dependents: tuple[str, ...]
    blockers: tuple[str, ...]
    unit: str | None
    completed_by: str | None
    worker: str | None
    progress: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """The present state of a chain: its first work, its last step, and a page of its steps.

    ``type``, ``input`` and ``queued_at`` are those of its first work, and None when that was deleted.
    ``status``, ``error`` and ``ended_at`` are those of the last step. ``output`` is its result once it has
    succeeded.
    ``length`` counts the steps so far. ``next_start`` is the index of the next page's first step, and
    None on the last page.
    """

    id: str
    type: str | None
    input: Any
    status: Status
    output: Any
    error: str | None
    queued_at: datetime | None
    ended_at: datetime | None
    length: int
    steps: tuple[WorkState, ...]
    next_start: int | None


class Kind(StrEnum):
    """The kinds of events."""

    QUEUED = "queued"
    STARTED = "started"
    DEFERRED = "deferred"
    UNBLOCKED = "unblocked"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    GROUP_DONE = "group-done"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEvent:
    """An event, as ``ON_EVENT`` and a type's ``on_event`` are given it.

    ``work`` is None for ``group-done``, which has ``group_id`` and ``value`` instead; ``extra`` holds the
    other values of the signal of the same kind: ``error`` and ``will_retry``, or ``run_at``.
    """

    kind: Kind
    group_id: str
    at: datetime
    work: WorkState | None = None
    value: Any = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        """The work's id, or None."""
        return self.work.id if self.work else None

    @property
    def type(self) -> str | None:
        """The work's type name, or None."""
        return self.work.type if self.work else None


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """The facts of a failure, which ``on_failure`` is given besides the exception."""

    id: str
    type: str
    group_id: str
    attempt: int
    attempts: int


#: The attributes that handles have in other packages, by what to write here.
MEANINGS = by_other_name(
    {
        "handle.result(timeout=…)": ("get", "wait"),
        "handle.group(timeout=…)": ("join",),
        "await handle.aresult(timeout=…)": ("aget",),
        "handle.state().status": ("status", "successful", "failed"),
        "handle.state().status in Status.terminal": ("ready", "done"),
        "handle.state()": ("info", "refresh"),
        "handle.result()": ("return_value",),
        "handle.state().error": ("error", "errors", "traceback"),
        "handle.state().attempt": ("attempts",),
        "cancel(handle.id)": ("revoke", "abort"),
        "retry(handle.id)": ("retry", "requeue"),
        "handle.id": ("task_id", "job_id", "pk"),
    }
)


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a plain function that queries the database, in a thread."""
    from asgiref.sync import sync_to_async  # imports asyncio, which few processes need

    return await sync_to_async(call)(*args, **kwargs)


class Handle(ABC, Generic[R_co, G_co, C_co]):
    """A queued work, typed by its own result, its group's value, and the result of its chain.

    ``await handle`` is ``await handle.agroup()``.
    """

    def __init__(
        self,
        id: str,
        group_id: str | None = None,
        deduplicated: bool = False,
        chain_id: str | None = None,
    ) -> None:
        self.id = id
        self.deduplicated = deduplicated
        self._group_id = group_id
        self._chain_id = chain_id

    @property
    def group_id(self) -> str:
        """The id of the work's group. A handle made from an id alone reads it from the database, once."""
        if self._group_id is None:
            self._group_id, self._chain_id = self._find_ids()
        return self._group_id or self.id

    @property
    def chain_id(self) -> str:
        """The id of the first work of the chain, read like ``group_id``."""
        if self._chain_id is None:
            self._group_id, self._chain_id = self._find_ids()
        return self._chain_id or self.id

    @abstractmethod
    def _find_ids(self) -> tuple[str | None, str | None]:
        """Read the ids of the work's group and chain; None when there is no such work."""

    @abstractmethod
    def state(self) -> WorkState | None:
        """Return the present state, or None when this transaction sees no such work. It never waits."""

    @abstractmethod
    def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the work's end and return its own result.

        Raises WorkFailed or WorkCancelled when the work ended so, WaitTimeout after ``timeout`` (seconds or
        timedelta), WaitInTransaction when the open transaction has queued the work, and WorkNotFound when
        there is no such work.
        """

    @abstractmethod
    def group(self, timeout: Seconds | None = None) -> G_co | None:
        """Wait for the end of every work of the group; return the group's value, or None.

        Dead works of the group raise nothing. Raises WaitTimeout after ``timeout`` (seconds or timedelta),
        WaitInTransaction and WorkNotFound.
        """

    @abstractmethod
    def chain(self, timeout: Seconds | None = None) -> C_co:
        """Wait for the end of the work's chain and return the result of its last work.

        Raises as ``result`` does, for the work with which the chain ended.
        """

    @abstractmethod
    def chain_state(self, start: int = 0, limit: int = 100) -> ChainState | None:
        """Return the state of the work's chain, with its steps from index ``start`` on, at most ``limit``.

        Return None when this transaction sees no work of the chain. Raises InvalidOption for a ``limit`` that
        is not from 1 to 1000.
        """

    @abstractmethod
    def cancel(self) -> list[str]:
        """Cancel the work if it has not ended; return the ids of the works that were cancelled.

        For the first work of a group, all works of the group that have not ended are cancelled, in one
        transaction per page. Raises WorkNotFound.
        """

    async def astate(self) -> WorkState | None:
        """See state()."""
        return await in_thread(self.state)

    @abstractmethod
    async def aresult(self, timeout: Seconds | None = None) -> R_co:
        """See result()."""

    @abstractmethod
    async def agroup(self, timeout: Seconds | None = None) -> G_co | None:
        """See group()."""

    @abstractmethod
    async def achain(self, timeout: Seconds | None = None) -> C_co:
        """See chain()."""

    async def achain_state(self, start: int = 0, limit: int = 100) -> ChainState | None:
        """See chain_state()."""
        return await in_thread(self.chain_state, start, limit)

    async def acancel(self) -> list[str]:
        """See cancel()."""
        return await in_thread(self.cancel)

    def __await__(self) -> Generator[Any, None, G_co | None]:
        return self.agroup().__await__()

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    if not TYPE_CHECKING:  # type checkers refuse unknown attributes themselves

        def __getattr__(self, name):
            """Raise AttributeError, suggesting the nearest attribute."""
            public = [known for known in dir(Handle) if not known.startswith("_")]
            raise no_attribute("'Handle'", name, ["id", "deduplicated", *public], MEANINGS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)
