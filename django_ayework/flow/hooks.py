"""Hooks and receivers: calling them, reporting their errors, the log context, ``UNHANDLED_GROUP``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import Error
from django.utils.module_loading import import_string

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.handles import WorkState
from django_ayework.define.types import AnyWorkType, registry
from django_ayework.documentation import logged, type_error
from django_ayework.doers.base import BacklogPolicy
from django_ayework.errors import ends_process
from django_ayework.flow.payloads import arguments_for_people, codec_of, decode_value
from django_ayework.flow.states import state_of
from django_ayework.logs import AttemptFacts, fields_of, logger, printed_errors
from django_ayework.models import Work
from django_ayework.signals import RobustSignal
from django_ayework.store import entries
from django_ayework.store.connections import project_code
from django_ayework.store.database import clock, in_transaction, is_held, rows
from django_ayework.store.rows import WorkRow, find_group, rows_of


def send(signal: RobustSignal, of: str, sender: object, **facts: Any) -> None:
    """Send a signal; errors of its receivers are reported, not raised. ``of`` says what of."""
    with project_code():
        responses = signal.send_robust(sender=sender, **facts)
    for receiver, response in responses:
        if isinstance(response, BaseException):
            report(response, "hook", f"the receiver {receiver!r} {of} raised")


def guarded(hook: Callable[..., Any] | str, *args: Any) -> Any:
    """Call a hook, given as a callable or as a dotted path; report an exception and return None.

    Raises an exception that ends the process.
    """
    try:
        with project_code():
            return resolved_hook(hook)(*args)
    except BaseException as error:  # SystemExit too: the thread goes on
        report(error, "hook", f"the hook {hook!r} raised")
        if ends_process(error):
            raise
        return None


def report(error: BaseException, phase: str, message: str, brief: bool = False) -> None:
    """Log an error, send ``error_reported`` and call ``ON_ERROR``; let through only what ends the process.

    ``brief`` leaves out the traceback of an error that was logged before and lasts. A lock that another
    transaction holds is no fault of the engine's, whose traceback says nothing about it.
    """
    if phase != "hook" and isinstance(error, Error) and is_held(error):
        logger.error(
            "%s (%s phase): another transaction holds a lock: %s %s",
            message, phase, error, logged("lock-held"),
        )  # fmt: skip
    else:
        logger.error(
            "%s (%s phase): %s %s", message, phase, error, logged(f"{phase}-phase"),
            exc_info=None if brief else error,
        )  # fmt: skip
    with printed_errors(), project_code():
        signals.error_reported.send_robust(sender=None, error=error, phase=phase)
    on_error = get_settings().on_error
    if on_error is not None:
        try:
            with project_code():
                on_error(error, phase)
        except BaseException as raised:
            logger.exception("ON_ERROR itself raised. %s", logged("error-not-reported"))
            if ends_process(raised):
                raise


def resolved_hook(hook: Any) -> Callable[..., Any]:
    """Return a hook given as a callable or as a dotted path."""
    return import_string(hook) if isinstance(hook, str) else hook  # type: ignore[no-any-return]


def answer_of(hook: Any, *args: Any) -> Any:
    """Return what a hook answers, which is plain or async."""
    ask = resolved_hook(hook)
    return (async_to_sync(ask) if iscoroutinefunction(ask) else ask)(*args)


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


def fields_about(row: WorkRow | None) -> dict[str, str | int | None]:
    """Return the attributes of a record of the engine's about a work; None for each without a work."""
    return fields_of(row and AttemptFacts(row.id, row.type, row.attempt, row.group))


def attempt_facts(row: WorkRow, work_type: AnyWorkType, arguments: Mapping[str, Any]) -> AttemptFacts:
    """Return what the records of an attempt say; the type's own hook wins over that of the settings.

    A hook that fails is reported and adds nothing. What the type redacts, hooks are not shown.
    """
    context: dict[str, Any] = {}
    for hook in log_hooks(work_type):
        shown = dict(arguments_for_people(work_type, arguments))
        context.update(context_from(hook, shown, row.type))
    return AttemptFacts(row.id, row.type, row.attempt, row.group, context)


def context_from(hook: Any, input: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """Return what one hook adds to the context; nothing when it fails, which is reported."""
    try:
        with project_code():
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


# Groups that nobody waits for

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


def report_unhandled(group_id: str) -> None:
    """Call the hook for a settled group unless a caller waited for it; once across the fleet."""
    hook, now = get_settings().unhandled_group, clock.now()
    if hook is None or entries.is_set(f"wait:{group_id}", now):
        return
    group = settled_group(group_id)  # first: if this fails, the group can be tried again
    if entries.set_if_absent(f"group-handled:{group_id}", "", now, now + HANDLED_LIFE):
        guarded(hook, group)


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
