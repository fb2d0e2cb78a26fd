"""Signals, hooks and log context: announcing what happened, after the commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.utils.module_loading import import_string

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.handles import Kind, WorkEvent
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.doers.providers import BacklogPolicy
from django_ayework.flow.payloads import arguments_for_people
from django_ayework.flow.states import WaitingState, looked_up, state_of
from django_ayework.heartbeat import project_code
from django_ayework.logs import AttemptFacts
from django_ayework.signals import RobustSignal
from django_ayework.store.rows import WorkRow

# --- events ---
# Telling signals and hooks what happened, after commit.

logger = logging.getLogger("django_ayework")


SIGNALS: dict[Kind, RobustSignal] = {
    Kind.QUEUED: signals.work_queued,
    Kind.STARTED: signals.work_started,
    Kind.DEFERRED: signals.work_deferred,
    Kind.SUCCEEDED: signals.work_succeeded,
    Kind.FAILED: signals.work_failed,
    Kind.EXPIRED: signals.work_expired,
    Kind.CANCELLED: signals.work_cancelled,
    Kind.GROUP_DONE: signals.group_done,
}


def has_receivers(kind: Kind, type: str) -> bool:
    """Tell whether anybody listens, so that a silent system pays nothing."""
    work_type = registry.find(type)
    return bool(
        SIGNALS[kind].receivers
        or get_settings().on_event
        or (work_type is not None and work_type.settings.on_event)
    )


def group_done_has_receivers() -> bool:
    """Tell whether anybody wants to know of settled groups."""
    settings = get_settings()
    return bool(signals.group_done.receivers or settings.on_event or settings.unhandled_group)


def work_event(kind: Kind, row: WorkRow, at: datetime, **extra: Any) -> WorkEvent:
    """Return the event of a work as its row now is."""
    return WorkEvent(kind=kind, group_id=row.group, at=at, work=state_of(row), extra=extra)


def announce(event: WorkEvent) -> None:
    """Tell the signal's receivers, the type's hook and the settings' hook; none of them can disturb."""
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
    for receiver, response in responses:
        if isinstance(response, BaseException):
            report(response, "hook", f"the receiver {receiver!r} of {event.kind} raised")


def guarded(hook: Callable[..., Any] | str, *args: Any) -> Any:
    """Call a hook, given as a callable or as a dotted path; report what it raises and return None."""
    try:
        with project_code():
            return resolved_hook(hook)(*args)
    except BaseException as error:  # SystemExit too: the thread goes on
        report(error, "hook", f"the hook {hook!r} raised")
        return None


def report(error: BaseException, phase: str, message: str, brief: bool = False) -> None:
    """Log an error of the engine's surroundings, and tell ``ON_ERROR``, which cannot disturb either.

    ``brief`` leaves the traceback out: it was logged before, and the trouble goes on.
    """
    logger.error("%s (%s phase): %s", message, phase, error, exc_info=None if brief else error)
    on_error = get_settings().on_error
    if on_error is not None:
        try:
            with project_code():
                on_error(error, phase)
        except BaseException:
            logger.exception("ON_ERROR itself raised.")


def resolved_hook(hook: Any) -> Callable[..., Any]:
    """Return a hook given as a callable or as a dotted path."""
    return import_string(hook) if isinstance(hook, str) else hook  # type: ignore[no-any-return]


# --- backlog ---
# Who is told of a backlog: the hook ``ON_BACKLOG``.


def backlog_policy() -> BacklogPolicy | None:
    """Return whom to tell and when, as the settings say; None when nobody is to be told."""
    settings = get_settings()
    if settings.on_backlog is None or settings.backlog_after is None:
        return None
    return BacklogPolicy(
        partial(guarded, settings.on_backlog), settings.backlog_after, settings.backlog_every
    )


# --- log context ---
# What log records say of an attempt: its facts, and what the hooks for it add.


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
        context.update(told_by(hook, shown, row.type))
    return AttemptFacts(id=row.id, type=row.type, attempt=row.attempt, group=row.group, context=context)


def told_by(hook: Any, input: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """Ask one hook."""
    try:
        told = resolved_hook(hook)(input, type)
        return {str(name): value for name, value in require_mapping(told).items()}
    except BaseException as error:
        report(error, "hook", f"the hook {hook!r} for the log context of {type} failed")
        return {}


def require_mapping(told: Any) -> Mapping[Any, Any]:
    """Return what a hook answered; nothing is an empty mapping."""
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise TypeError(f"expected log_context to answer with a mapping of names to values, got: {told!r}.")
    return told
