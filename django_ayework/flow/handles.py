"""Handles: follow a work from anywhere, and wait for its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.define import handles
from django_ayework.define.handles import ChainState, WorkState
from django_ayework.define.registry import registry
from django_ayework.errors import (
    WaitInTransaction,
    WaitTimeout,
    WorkCancelled,
    WorkFailed,
    WorkNotFound,
)
from django_ayework.flow.acting import cancel_group, cancel_works
from django_ayework.flow.effects import note_waiting
from django_ayework.flow.notify import hears_others, subscribe_ended, waiters
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.flow.requests import twinned
from django_ayework.flow.states import find_chain_state, find_state
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.database import connection, in_transaction, is_manual, on_commit
from django_ayework.store.groups import find_group, last_step
from django_ayework.store.rows import WorkRow, find_row

# --- waiting ---
# Waiting for the end of a work, its group or its chain: by being told, and by looking now and then.

#: Waiting looks at the database this often: soon at first, then less and less. Seconds.
FIRST_LOOK = 0.005
SLOWEST_LOOK = 0.25
#: The same while other processes are heard.
SLOWEST_LOOK_WHEN_TOLD = 1.0
#: Seconds between two looks of one who is told that anything may have ended, again and again.
LEAST_BETWEEN = 0.02


class Wait:
    """One wait; ``wake`` is called, in any thread, when it is worthwhile to look again."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._ids: set[str] = set()
        self._looked_at = 0.0
        self._is_sure = False
        self._hears_others = False

    def __enter__(self) -> Wait:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waiters.remove(self._ids, self._told)
        if self._hears_others:
            hearing.leave()

    def go_on(self, row: WorkRow) -> None:
        """Note that there is no answer yet: be told of the work from now on, if need be by others.

        Many works end before a second look, and for those no connection is opened.
        """
        self._looked_at, self._is_sure = time.monotonic(), False
        if not self._ids:
            self._ids = {row.id, row.group, row.chain}
            waiters.add(self._ids, self._told)
        elif not self._hears_others and not in_transaction():
            self._hears_others = True
            hearing.join()

    def gap(self) -> float:
        """Return how many seconds to leave before another look."""
        return 0.0 if self._is_sure else self._looked_at + LEAST_BETWEEN - time.monotonic()

    def pauses(self, timeout: Seconds | None) -> Iterator[float | None]:
        """Yield how long to sleep at most after each look; None when the time is over."""
        limit = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        pause = FIRST_LOOK
        while True:
            left = pause if limit is None else limit - time.monotonic()
            if left <= 0:
                yield None
                return
            yield min(pause, left)
            slowest = SLOWEST_LOOK_WHEN_TOLD if self._hears_others and hears_others() else SLOWEST_LOOK
            pause = min(pause * 1.5, slowest)

    def _told(self, surely: bool) -> None:
        self._is_sure = self._is_sure or surely
        self._wake()


