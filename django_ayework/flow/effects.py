"""What waits for the commit: events, wake-ups, rechecks, unhandled groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.define.events import Kind, WorkEvent
from django_ayework.define.handles import WorkState
from django_ayework.define.registry import registry
from django_ayework.flow.events import announce, group_done_has_receivers, guarded, has_receivers, work_event
from django_ayework.flow.notify import notify_due, sender, waiters
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

# --- effects ---
# What waits for the commit: events, wake-ups, second looks.

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

    def have_receivers(self, kind: Kind, type: str) -> bool:
        """Tell whether anybody is told of such an end, or of the group that it may settle."""
        heard = self._heard.get((kind, type))
        if heard is None:
            heard = self._heard[kind, type] = has_receivers(kind, type) or group_done_has_receivers()
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
        if has_receivers(kind, row.type):
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
        self.send_notifications()
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

    def send_notifications(self) -> None:
        """Wake workers and those who wait; in a test, where ``drain`` calls this, nothing is committed."""
        start = None if self.start is None else self.start.timestamp()
        due = Due(None if self.wakes else frozenset(self.places), start, self.due_works)
        if due:
            notify_due(due)
        waiters.tell(self.ended)
        if not in_transaction():
            sender.put(due, self.ended, self.revoked)


def tell_at_once(due: Due) -> None:
    """Wake workers for works that were committed by themselves, of which nobody is to hear anything else."""
    notify_due(due)
    sender.put(due)


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

# --- orphans ---
# Groups that settled and nobody waited for: the hook ``UNHANDLED_GROUP``.

WAITING_LIFE = timedelta(hours=1)
HANDLED_LIFE = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class SettledGroup:
    """What the hook is given: the group's value (None if nobody contributed) and its works."""

    group_id: str
    value: Any
    states: tuple[WorkState, ...]


def note_waiting(group_id: str) -> bool:
    """Note that somebody waits for this group, if the hook wants to know; return whether that is done.

    A note made within a transaction would not be seen in time, so there it is left for later.
    """
    if in_transaction():
        return False
    if get_settings().unhandled_group is not None:
        now = clock.now()
        entries.set_if_absent(f"wait:{group_id}", "", now, now + WAITING_LIFE)
    return True


def report_all_unhandled(group_ids: Iterable[str]) -> None:
    """Call the hook for those settled groups that nobody waited for."""
    for group_id in group_ids:
        report_unhandled(group_id)


def report_unhandled(group_id: str) -> bool:
    """Call the hook for a settled group unless somebody waited for it; once across the fleet."""
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
