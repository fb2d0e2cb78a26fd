"""Effects, carried out after a commit: notifications, events, rechecks, the hook ``UNHANDLED_GROUP``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import connections, transaction

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.define.handles import Kind, WorkEvent, WorkState
from django_ayework.define.options import combined
from django_ayework.define.requests import WorkRequest
from django_ayework.define.types import registry
from django_ayework.errors import InvalidOption, NotEnqueued
from django_ayework.flow.events import (
    EventBatch,
    Happened,
    HappenedBatch,
    announce,
    announce_batch,
    announce_starts,
    guarded,
    has_receivers,
    report,
)
from django_ayework.flow.notify import (
    Notification,
    due_works,
    ended_works,
    revoked_works,
    sender,
    settled_groups,
)
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.flow.sending import id_sender, is_delivered
from django_ayework.flow.states import state_of
from django_ayework.models import Work
from django_ayework.rules.notifications import Due, Place
from django_ayework.rules.states import Outcome, Status
from django_ayework.store import locks
from django_ayework.store.database import clock, in_transaction, is_manual, on_commit, rows
from django_ayework.store.rows import WorkRow, find_group, rows_of

#: A later start is published this long ahead. Each worker knows by its own interval whether it would poll too
#: late.
FORESEEN = timedelta(hours=1)


#: What an event has besides its work.
NOTHING_ELSE: Mapping[str, Any] = {}


class Effects:
    """Collects the effects of a transaction; they are carried out in order once it has committed."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        #: What happened to works, and then the groups that have settled by that.
        self.batches: list[EventBatch[Any]] = []
        self.group_events: list[WorkEvent] = []
        self._is_carried_out = False

        #: Where works became due, how many, and when the first of the others will be.
        self.places: set[Place] = set()
        #: The ids of works that are delivered instead, by queue.
        self.delivered: dict[str, list[str]] = {}
        self.due_works = 0
        self.start: datetime | None = None
        #: Works, groups and chains that have ended.
        self.ended: list[str] = []
        self.after: list[Callable[[], object]] = []
        self.done_groups: list[str] = []
        #: Works taken from the workers that run them, each with the reason.
        self.revoked: dict[str, AbortReason] = {}

    def queued(self, rows: Sequence[WorkRow]) -> None:
        """Record works that were queued: new ones, or one that starts over."""
        for row in rows:
            self.awaits_worker(row)
        heard = {type for type in {row.type for row in rows} if has_receivers(Kind.QUEUED, type)}
        if heard:
            self._batch(Kind.QUEUED).items.extend(Happened(row) for row in rows if row.type in heard)

    def awaits_worker(self, row: WorkRow) -> None:
        """Record a work that workers may claim now, or later."""
        if row.status == Status.PENDING and get_settings().queues and is_delivered(row.queue, row.type):
            self.delivered.setdefault(row.queue, []).append(row.id)
        elif row.status == Status.PENDING:
            self.places.add((row.queue, row.type))
            self.due_works += 1
        elif row.status == Status.SCHEDULED and (self.start is None or row.run_at < self.start):
            self.start = row.run_at if row.run_at - self.now < FORESEEN else self.start

    def happened(
        self,
        kind: Kind,
        row: WorkRow,
        seconds: float | None = None,
        outcome: Outcome | None = None,
        extra: Mapping[str, Any] = NOTHING_ELSE,
    ) -> None:
        """Record an event of a work; see :class:`Happened`."""
        if has_receivers(kind, row.type):
            self._batch(kind).items.append(Happened(row, seconds, outcome, extra))

    def _batch(self, kind: Kind) -> HappenedBatch:
        """Return the batch that the next event of this kind belongs to."""
        last = self.batches[-1] if self.batches else None
        if isinstance(last, HappenedBatch) and last.kind is kind:
            return last
        batch = HappenedBatch(kind, self.now)
        self.batches.append(batch)
        return batch

    def group_done(self, group_id: str, value: Any) -> None:
        """Record that a group has settled."""
        self.done_groups.append(group_id)
        event = WorkEvent(kind=Kind.GROUP_DONE, group_id=group_id, at=self.now, value=value)
        self.group_events.append(event)

    def release_on_commit(self) -> None:
        """Carry everything out after the commit; a rollback (of a savepoint too) drops it."""
        notifies = self.places or self.start or self.ended or self.delivered
        events = self.batches or self.group_events
        if notifies or events or self.after or self.revoked:
            on_commit(self.carry_out)

    def carry_out(self) -> None:
        """Notify this process and others, announce events, then recheck waiters."""
        self.send_notifications()
        for revoke in revoked_works.listeners() if self.revoked else ():
            guarded(revoke, self.revoked)
        announce_starts()
        for batch in self.batches:
            announce_batch(batch)
        for event in self.group_events:
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
        due = Due(frozenset(self.places), start, self.due_works)
        if self.places or start is not None:
            due_works.publish(due)
        if self.ended:
            ended_works.publish(self.ended)
        if not in_transaction():
            sender.publish(Notification(due, self.ended, self.revoked))
            if self.delivered:
                id_sender.push(self.delivered)


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
        locks.set_if_absent(f"wait:{group_id}", "", now, now + WAITING_LIFE)
    return True