class AsyncBell:
    """Wakes a coroutine; any thread may ring it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake whoever waits."""
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Forget that it was rung."""
        self._event.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait at most that long; return whether it was rung."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Hearing:
    """One subscription for all who wait in this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process."""
        self._lock = threading.Lock()
        self._number = 0
        self._end: Callable[[], None] | None = None

    def join(self) -> None:
        """Note one more who waits."""
        with self._lock:
            self._number += 1
            if self._end is None:
                self._end = subscribe_ended(waiters.tell)

    def leave(self) -> None:
        """Note that one has ended."""
        with self._lock:
            self._number -= 1
            if self._number == 0 and self._end is not None:
                self._end()
                self._end = None


hearing = Hearing()
after_fork_in_child(hearing.forget)

# --- handles ---
# Handles: follow a work from anywhere, wait for its end.

R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pending:
    """There is no answer yet."""


PENDING = Pending()


class Handle(handles.Handle[R_co, G_co]):
    """A handle that looks into the database until there is an answer."""

    _noted = False  # that somebody waits for the group

    def _find_ids(self) -> tuple[str | None, str | None]:
        """Read the ids of the work's group and chain."""
        row = find_row(self.id)
        return (row.group, row.chain) if row else (None, None)

    @twinned
    def state(self) -> WorkState | None:
        """Read the work's state."""
        return find_state(self.id)

    @twinned
    def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the work's own result."""
        return cast(R_co, self._wait(self._own_result, timeout))

    @twinned
    def group(self, timeout: Seconds | None = None) -> G_co | None:
        """Wait for the group's value."""
        return cast("G_co | None", self._wait(self._group_value, timeout))

    @twinned
    def chain(self, timeout: Seconds | None = None) -> Any:
        """Wait for the chain's last result."""
        return self._wait(self._chain_result, timeout)

    @twinned
    def chain_state(self, start: int = 0, limit: int = 100) -> ChainState | None:
        """Read the state of the work's chain."""
        return find_chain_state(self.id, start, limit)

    @twinned
    def cancel(self) -> list[str]:
        """Cancel the work, or the whole group if the work is its first."""
        if self.group_id == self.id:
            return cancel_group(self.id)
        existing(self.id)
        return cancel_works([self.id])

    async def astate(self) -> WorkState | None:
        """See state()."""
        return await sync_to_async(self.state)()

    async def aresult(self, timeout: Seconds | None = None) -> R_co:
        """See result()."""
        return cast(R_co, await self._await(self._own_result, timeout))

    async def agroup(self, timeout: Seconds | None = None) -> G_co | None:
        """See group()."""
        return cast("G_co | None", await self._await(self._group_value, timeout))

    async def achain(self, timeout: Seconds | None = None) -> Any:
        """See chain()."""
        return await self._await(self._chain_result, timeout)

    async def achain_state(self, start: int = 0, limit: int = 100) -> ChainState | None:
        """See chain_state()."""
        return await sync_to_async(self.chain_state)(start, limit)

    async def acancel(self) -> list[str]:
        """See cancel()."""
        return await sync_to_async(self.cancel)()

    def _wait(self, look: Callable[[WorkRow], Any], timeout: Seconds | None) -> Any:
        """Look until there is an answer: whenever somebody tells of an end, and at growing intervals."""
        bell = threading.Event()
        with Wait(bell.set) as wait:
            for pause in wait.pauses(timeout):
                bell.clear()
                answer = self._look(look, wait)
                if answer is not PENDING:
                    return answer
                if pause is None:
                    break
                if bell.wait(pause):
                    time.sleep(max(0.0, min(wait.gap(), pause)))
        raise too_late(self.id, timeout)

    async def _await(self, look: Callable[[WorkRow], Any], timeout: Seconds | None) -> Any:
        """See _wait(); between two looks the event loop is free."""
        bell = AsyncBell()
        with Wait(bell.ring) as wait:
            for pause in wait.pauses(timeout):
                bell.clear()
                answer = await sync_to_async(self._look)(look, wait)
                if answer is not PENDING:
                    return answer
                if pause is None:
                    break
                if await bell.wait(pause):
                    await asyncio.sleep(max(0.0, min(wait.gap(), pause)))
        raise await sync_to_async(too_late)(self.id, timeout)

    def _look(self, look: Callable[[WorkRow], Any], wait: Wait) -> Any:
        """Look once; refuse to wait for what only the end of our own transaction can bring."""
        row = existing(self.id)
        self._noted = self._noted or note_waiting(row.group)
        answer = look(row)
        if answer is PENDING and is_uncommitted(self.id):
            raise WaitInTransaction(id=self.id)
        if answer is PENDING:
            wait.go_on(row)
        return answer

    def _own_result(self, row: WorkRow) -> Any:
        """Return the work's own result, if it has ended."""
        if not is_terminal(row.status):
            return PENDING
        if row.status == Status.DEAD:
            raise WorkFailed(f"the work {row.id} ({row.type}) died: {row.error}", id=row.id)
        if row.status == Status.CANCELLED:
            raise WorkCancelled(f"the work {row.id} ({row.type}) was cancelled.", id=row.id)
        return decode_value(row.result, codec_of(registry.find(row.type)))

    def _chain_result(self, row: WorkRow) -> Any:
        """Return the result of the chain's last work; a step that continues hands over as it ends."""
        return self._own_result(last_step(row.chain) or row)

    def _group_value(self, row: WorkRow) -> Any:
        """Return the group's value, if all its works have ended."""
        group = find_group(row.group)
        if group is not None:
            return PENDING if group.open > 0 else decode_value(group.value, get_settings().codec)
        if not is_terminal(row.status):
            return PENDING
        return decode_value(row.result, codec_of(registry.find(row.type)))


def get_handle(id: str) -> handles.Handle[Any, Any]:
    """Return the handle of the work of this id, which need not exist."""
    return Handle(id)


def existing(id: str) -> WorkRow:
    """Return the row of a work, or raise WorkNotFound."""
    row = find_row(id)
    if row is None:
        raise WorkNotFound(
            f"no work has the id {id!r}; it may have been pruned, or its transaction was rolled back.", id=id
        )
    return row


def too_late(id: str, timeout: Seconds | None) -> WaitTimeout:
    """Return the error of a wait that is over, saying how things stand."""
    row = existing(id)
    limit = 0.0 if timeout is None else seconds(timeout, "timeout")
    if is_terminal(row.status):
        standing = f"it is {row.status}, but others of its group or chain have not ended"
    else:
        standing = f"it is {row.status}; explain({id!r}) says why"
    return WaitTimeout(f"expected the work {id} to end within {limit:g} seconds: {standing}.", id=id)


@dataclass(slots=True)
class Uncommitted:
    """Works that one transaction inserted; ``block`` is its outermost ``atomic``, to tell it from others."""

    block: object
    ids: set[str] = field(default_factory=set)


#: By connection, what its present transaction inserted.
_uncommitted: WeakKeyDictionary[BaseDatabaseWrapper, Uncommitted] = WeakKeyDictionary()


def remember_uncommitted(ids: Collection[str]) -> None:
    """Note works that nobody else can see before the transaction commits, if Django tells of that."""
    if in_transaction() and not is_manual(connection()):
        known, block = _uncommitted.get(connection()), outermost_block()
        if known is None or known.block is not block:
            known = _uncommitted[connection()] = Uncommitted(block)
        known.ids.update(ids)
        on_commit(partial(forget_committed, known, ids))


def forget_committed(known: Uncommitted, ids: Collection[str]) -> None:
    """Note that works are committed; in a test, where ``drain`` calls this, they are not."""
    if not in_transaction():
        known.ids.difference_update(ids)


def is_uncommitted(id: str) -> bool:
    """Tell whether this thread's open transaction inserted the work."""
    known = _uncommitted.get(connection())
    return known is not None and in_transaction() and known.block is outermost_block() and id in known.ids


def outermost_block() -> object:
    """Return the ``atomic`` that began this thread's transaction."""
    blocks = connection().atomic_blocks
    return blocks[0] if blocks else None
