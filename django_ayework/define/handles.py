"""What queueing gives back: a handle, by which a work can be followed, and the state it shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django_ayework.errors import no_attribute
from django_ayework.rules.durations import Seconds
from django_ayework.rules.retry import RetryPolicy
from django_ayework.rules.states import Status

R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkState:
    """A work as it stands. ``timeout`` is in seconds; moments are aware datetimes.

    ``error`` is what a dead work died of; ``last_error`` is what the last unsuccessful attempt met. Both are
    None after success.
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
    """A chain as it stands: how it was queued, how its last step stands, and a page of its steps.

    ``type``, ``input`` and ``queued_at`` are those of its first work, and None when that is gone. ``output``
    is the result of the last step once that has succeeded, ``error`` what it died of, ``ended_at`` when it
    ended. ``length`` counts the steps so far. ``next_start`` is the index of the next page's first step, and
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


#: What the attributes of a handle are called elsewhere.
MEANINGS = {
    "get": "handle.result(timeout=…)",
    "wait": "handle.result(timeout=…)",
    "join": "handle.group(timeout=…)",
    "aget": "await handle.aresult(timeout=…)",
    "status": "handle.state().status",
    "ready": "handle.state().status in Status.terminal",
    "done": "handle.state().status in Status.terminal",
    "successful": "handle.state().status",
    "failed": "handle.state().status",
    "info": "handle.state()",
    "refresh": "handle.state()",
    "return_value": "handle.result()",
    "error": "handle.state().error",
    "errors": "handle.state().error",
    "traceback": "handle.state().error",
    "attempts": "handle.state().attempt",
    "revoke": "cancel(handle.id)",
    "abort": "cancel(handle.id)",
    "task_id": "handle.id",
    "job_id": "handle.id",
    "pk": "handle.id",
}


class Handle(ABC, Generic[R_co, G_co]):
    """A queued work, typed by its own result and by its group's value.

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
        """The id of the work's group; a handle made from an id alone looks it up when first asked."""
        if self._group_id is None:
            self._group_id, self._chain_id = self._find_ids()
        return self._group_id or self.id

    @property
    def chain_id(self) -> str:
        """The id of the first work of the chain; looked up like ``group_id``."""
        if self._chain_id is None:
            self._group_id, self._chain_id = self._find_ids()
        return self._chain_id or self.id

    @abstractmethod
    def _find_ids(self) -> tuple[str | None, str | None]:
        """Read the ids of the work's group and chain; None when there is no such work."""

    @abstractmethod
    def state(self) -> WorkState | None:
        """Return the work as it stands; None when no such work is committed (or visible here)."""

    @abstractmethod
    def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the work's end and return its own result.

        Raises WorkFailed when it died, WorkCancelled, WaitTimeout after ``timeout`` (seconds or timedelta),
        WaitInTransaction when waiting could never end, WorkNotFound when there is no such work.
        """

    @abstractmethod
    def group(self, timeout: Seconds | None = None) -> G_co | None:
        """Wait for the end of every work of the group; return the group's value, or None.

        Never raises for what became of members. Raises WaitTimeout, WaitInTransaction, WorkNotFound.
        """

    @abstractmethod
    def chain(self, timeout: Seconds | None = None) -> Any:
        """Wait for the end of the work's chain and return the result of its last work.

        Raises as ``result`` does, for the work with which the chain ended.
        """

    @abstractmethod
    def chain_state(self, start: int = 0, limit: int = 100) -> ChainState | None:
        """Return the work's chain as it stands, with its steps from index ``start`` on, at most ``limit``.

        None when no work of the chain is committed (or visible here). Raises InvalidOption for a ``limit``
        that is not from 1 to 1000.
        """

    @abstractmethod
    def cancel(self) -> list[str]:
        """Cancel the work if it has not ended; return the ids of the works that were cancelled.

        The first work of a group stands for the group: all its works that have not ended are cancelled, in
        one transaction per page. Raises WorkNotFound.
        """

    @abstractmethod
    async def astate(self) -> WorkState | None:
        """See state()."""

    @abstractmethod
    async def aresult(self, timeout: Seconds | None = None) -> R_co:
        """See result()."""

    @abstractmethod
    async def agroup(self, timeout: Seconds | None = None) -> G_co | None:
        """See group()."""

    @abstractmethod
    async def achain(self, timeout: Seconds | None = None) -> Any:
        """See chain()."""

    @abstractmethod
    async def achain_state(self, start: int = 0, limit: int = 100) -> ChainState | None:
        """See chain_state()."""

    @abstractmethod
    async def acancel(self) -> list[str]:
        """See cancel()."""

    def __await__(self) -> Generator[Any, None, G_co | None]:
        return self.agroup().__await__()

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    if not TYPE_CHECKING:  # which are to know the attributes that there are

        def __getattr__(self, name):
            """Raise AttributeError, suggesting the nearest attribute."""
            public = [known for known in dir(Handle) if not known.startswith("_")]
            raise no_attribute("'Handle'", name, ["id", "deduplicated", *public], MEANINGS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)
