"""What waits for the commit: events, wake-ups, second looks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django_ayework.define.events import Kind, WorkEvent
from django_ayework.define.signal import AbortReason
from django_ayework.flow.events import announce, group_done_is_heard, guarded, is_heard, work_event
from django_ayework.flow.news.here import tell_due, waiters
from django_ayework.flow.news.outbox import outbox
from django_ayework.forking import after_fork_in_child
from django_ayework.rules.news import Due, Place
from django_ayework.rules.states import Status
from django_ayework.store.database import in_transaction, on_commit
from django_ayework.store.rows import WorkRow

#: A start is told this long ahead. Each worker knows by its own interval whether it would look too late.
FORESEEN = timedelta(hours=1)


class Effects:
    """Collects what a transaction brings about; carried out in order once it has committed."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.events: list[WorkEvent] = []
        self._is_carried_out = False
        self._heard: dict[tuple[Kind, str], bool] = {}
        #: Workers are to look, as what became due, or may be claimed, cannot be named.
        self.wakes = False
        #: Where works became due, how many, and when the first of others will be.
        self.places: set[Place] = set()
        self.due_works = 0
        self.start: datetime | None = None
        #: Works, groups and chains that have ended.
        self.ended: list[str] = []
        self.after: list[Callable[[], object]] = []
        self.done_groups: list[str] = []
        #: Works taken from whoever runs them, each with the reason.
        self.revoked: dict[str, AbortReason] = {}

    def are_heard(self, kind: Kind, type: str) -> bool:
        """Tell whether anybody is told of such an end, or of the group that it may settle."""
        heard = self._heard.get((kind, type))
        if heard is None:
            heard = self._heard[kind, type] = is_heard(kind, type) or group_done_is_heard()
        return heard

    def queued(self, row: WorkRow) -> None:
        """Note a work that was queued: a new one, or one that starts over."""
        self.awaits_worker(row)
        self.happened(Kind.QUEUED, row)

    def awaits_worker(self, row: WorkRow) -> None:
        """Note a work that workers may claim now, or later."""
        if row.status == Status.PENDING:
            self.places.add((row.queue, row.type))
            self.due_works += 1
        elif row.status == Status.SCHEDULED and (self.start is None or row.run_at < self.start):
            self.start = row.run_at if row.run_at - self.now < FORESEEN else self.start

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
        news = self.wakes or self.places or self.start or self.ended
        if news or self.events or self.after or self.revoked:
            on_commit(self.carry_out)

    def carry_out(self) -> None:
        """Wake who waits, here and elsewhere, tell whoever listens, then look again where needed."""
        self.spread_news()
        for revocation_listener in list(_revocation_listeners) if self.revoked else ():
            guarded(revocation_listener, self.revoked)
        for event in self.events:
            announce(event)
        for listener in list(_group_listeners) if self.done_groups else ():
            guarded(listener, self.done_groups)
        for effect in self.after:
            guarded(effect)

    def carry_out_once(self) -> None:
        """Carry out what a commit brought about that got no answer, unless that was done."""
        if not self._is_carried_out:
            self._is_carried_out = True
            self.carry_out()

    def spread_news(self) -> None:
        """Wake workers and those who wait; in a test, where ``drain`` calls this, nothing is committed."""
        start = None if self.start is None else self.start.timestamp()
        due = Due(None if self.wakes else frozenset(self.places), start, self.due_works)
        if due:
            tell_due(due)
        waiters.tell(self.ended)
        if not in_transaction():
            outbox.put(due, self.ended, self.revoked)


def tell_at_once(due: Due) -> None:
    """Wake workers for works that were committed by themselves, of which nobody is to hear anything else."""
    tell_due(due)
    outbox.put(due)


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


after_fork_in_child(_revocation_listeners.clear)  # those who listen are threads of the parent
after_fork_in_child(_group_listeners.clear)
