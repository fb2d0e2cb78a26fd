"""Handles: the state of a work from anywhere, and waiting for its end.

A waiting caller reads the database at growing intervals, and at once when it is notified of an end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

from asgiref.sync import sync_to_async

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.define import handles
from django_ayework.define.handles import C_co, ChainState, G_co, R_co, WorkState
from django_ayework.define.types import registry
from django_ayework.errors import WaitInTransaction, WaitTimeout, WorkCancelled, WorkFailed, WorkNotFound
from django_ayework.flow.hooks import note_waiting
from django_ayework.flow.notify import ended_works, receives_remote, subscribe_ended
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.flow.states import find_chain_state, find_state
from django_ayework.flow.termination import cancel_group, cancel_works
from django_ayework.flow.uncommitted import is_uncommitted
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.identity import require_work_id
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.database import in_transaction, sync_only
from django_ayework.store.rows import WorkRow, find_group, find_row, last_step

#: A waiting caller reads the database this often: soon at first, then less and less. Seconds.
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.25
#: The same while notifications of other processes arrive.
LONGEST_PAUSE_WHEN_NOTIFIED = 1.0
#: Seconds between two reads of a caller that is notified again and again that anything may have ended.
LEAST_BETWEEN = 0.02


class Wait:
    """One wait. It calls ``wake``, in any thread, when the caller should read the database again."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._ids: set[str] = set()
        self._read_at = 0.0
        self._is_sure = False
        self._is_remote = False  # also notified by other processes
        self._is_over = False
        self._lock = threading.Lock()

    def __enter__(self) -> Wait:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._is_over = True
            ended_works.unsubscribe(self._ids, self._notified)
            if self._is_remote:
                remote_ends.leave()

    def go_on(self, row: WorkRow) -> None:
        """Subscribe to the work's end, as there is no answer yet: in this process first, then in others.

        Many works end before the second read, and for those no connection is opened. An async caller may be
        cancelled while its read goes on in a thread: nothing would end a subscription that comes after that.
        """
        self._read_at, self._is_sure = time.monotonic(), False
        with self._lock:
            if self._is_over:
                return
            if not self._ids:
                self._ids = {row.id, row.group, row.chain}
                ended_works.subscribe(self._ids, self._notified)
            elif not self._is_remote and not in_transaction():
                self._is_remote = True
                remote_ends.join()

    def gap(self) -> float:
        """Return the seconds to leave before the next read."""
        return 0.0 if self._is_sure else self._read_at + LEAST_BETWEEN - time.monotonic()

    def pauses(self, timeout: Seconds | None) -> Iterator[float | None]:
        """Yield the longest sleep after each read; None when the time is over."""
        limit = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        pause = FIRST_PAUSE
        while True:
            left = pause if limit is None else limit - time.monotonic()
            if left <= 0:
                yield None
                return
            yield min(pause, left)
            is_notified = self._is_remote and receives_remote()
            pause = min(pause * 1.5, LONGEST_PAUSE_WHEN_NOTIFIED if is_notified else LONGEST_PAUSE)

    def _notified(self, surely: bool) -> None:
        self._is_sure = self._is_sure or surely
        self._wake()


class AsyncEvent:
    """An event that wakes a coroutine, and that any thread may set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self.clear = self._event.clear

    def set(self) -> None:
        """Wake the coroutine."""
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait at most that long; return whether it was set."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class RemoteEnds:
    """One subscription to the notifications of other processes for all who wait in this process."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked process."""
        self._lock = threading.Lock()
        self._waits = 0
        self._unsubscribe: Callable[[], None] | None = None

    def join(self) -> None:
        """Add a wait."""
        with self._lock:
            self._waits += 1
            if self._unsubscribe is None:
                self._unsubscribe = subscribe_ended(ended_works.publish)

    def leave(self) -> None:
        """Remove a wait."""
        with self._lock:
            self._waits -= 1
            if self._waits == 0 and self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None


remote_ends = RemoteEnds()
after_fork_in_child(remote_ends.reset)


#: There is no answer yet.
PENDING = object()