def report_all_unhandled(group_ids: Iterable[str]) -> None:
    """Call the hook for those settled groups that no caller waited for."""
    for group_id in group_ids:
        report_unhandled(group_id)


def report_unhandled(group_id: str) -> bool:
    """Call the hook for a settled group unless a caller waited for it; once across the fleet."""
    hook, now = get_settings().unhandled_group, clock.now()
    if hook is None or locks.is_set(f"wait:{group_id}", now):
        return False
    if not locks.set_if_absent(f"group-handled:{group_id}", "", now, now + HANDLED_LIFE):
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


#: Works that a message names.
NAMED = 10


def insert_after_commit(
    rows: Sequence[WorkRow], insert: Callable[[], object], passed: frozenset[str] = frozenset()
) -> None:
    """Insert these works once every transaction that is open in this thread has committed.

    The caller's rows may be in any database. A rollback of any of the transactions drops the works. Without a
    transaction they are inserted at once, and errors are raised. ``passed`` are databases that have
    committed.
    """
    alias = open_transaction(passed)
    if alias is None:
        insert()
    else:
        transaction.on_commit(partial(go_on, rows, insert, passed | {alias}), using=alias)


def go_on(rows: Sequence[WorkRow], insert: Callable[[], object], passed: frozenset[str]) -> None:
    """Go on after a commit; report an error, as Django would skip the callbacks that follow."""
    try:
        insert_after_commit(rows, insert, passed)
    except Exception as error:
        report_not_enqueued(rows, error)


def open_transaction(passed: frozenset[str]) -> str | None:
    """Return a database on which this thread is in a transaction whose commit Django will see."""
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block and not is_manual(connection) and connection.alias not in passed:
            return connection.alias
    return None


def report_not_enqueued(rows: Sequence[WorkRow], error: Exception) -> None:
    """Report works that were not inserted, so that they can be enqueued again by hand."""
    names = [f"{row.id} ({row.type})" for row in rows[:NAMED]]
    if len(rows) > NAMED:
        names.append(f"{len(rows) - NAMED} more")
    message = (
        f"not enqueued after the commit, enqueue again: {', '.join(names)}: {type(error).__name__}: {error}"
    )
    failure = NotEnqueued(message, works=[(row.id, row.type) for row in rows])
    failure.__cause__ = error
    report(failure, "commit", "works with on_commit=True were lost")


class Providers:
    """The functions that make first attempts in this process, connected at start-up without an import.

    The row of a work that skips the queue is pending from the start, as any other. A worker may claim it
    first, and claims it whenever this process cannot start it. ``held_back`` leaves these works to workers,
    as tests do.
    """

    intake: Callable[[Sequence[WorkRow]], object] | None = None
    held_back = False


providers = Providers()


def require_immediate_start(request: WorkRequest[Any, Any], given: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a work with ``skip_queue=True`` that cannot start at once in this process."""
    work_type = registry.find(request.type)
    if work_type is None or registry.batch(request.type) is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works that are run one by one, got {request.type!r}, whose works "
            "wait for others; leave skip_queue out.",
            code="skip-queue-refused",
        )
    if work_type.settings.doer is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works without a doer= of their own, got {request.type!r}: its "
            "doer limits works in workers only; leave one of the two out.",
            code="skip-queue-refused",
        )
    options: dict[str, Any] = {**combined(given, request.options)}
    for name in ("run_at", "delay", "blockers"):
        if options.get(name):
            raise InvalidOption(
                f"expected no {name}= for a work that skips the queue, as that starts at once, got: "
                f"{name}={options[name]!r} for {request.type!r}; leave it out, or enqueue the work with "
                "skip_queue=False.",
                code="skip-queue-refused",
            )


def start_after_commit(works: Sequence[WorkRow]) -> None:
    """Make the first attempts of these works in this process once they are committed.

    A rollback, of a savepoint too, drops them.
    """
    if works:
        on_commit(partial(hand_over, works))


def hand_over(works: Sequence[WorkRow]) -> None:
    """Start works that are committed; in a test, where ``drain`` calls this, they are not."""
    if providers.intake is not None and not providers.held_back and not in_transaction():
        guarded(providers.intake, works)
