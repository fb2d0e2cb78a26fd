"""What happens in a transaction, and the effects after its commit: events, notifications, rechecks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.define.handles import Kind, WorkEvent
from django_ayework.define.types import registry
from django_ayework.flow.hooks import guarded, send
from django_ayework.flow.notify import (
    Notification,
    due_works,
    ended_works,
    revoked_works,
    sender,
    settled_groups,
)
from django_ayework.flow.sending import id_sender, is_pushed
from django_ayework.flow.states import WaitingState, looked_up, state_of
from django_ayework.rules.notifications import Due, Place
from django_ayework.rules.states import Outcome, Status
from django_ayework.signals import RobustSignal
from django_ayework.store.database import clock, in_transaction, on_commit
from django_ayework.store.rows import WorkRow

SIGNALS: dict[Kind, RobustSignal] = {
    Kind.QUEUED: signals.work_queued,
    Kind.STARTED: signals.work_started,
    Kind.DEFERRED: signals.work_deferred,
    Kind.UNBLOCKED: signals.work_unblocked,
    Kind.SUCCEEDED: signals.work_succeeded,
    Kind.FAILED: signals.work_failed,
    Kind.EXPIRED: signals.work_expired,
    Kind.CANCELLED: signals.work_cancelled,
    Kind.GROUP_DONE: signals.group_done,
}


class EventItem(Protocol):
    """An event in a batch."""

    @property
    def row(self) -> WorkRow:
        """The work, as the engine knows it at the event; of a success, as it was claimed."""
        ...

    @property
    def seconds(self) -> float | None:
        """How long the handler ran, where an attempt has ended that ran; else None."""
        ...


class Happened(NamedTuple):
    """An event of a work, before anyone has asked for its state."""

    row: WorkRow
    seconds: float | None = None
    outcome: Outcome | None = None  # how the attempt ended, if one did that did not succeed
    extra: Mapping[str, Any] = {}  # never changed


Item = TypeVar("Item", bound=EventItem)


@dataclass(frozen=True, slots=True)
class EventBatch(Generic[Item]):
    """Events of one kind that are announced together, in order.

    A settlement may end two thousand works. A receiver of ``batch_announced`` that counts reads ``items``;
    iteration makes the event of each, which costs more than to run a small work.
    """

    kind: Kind
    at: datetime
    items: Sequence[Item]

    def __iter__(self) -> Iterator[WorkEvent]:
        return map(self.event_of, self.items)

    def event_of(self, item: Item) -> WorkEvent:
        """Return an item as an event with the state of its work."""
        return work_event(self.kind, item.row, self.at)


@dataclass(frozen=True, slots=True)
class HappenedBatch(EventBatch[Happened]):
    """Events that were recorded one by one."""

    items: list[Happened] = field(default_factory=list)

    def event_of(self, item: Happened) -> WorkEvent:
        """Return an item as an event with the state of its work."""
        return work_event(self.kind, item.row, self.at, **item.extra)


def has_receivers(kind: Kind, type: str) -> bool:
    """Tell whether an event has receivers, of batches or of its own; one without costs nothing more."""
    return bool(signals.batch_announced.receivers) or has_own_receivers(kind, type)


def has_own_receivers(kind: Kind, type: str) -> bool:
    """Tell whether a signal of this kind has receivers, or a hook hears of it."""
    work_type = registry.find(type)
    return bool(
        SIGNALS[kind].receivers
        or get_settings().on_event
        or (work_type is not None and work_type.settings.on_event)
    )


def group_done_has_receivers() -> bool:
    """Tell whether the event of a settled group has receivers."""
    settings = get_settings()
    return bool(signals.group_done.receivers or settings.on_event or settings.unhandled_group)


def work_event(kind: Kind, row: WorkRow, at: datetime, **extra: Any) -> WorkEvent:
    """Return the event of a work as its row now is."""
    return WorkEvent(kind=kind, group_id=row.group, at=at, work=state_of(row), extra=extra)


def announce_batch(batch: EventBatch[Any]) -> None:
    """Send a batch, then each of its events that has receivers of its own."""
    if signals.batch_announced.receivers:
        send(signals.batch_announced, f"of a batch of {batch.kind}", None, batch=batch)
    types = {item.row.type for item in batch.items}
    if heard := {type for type in types if has_own_receivers(batch.kind, type)}:
        for item in batch.items:
            if item.row.type in heard:
                announce(batch.event_of(item))


#: Starts of attempts that are not sent to the receivers of batches yet. One call of the receivers for each
#: start would cost more than a small work.
_started: deque[EventItem] = deque()


def announce_start(attempt: EventItem) -> None:
    """Announce that an attempt starts; :func:`announce_starts` calls the receivers of batches."""
    if signals.batch_announced.receivers:
        _started.append(attempt)
    if has_own_receivers(Kind.STARTED, attempt.row.type):
        announce(work_event(Kind.STARTED, attempt.row, clock.now()))


def announce_starts() -> None:
    """Send the attempts that have started since the last call to receivers of batches. Safe in any thread."""
    items: list[EventItem] = []
    with suppress(IndexError):
        while True:
            items.append(_started.popleft())
    if items:
        batch = EventBatch(Kind.STARTED, clock.now(), items)
        send(signals.batch_announced, f"of a batch of {batch.kind}", None, batch=batch)


def announce(event: WorkEvent) -> None:
    """Send the signal and call the hooks of the type and of the settings; errors are reported, not raised."""
    if event.work is None:
        facts: dict[str, Any] = {"group_id": event.group_id, "value": event.value}
    else:
        facts = {"work": event.work, **event.extra}
    signal, sender = SIGNALS[event.kind], event.type or ""
    if isinstance(event.work, WaitingState) and signal.is_awaited(sender):
        # Here, as an event loop cannot read it in the transaction of a test.
        guarded(looked_up, event.work)
    send(signal, f"of {event.kind}", sender, **facts)
    work_type = registry.find(event.type) if event.type else None
    hooks = (work_type.settings.on_event if work_type else None, get_settings().on_event)
    for hook in hooks:
        if hook is not None:
            guarded(hook, event)


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
        #: The ids of works that are pushed through a Queue instead, by queue.
        self.pushed: dict[str, list[str]] = {}
        self.due_works = 0
        self.start: datetime | None = None
        #: Works, groups and chains that have ended.
        self.ended: list[str] = []
        self.after: list[Callable[[], object]] = []
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
        if row.status == Status.PENDING and get_settings().queues and is_pushed(row.queue, row.type):
            self.pushed.setdefault(row.queue, []).append(row.id)
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
        event = WorkEvent(kind=Kind.GROUP_DONE, group_id=group_id, at=self.now, value=value)
        self.group_events.append(event)

    def release_on_commit(self) -> None:
        """Carry everything out after the commit; a rollback (of a savepoint too) drops it."""
        notifies = self.places or self.start or self.ended or self.pushed
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
        for listener in settled_groups.listeners() if self.group_events else ():
            guarded(listener, [event.group_id for event in self.group_events])
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
            if self.pushed:
                id_sender.push(self.pushed)
