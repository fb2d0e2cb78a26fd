"""What waits for the commit: events, wake-ups, second looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.db import transaction

from django_ayework.define.events import Kind, WorkEvent
from django_ayework.define.signal import AbortReason
from django_ayework.flow.events import announce, guarded, is_heard, work_event
from django_ayework.store.database import alias
from django_ayework.store.rows import WorkRow


class Effects:
    """Collects what a transaction brings about; carried out in order once it has committed."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.events: list[WorkEvent] = []
        self.wakes = False
        self.after: list[Callable[[], object]] = []
        self.done_groups: list[str] = []
        #: Works taken from whoever runs them, each with the reason.
        self.revoked: dict[str, AbortReason] = {}

    def happened(self, kind: Kind, row: WorkRow, **extra: Any) -> None:
        """Note an event of a work."""
        if is_heard(kind, row.type):
            self.events.append(work_event(kind, row, self.now, **extra))

    def group_done(self, group_id: str, value: Any) -> None:
        """Note that a group has settled."""
        self.done_groups.append(group_id)
        self.events.append(WorkEvent(kind=Kind.GROUP_DONE, group_id=group_id, at=self.now, value=value))

    def release_on_commit(self) -> None:
        """Carry everything out after the commit; a rollback (of a savepoint too) drops it."""
        if self.events or self.wakes or self.after or self.revoked:
            transaction.on_commit(self.carry_out, using=alias())

    def carry_out(self) -> None:
        """Wake workers of this process, tell whoever listens, then look again where needed."""
        if self.wakes:
            wake_workers()
        for revocation_listener in list(_revocation_listeners) if self.revoked else ():
            guarded(revocation_listener, self.revoked)
        for event in self.events:
            announce(event)
        for listener in list(_group_listeners) if self.done_groups else ():
            guarded(listener, self.done_groups)
        for effect in self.after:
            guarded(effect)


_revocation_listeners: set[Callable[[dict[str, AbortReason]], object]] = set()


def add_revocation_listener(listener: Callable[[dict[str, AbortReason]], object]) -> None:
    """Let this be called with works that are taken, by this process, from whoever runs them."""
    _revocation_listeners.add(listener)


def remove_revocation_listener(listener: Callable[[dict[str, AbortReason]], object]) -> None:
    """Forget the listener."""
    _revocation_listeners.discard(listener)


_group_listeners: set[Callable[[list[str]], object]] = set()


def add_group_listener(listener: Callable[[list[str]], object]) -> None:
    """Let this be called with the ids of groups that settle through this process, if anybody is to know."""
    _group_listeners.add(listener)


def remove_group_listener(listener: Callable[[list[str]], object]) -> None:
    """Forget the listener."""
    _group_listeners.discard(listener)


_sleepers: set[threading.Event] = set()


def add_sleeper(event: threading.Event) -> None:
    """Let this event be set whenever works become due in this process."""
    _sleepers.add(event)


def remove_sleeper(event: threading.Event) -> None:
    """Forget the event."""
    _sleepers.discard(event)


def wake_workers(sleepers: Iterable[threading.Event] | None = None) -> None:
    """Wake the workers of this process; others notice at their next poll."""
    for event in list(_sleepers if sleepers is None else sleepers):
        event.set()
