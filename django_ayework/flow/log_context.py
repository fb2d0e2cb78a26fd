"""What log records say of an attempt: its facts, and what the hooks for it add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.registry import AnyWorkType
from django_ayework.flow.events import report, resolved_hook
from django_ayework.flow.redaction import arguments_for_people
from django_ayework.logs import AttemptFacts
from django_ayework.store.rows import WorkRow


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
