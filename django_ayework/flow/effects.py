"""Effects, carried out after a commit: notifications, events, rechecks, the hook ``UNHANDLED_GROUP``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.define.events import Kind, WorkEvent
from django_ayework.define.handles import WorkState
from django_ayework.define.registry import registry
from django_ayework.flow.events import announce, group_done_has_receivers, guarded, has_receivers, work_event
from django_ayework.flow.notify import (
    Notification,
    due_works,
    ended_works,
    revoked_works,
    sender,
    settled_groups,
)
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.flow.states import state_of
from django_ayework.models import Work
from django_ayework.rules.notifications import Due, Place
from django_ayework.rules.states import Status
from django_ayework.store import entries
from django_ayework.store.clock import clock
from django_ayework.store.database import in_transaction, on_commit, rows
from django_ayework.store.groups import find_group
from django_ayework.store.rows import WorkRow, rows_of

#: A later start is published this long ahead. Each worker knows by its own interval whether it would poll too
#: late.
FORESEEN = timedelta(hours=1)


class Effects:
    """Collects the effects of a transaction; they are carried out in order once it has committed."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.events: list[WorkEvent] = []
        self._is_carried_out = False
        self._receivers: dict[tuple[Kind, str], bool] = {}
        #: All workers are to poll, as the works that became due, or may be claimed, cannot be named.
        self.wakes = False
        #: Where works became due, how many, and when the first of the others will be.
        self.places: set[Place] = set()
        self.due_works = 0
        self.start: datetime | None = None
        #: Works, groups and chains that have ended.
        self.ended: list[str] = []
        self.after: list[Callable[[], object]] = []
        self.done_groups: list[str] = []
        #: Works taken from the workers that run them, each with the reason.
        self.revoked: dict[str, AbortReason] = {}

    def have_receivers(self, kind: Kind, type: str) -> bool:
        """Tell whether such an event has receivers, or the group that may settle because of it."""
        known = self._receivers.get((kind, type))
        if known is None:
            known = self._receivers[kind, type] = has_receivers(kind, type) or group_done_has_receivers()
        return known

    def queued(self, row: WorkRow) -> None:
        """Record a work that was queued: a new one, or one that starts over."""
        self.awaits_worker(row)
        self.happened(Kind.QUEUED, row)

    def awaits_worker(self, row: WorkRow) -> None:
        """Record a work that workers may claim now, or later."""
        if row.status == Status.PENDING:
            self.places.add((row.queue, row.type))
            self.due_works += 1
        elif row.status == Status.SCHEDULED and (self.start is None or row.run_at < self.start):
            self.start = row.run_at if row.run_at - self.now < FORESEEN else self.start

    def happened(self, kind: Kind, row: WorkRow, **extra: Any) -> None:
        """Record an event of a work."""
        if has_receivers(kind, row.type):
            self.events.append(work_event(kind, row, self.now, **extra))

    def group_done(self, group_id: str, value: Any) -> None:
        """Record that a group has settled."""
        self.done_groups.append(group_id)
        self.events.append(WorkEvent(kind=Kind.GROUP_DONE, group_id=group_id, at=self.now, value=value))

    def release_on_commit(self) -> None:
        """Carry everything out after the commit; a rollback (of a savepoint too) drops it."""
        notifies = self.wakes or self.places or self.start or self.ended
        if notifies or self.events or self.after or self.revoked:
            on_commit(self.carry_out)

    def carry_out(self) -> None:
        """Notify this process and others, announce events, then recheck waiters."""
        self.send_notifications()
        for revoke in revoked_works.listeners() if self.revoked else ():
            guarded(revoke, self.revoked)
        for event in self.events:
            announce(event)
        for listener in settled_groups.listeners() if self.done_groups else ():
            guarded(listener, self.done_groups)
        for effect in self.after:
            guarded(effect)

    def carry_out_once(self) -> None:
        """Carry out the effects of a commit that got no answer, unless that was done."""
        if not self._is_carried_out:
            self._is_carried_out = True
            self.carry_out()

    def send_notifications(self) -> None:
        """Notify workers and waiting callers; in a test, where ``drain`` calls this, nothing is committed."""
        start = None if self.start is None else self.start.timestamp()
        due = Due(None if self.wakes else frozenset(self.places), start, self.due_works)
        if due:
            due_works.publish(due)
        ended_works.publish(self.ended)
        if not in_transaction():
            sender.publish(Notification(due, self.ended, self.revoked))


WAITING_LIFE = timedelta(hours=1)
HANDLED_LIFE = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class SettledGroup:
    """The argument of the hook: the group's value (None without a contribution) and its works."""

    group_id: str
    value: Any
    states: tuple[WorkState, ...]


def note_waiting(group_id: str) -> bool:
    """Note that a caller waits for this group, if there is a hook; return whether that is done.

    A note made within a transaction would not be seen in time, so it is left for later.
    """
    if in_transaction():
        return False
    if get_settings().unhandled_group is not None:
        now = clock.now()
        entries.set_if_absent(f"wait:{group_id}", "", now, now + WAITING_LIFE)
    return True


def report_all_unhandled(group_ids: Iterable[str]) -> None:
    """Call the hook for those settled groups that no caller waited for."""
    for group_id in group_ids:
        report_unhandled(group_id)


def report_unhandled(group_id: str) -> bool:
    """Call the hook for a settled group unless a caller waited for it; once across the fleet."""
    hook, now = get_settings().unhandled_group, clock.now()
    if hook is None or entries.is_set(f"wait:{group_id}", now):
        return False
    if not entries.set_if_absent(f"group-handled:{group_id}", "", now, now + HANDLED_LIFE):
        return False
    guarded(hook, settled_group(group_id))
    return True


def settled_group(group_id: str) -> SettledGroup:
    """Read a group with its works; a work that is alone is its own group."""
    group = find_group(group_id)
    members = rows(Work).filter(group_id=group_id) if group else rows(Work).filter(id=group_id)
    works = rows_of(members.order_by("id"))
    if group is not None:
        value = decode_value(group.value, get_settings().codec)
    else:
        value = decode_value(works[0].result, codec_of(registry.find(works[0].type))) if works else None
    return SettledGroup(group_id, value, tuple(state_of(row) for row in works))
