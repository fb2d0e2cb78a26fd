"""Looking at what is queued."""

from __future__ import annotations

from typing import Any

from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.errors import NotDecodable
from django_ayework.flow.options import decode_options
from django_ayework.flow.payloads import codec_of, decode_input
from django_ayework.flow.redaction import arguments_for_people, input_for_people
from django_ayework.flow.states import WorkState, state_of
from django_ayework.models import Work
from django_ayework.store.database import rows
from django_ayework.store.rows import WorkRow, rows_of
from django_ayework.testing.draining import run_commit_callbacks


def enqueued(type: AnyWorkType | str | None = None, **input: Any) -> list[WorkState]:
    """Return the works in the database, whatever their status, the oldest first.

    ``type`` (a type or its name) and ``input`` narrow it down; of the input only what is named must match.
    """
    return [state_of(row) for row in matching(type, input)]


def assert_enqueued(type: AnyWorkType | str | None = None, **input: Any) -> WorkState:
    """Assert that such a work was queued; return the newest."""
    found = enqueued(type, **input)
    if not found:
        raise AssertionError(f"expected a work {described(type, input)} to be queued; {what_there_is()}")
    return found[-1]


def assert_not_enqueued(type: AnyWorkType | str | None = None, **input: Any) -> None:
    """Assert that no such work was queued."""
    found = enqueued(type, **input)
    if found:
        raise AssertionError(
            f"expected no work {described(type, input)} to be queued, but there are {len(found)}: "
            f"{', '.join(state.id for state in found[:5])}."
        )


def matching(type: AnyWorkType | str | None, input: dict[str, Any]) -> list[WorkRow]:
    """Return the rows of a type whose input has these values."""
    run_commit_callbacks()
    works = rows(Work).order_by("queued_at", "id")
    if type is not None:
        works = works.filter(type=type if isinstance(type, str) else type.name)
    return [row for row in rows_of(works) if not input or has_input(row, input)]


def has_input(row: WorkRow, input: dict[str, Any]) -> bool:
    """Tell whether a row's stored input has these values."""
    try:
        stored = decode_input(row.input, codec_of(registry.find(row.type)))
    except NotDecodable:
        return False
    return all(name in stored and stored[name] == value for name, value in input.items())


def described(type: AnyWorkType | str | None, input: dict[str, Any]) -> str:
    """Return what was looked for, as a call."""
    name = "" if type is None else type if isinstance(type, str) else type.name
    shown = arguments_for_people(registry.find(name), input)
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in shown.items())})"


def what_there_is() -> str:
    """Return what is queued instead."""
    first = rows_of(rows(Work).order_by("queued_at", "id")[:10])
    there = [f"{row.type} {shown_input(row)}" for row in first]
    return f"there is: {'; '.join(there)}." if there else "nothing is."


def shown_input(row: WorkRow) -> str:
    """Return the input of a work as a message may show it."""
    return input_for_people(row.type, row.input, decode_options(row.options).redact)