class Handle(handles.Handle[R_co, G_co, C_co]):
    """A handle that reads the database until there is an answer."""

    _is_noted = False  # that a caller waits for the group

    def _find_ids(self) -> tuple[str | None, str | None]:
        """Read the ids of the work's group and chain."""
        row = find_row(self.id)
        return (row.group, row.chain) if row else (None, None)

    @sync_only
    def state(self) -> WorkState | None:
        """Read the work's state."""
        return find_state(self.id)

    @sync_only
    def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the work's own result."""
        return cast(R_co, self._wait(self._own_result, timeout))

    @sync_only
    def group(self, timeout: Seconds | None = None) -> G_co | None:
        """Wait for the group's value."""
        return cast("G_co | None", self._wait(self._group_value, timeout))

    @sync_only
    def chain(self, timeout: Seconds | None = None) -> C_co:
        """Wait for the chain's last result."""
        return cast(C_co, self._wait(self._chain_result, timeout))

    @sync_only
    def chain_state(self, start: int = 0, limit: int = 100) -> ChainState | None:
        """Read the state of the work's chain."""
        return find_chain_state(self.id, start, limit)

    @sync_only
    def cancel(self) -> list[str]:
        """Cancel the work, or the whole group if the work is its first."""
        if self.group_id == self.id:
            return cancel_group(self.id)
        existing(self.id)
        return cancel_works([self.id])

    async def aresult(self, timeout: Seconds | None = None) -> R_co:
        """See result()."""
        return cast(R_co, await self._await(self._own_result, timeout))

    async def agroup(self, timeout: Seconds | None = None) -> G_co | None:
        """See group()."""
        return cast("G_co | None", await self._await(self._group_value, timeout))

    async def achain(self, timeout: Seconds | None = None) -> C_co:
        """See chain()."""
        return cast(C_co, await self._await(self._chain_result, timeout))

    def _wait(self, look: Callable[[WorkRow], Any], timeout: Seconds | None) -> Any:
        """Read until there is an answer: when notified of an end, and at growing intervals."""
        ended = threading.Event()
        with Wait(ended.set) as wait:
            for pause in wait.pauses(timeout):
                ended.clear()
                answer = self._read(look, wait)
                if answer is not PENDING:
                    return answer
                if pause is None:
                    break
                if ended.wait(pause):
                    time.sleep(max(0.0, min(wait.gap(), pause)))
        raise too_late(self.id, timeout)

    async def _await(self, look: Callable[[WorkRow], Any], timeout: Seconds | None) -> Any:
        """See _wait(); between two reads the event loop is free."""
        ended = AsyncEvent()
        with Wait(ended.set) as wait:
            for pause in wait.pauses(timeout):
                ended.clear()
                answer = await sync_to_async(self._read)(look, wait)
                if answer is not PENDING:
                    return answer
                if pause is None:
                    break
                if await ended.wait(pause):
                    await asyncio.sleep(max(0.0, min(wait.gap(), pause)))
        raise await sync_to_async(too_late)(self.id, timeout)

    def _read(self, look: Callable[[WorkRow], Any], wait: Wait) -> Any:
        """Read once. Raises WaitInTransaction if only the caller's commit can bring the answer."""
        row = existing(self.id)
        self._is_noted = self._is_noted or note_waiting(row.group)
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
    """Return the handle of the work of this id, which need not exist. Raises InvalidWorkId."""
    return Handle(require_work_id(id))


def existing(id: str) -> WorkRow:
    """Return the row of a work, or raise WorkNotFound."""
    row = find_row(id)
    if row is None:
        raise WorkNotFound(
            f"no work has the id {id!r}; its transaction is not committed or was rolled back, "
            "or it was pruned.",
            id=id,
        )
    return row


def too_late(id: str, timeout: Seconds | None) -> WaitTimeout:
    """Return the error of a wait whose time is over, with the work's status."""
    row = existing(id)
    limit = 0.0 if timeout is None else seconds(timeout, "timeout")
    if is_terminal(row.status):
        standing = (
            f"it is {row.status}, but others of its group or chain have not ended; "
            f"manage.py ayework_graph {row.group} says which, and why"
        )
    else:
        standing = f"it is {row.status}; explain({id!r}) says why"
    return WaitTimeout(f"expected the work {id} to end within {limit:g} s: {standing}.", id=id)
