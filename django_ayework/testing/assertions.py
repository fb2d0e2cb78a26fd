"""Assertions about queued works."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, isfunction
from typing import Any, Protocol, TypeAlias

from django.db import connections

from django_ayework.compat import commit_callbacks
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import AnyWorkType, WorkType, registry
from django_ayework.errors import NotDecodable, did_you_mean
from django_ayework.flow.enqueue import InsertAfterCommit
from django_ayework.flow.payloads import (
    arguments_for_people,
    codec_of,
    decode_input,
    decode_options,
    input_for_people,
)
from django_ayework.flow.states import WorkState, state_of
from django_ayework.models import Work
from django_ayework.rules.signatures import path_of
from django_ayework.rules.states import Status
from django_ayework.store.database import rows
from django_ayework.store.rows import WorkRow, rows_of


class TaskLike(Protocol):
    """A ``Task`` of django.tasks."""

    @property
    def func(self) -> Callable[..., Any]:
        """Its function."""
        ...


#: A type of work, its name, or the task whose calls are its works.
Named: TypeAlias = AnyWorkType | TaskLike | str


def enqueued(
    type: Named | None = None,
    *,
    status: Status | str | Iterable[Status | str] | None = None,
    **input: Any,
) -> list[WorkState]:
    """Return the states of the works in the database, the oldest first, ended ones included.

    ``type`` (a type, its name, or a task of Django), ``status`` (one or several) and ``input`` select works.
    Of the input only the values that are given must match. Raises ValueError for an unknown status, and
    TypeError for the name of an input that no work has.

    Example::

        assert enqueued(add, status="pending") == []
    """
    if input:
        require_known(type, input)
    statuses = set(Status) if status is None else known_statuses(status)
    return [state_of(row) for row in matching(type, input) if row.status in statuses]


def assert_enqueued(type: Named | None = None, **input: Any) -> WorkState:
    """Assert that a work of this type and input was queued; return the newest, which may have ended.

    Raises UnknownWorkType for an unknown type, and TypeError for the name of an input that no work has.
    """
    require_known(type, input)
    found = matching(type, input)
    if not found:
        raise AssertionError(f"expected a work {described(type, input)} to be queued; {what_there_is()}")
    return state_of(found[-1])


def assert_not_enqueued(type: Named | None = None, **input: Any) -> None:
    """Assert that no work of this type and input was queued. Ended works count, too."""
    require_known(type, input)
    found = matching(type, input)
    if found:
        raise AssertionError(
            f"expected no work {described(type, input)} to be queued, but there are {len(found)}: "
            f"{', '.join(row.id for row in found[:5])}."
        )


def require_known(type: Named | None, input: Iterable[str]) -> None:
    """Raise for a type, or the name of an input, that no work can have: an assertion on it says nothing."""
    types = list(registry) if type is None else [] if type == GATE_TYPE else [known_type(type)]
    parameters = {name: each for known in types for name, each in known.parameters.items()}
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    for name in input:
        if name not in parameters:
            nearest = did_you_mean(name, parameters)
            if type is None:
                raise TypeError(f"no type of work has an input {name!r}.{nearest}")
            inputs = f"{name_of(type)} ({', '.join(parameters) or 'it has none'})"
            raise TypeError(f"expected one of the inputs of {inputs}, got: {name!r}.{nearest}")


def known_type(type: Named) -> AnyWorkType:
    """Return a type given by itself, its name or its task; raise UnknownWorkType or TypeError otherwise."""
    if isinstance(type, str):
        return registry.get(type)
    if isinstance(type, WorkType):
        return type
    function = getattr(type, "func", None)
    found = registry.find(path_of(function)) if isfunction(function) else None
    if found is None:
        raise TypeError(f"expected a type of work or its name, as in assert_enqueued(add), got: {type!r}.")
    return found


def known_statuses(status: Status | str | Iterable[Status | str]) -> set[Status]:
    """Return one or several statuses; raise ValueError, suggesting the nearest, for an unknown one."""
    wanted = [status] if isinstance(status, str) else list(status)
    for each in wanted:
        if each not in set(Status):
            nearest = did_you_mean(str(each), map(str, Status))
            raise ValueError(f"expected status= to be one of {', '.join(Status)}, got: {each!r}.{nearest}")
    return {Status(each) for each in wanted}


def matching(type: Named | None, input: dict[str, Any]) -> list[WorkRow]:
    """Return the rows of a type whose input has these values."""
    insert_waiting()
    works = rows(Work).order_by("queued_at", "id")
    if type is not None:
        works = works.filter(type=name_of(type))
    return [row for row in rows_of(works) if not input or has_input(row, input)]


def insert_waiting() -> None:
    """Insert the works that wait for the commit; callbacks of the project go on waiting."""
    for connection in connections.all(initialized_only=True):
        for callback in commit_callbacks(connection) if connection.in_atomic_block else ():
            if isinstance(callback.run, InsertAfterCommit):
                callback.run()


def has_input(row: WorkRow, input: dict[str, Any]) -> bool:
    """Tell whether a row's stored input has these values."""
    known = registry.find(row.type)
    try:
        stored: Mapping[str, Any] = decode_input(row.input, codec_of(known))
    except NotDecodable:
        return False
    if known is not None:
        stored = known.by_parameter(stored)
    return all(name in stored and stored[name] == value for name, value in input.items())


def name_of(type: Named) -> str:
    """Return the name of a type given by itself, its name or its task."""
    return type if isinstance(type, str) else known_type(type).name


def described(type: Named | None, input: dict[str, Any]) -> str:
    """Return the expected work as a call."""
    name = "" if type is None else name_of(type)
    shown = arguments_for_people(registry.find(name), input)
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in shown.items())})"


def what_there_is() -> str:
    """Return the works that are queued instead."""
    first = rows_of(rows(Work).order_by("queued_at", "id")[:10])
    there = [f"{row.type} {shown_input(row)}" for row in first]
    return f"there is: {'; '.join(there)}." if there else "nothing is."


def shown_input(row: WorkRow) -> str:
    """Return the input of a work as a message may show it."""
    return input_for_people(row.type, row.input, decode_options(row.options).redact)
