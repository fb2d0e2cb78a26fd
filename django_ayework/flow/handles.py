"""Handles: follow a work from anywhere, wait for its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db.backends.base.base import BaseDatabaseWrapper

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
from django_ayework.flow.cancel import cancel_group, cancel_works
from django_ayework.flow.chains import find_chain_state
from django_ayework.flow.orphans import note_waiting
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.flow.states import find_state
from django_ayework.flow.twins import twinned
from django_ayework.flow.waiting import AsyncBell, Wait
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.chains import last_step
from django_ayework.store.database import connection, in_transaction, is_manual, on_commit
from django_ayework.store.groups import find_group
from django_ayework.store.rows import WorkRow, find_row

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
