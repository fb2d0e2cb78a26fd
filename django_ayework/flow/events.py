"""Signals, hooks and log context: announcing what happened, after the commit."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from django.utils.module_loading import import_string

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.handles import Kind, WorkEvent
from django_ayework.define.types import AnyWorkType, registry
from django_ayework.documentation import logged, type_error
from django_ayework.doers.base import BacklogPolicy
from django_ayework.flow.payloads import arguments_for_people
from django_ayework.flow.states import WaitingState, looked_up, state_of
from django_ayework.heartbeat import project_code
from django_ayework.logs import AttemptFacts
from django_ayework.rules.states import Outcome
from django_ayework.signals import RobustSignal
from django_ayework.store.database import clock
from django_ayework.store.rows import WorkRow

logger = logging.getLogger("django_ayework")

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
        send_batch(batch)
    types = {item.row.type for item in batch.items}
    if heard := {type for type in types if has_own_receivers(batch.kind, type)}:
        for item in batch.items:
            if item.row.type in heard:
                announce(batch.event_of(item))


def send_batch(batch: EventBatch[Any]) -> None:
    """Send a batch to the receivers of batches; errors are reported, not raised."""
    with project_code():
        responses = signals.batch_announced.send_robust(sender=None, batch=batch)
    report_raised(responses, f"of a batch of {batch.kind}")


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
        send_batch(EventBatch(Kind.STARTED, clock.now(), items))


def announce_refused(row: WorkRow, cause: str) -> None:
    """Announce that the outcome of an attempt came too late: another process had moved the work before."""
    with project_code():
        responses = signals.outcome_refused.send_robust(sender=row.type, work_id=row.id, cause=cause)
    report_raised(responses, "of a refused outcome")


def announce(event: WorkEvent) -> None:
    """Send the signal and call the hooks of the type and of the settings; errors are reported, not raised."""
    announce_signal(event)
    work_type = registry.find(event.type) if event.type else None
    hooks = (work_type.settings.on_event if work_type else None, get_settings().on_event)
    for hook in hooks:
        if hook is not None:
            guarded(hook, event)


def announce_signal(event: WorkEvent) -> None:
    """Send the signal of this kind."""
    if event.work is None:
        facts: dict[str, Any] = {"group_id": event.group_id, "value": event.value}
    else:
        facts = {"work": event.work, **event.extra}
    signal, sender = SIGNALS[event.kind], event.type or ""
    if isinstance(event.work, WaitingState) and signal.is_awaited(sender):
        looked_up(event.work)  # here, as it cannot be read in the transaction of a test by an event loop
    with project_code():
        responses = signal.send_robust(sender=sender, **facts)
    report_raised(responses, f"of {event.kind}")


def report_raised(responses: Sequence[tuple[Any, Any]], of: str) -> None:
    """Report what receivers raised."""
    for receiver, response in responses:
        if isinstance(response, BaseException):
            report(response, "hook", f"the receiver {receiver!r} {of} raised")


def guarded(hook: Callable[..., Any] | str, *args: Any) -> Any:
    """Call a hook, given as a callable or as a dotted path; report an exception and return None."""
    try:
        with project_code():
            return resolved_hook(hook)(*args)
    except BaseException as error:  # SystemExit too: the thread goes on
        report(error, "hook", f"the hook {hook!r} raised")
        return None


def report(error: BaseException, phase: str, message: str, brief: bool = False) -> None:
    """Log an error, send ``error_reported`` and call ``ON_ERROR``; nothing that these raise gets through.

    ``brief`` leaves out the traceback of an error that was logged before and lasts.
    """
    logger.error(
        "%s (%s phase): %s %s", message, phase, error, logged(f"{phase}-phase"),
        exc_info=None if brief else error,
    )  # fmt: skip
    with project_code():
        signals.error_reported.send_robust(sender=None, error=error, phase=phase)
    on_error = get_settings().on_error
    if on_error is not None:
        try:
            with project_code():
                on_error(error, phase)
        except BaseException:
            logger.exception("ON_ERROR itself raised. %s", logged("error-not-reported"))


def resolved_hook(hook: Any) -> Callable[..., Any]:
    """Return a hook given as a callable or as a dotted path."""
    return import_string(hook) if isinstance(hook, str) else hook  # type: ignore[no-any-return]


def backlog_policy() -> BacklogPolicy | None:
    """Return when to call the hook ``ON_BACKLOG``, as the settings say; None for never."""
    settings = get_settings()
    if settings.on_backlog is None or settings.backlog_after is None:
        return None
    return BacklogPolicy(
        partial(guarded, settings.on_backlog), settings.backlog_after, settings.backlog_every
    )


def log_hooks(work_type: AnyWorkType) -> list[Any]:
    """Return the hooks that add to the context: the settings', then the type's own."""
    general, own = get_settings().log_context, work_type.settings.log_context
    return [] if general is own is None else [hook for hook in (general, own) if hook is not None]


def attempt_facts(row: WorkRow, work_type: AnyWorkType, arguments: Mapping[str, Any]) -> AttemptFacts:
    """Return what the records of an attempt say; the type's own hook wins over that of the settings.

    A hook that fails is reported and adds nothing. What the type redacts, hooks are not shown.
    """
    if not (hooks := log_hooks(work_type)):
        return AttemptFacts(row.id, row.type, row.attempt, row.group)
    context: dict[str, Any] = {}
    for hook in hooks:
        shown = dict(arguments_for_people(work_type, arguments))
        context.update(context_from(hook, shown, row.type))
    return AttemptFacts(id=row.id, type=row.type, attempt=row.attempt, group=row.group, context=context)


def context_from(hook: Any, input: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """Return what one hook adds to the context; nothing when it fails, which is reported."""
    try:
        added = resolved_hook(hook)(input, type)
        if added is None:
            return {}
        if not isinstance(added, Mapping):
            raise type_error(
                "log-context-answer",
                f"expected log_context to answer with a mapping of names to values, got: {added!r}.",
            )
        return {str(name): value for name, value in added.items()}
    except BaseException as error:
        report(error, "hook", f"the hook {hook!r} for the log context of {type} failed")
        return {}
