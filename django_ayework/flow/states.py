"""The state of a work and of a chain, as users see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from django_ayework.define.handles import ChainState
from django_ayework.define.handles import WorkState as WorkState
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.errors import InvalidOption
from django_ayework.flow.payloads import StoredOptions, codec_of, decode_input, decode_options, decode_value
from django_ayework.models import Work
from django_ayework.rules.codec import Codec
from django_ayework.rules.retry import is_whole
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.connections import read
from django_ayework.store.dependencies import watched_by, watched_by_all
from django_ayework.store.rows import WorkRow, find_row, last_step, steps_from

# The state of a work, as users see it.


def find_state(id: str) -> WorkState | None:
    """Read a work's state, or None when no work has this id."""
    row = find_row(id)
    return None if row is None else looked_up(state_of(row))


class WaitingState(WorkState):
    """The state of a work that waits, or has waited, for others, which are read when they are asked for."""

    __slots__ = ("_row",)
    _row: WorkRow

    def __init__(self, state: WorkState, row: WorkRow) -> None:
        for each in fields(WorkState):
            if each.name not in WAITED_FOR:
                object.__setattr__(self, each.name, getattr(state, each.name))
        object.__setattr__(self, "_row", row)

    def __getattr__(self, name: str) -> Any:
        """Read an attribute when it is first used."""
        if name not in WAITED_FOR:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = read(partial(WAITED_FOR[name], self._row))
        object.__setattr__(self, name, found)
        return found

    def __eq__(self, other: object) -> bool:
        """Compare with any state."""
        if not isinstance(other, WorkState):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(WorkState))

    __hash__ = WorkState.__hash__


def looked_up(state: WorkState) -> WorkState:
    """Read now what the work waits for, or has waited for."""
    _ = state.dependents, state.blockers
    return state


def dependents_of(row: WorkRow) -> tuple[str, ...]:
    """Return the ids that the gate which released this work had waited for."""
    gate = gate_of(row, decode_options(row.options))
    return () if gate is None else tuple(id for id, _ in watched_by(gate))


def gate_of(row: WorkRow | Work, options: StoredOptions) -> str | None:
    """Return the gate that released this work; for one that runs again, that of the work it repeats."""
    return (options.released_by or row.parent_id) if options.released else None


def blocker_ids_of(row: WorkRow) -> tuple[str, ...]:
    """Return the ids of the chains that block, or had blocked, this work."""
    blocked = decode_options(row.options).blocked
    return tuple(id for id, _ in watched_by(row.id)) if blocked else ()


def states_of(rows: Sequence[WorkRow]) -> list[WorkState]:
    """Return rows as users see them; what works wait or had waited for is read at once for all of them."""
    options = {row.id: decode_options(row.options) for row in rows}
    gates = {row.id: gate for row in rows if (gate := gate_of(row, options[row.id]))}
    blocked = {id for id, option in options.items() if option.blocked}
    watched = watched_by_all({*gates.values(), *blocked}) if gates or blocked else {}
    states = [state_of(row) for row in rows]
    for state in states:
        object.__setattr__(state, "dependents", watched.get(gates.get(state.id, ""), ()))
        object.__setattr__(state, "blockers", watched.get(state.id, ()) if state.id in blocked else ())
    return states


#: The attributes that are read when they are first used.
WAITED_FOR: dict[str, Callable[[WorkRow], tuple[str, ...]]] = {
    "dependents": dependents_of,
    "blockers": blocker_ids_of,
}


def state_of(row: WorkRow) -> WorkState:
    """Return a row as users see it. Its blockers, perhaps very many ids, are read at their first use."""
    options = decode_options(row.options)
    succeeded = row.status == Status.SUCCESS
    last_error = None if succeeded else row.error or None
    state = WorkState(
        id=row.id,
        type=row.type,
        queue=row.queue,
        status=Status(row.status),
        attempt=row.attempt,
        attempts=options.retry.attempts,
        result=readable_result(row),
        error=last_error if row.status == Status.DEAD else None,
        last_error=last_error,
        reason=row.reason or None,
        queued_at=row.queued_at,
        start_at=row.run_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        priority=row.priority,
        fairness=row.fairness or None,
        retry=options.retry,
        timeout=options.timeout,
        deadline=row.deadline,
        group_id=row.group,
        chain_id=row.chain,
        chain_index=row.chain_index,
        parent=row.parent_id,
        dependents=(),
        blockers=(),
        unit=row.unit,
        completed_by=row.completed_by,
        worker=row.worker,
        progress=json.loads(row.progress) if row.progress else None,
    )
    return WaitingState(state, row) if options.released or options.blocked else state


def readable_result(row: WorkRow) -> Any:
    """Return the result; one that cannot be read back is given as its text, so there is always a state."""
    return readable(row.result, codec_of(registry.find(row.type)))


def readable(text: str | None, codec: Codec) -> Any:
    """Return the value of a stored text; the text if it cannot be read back."""
    try:
        return decode_value(text, codec)
    except BaseException:  # a codec of the project's own may raise anything
        return text


# The state of a chain, as users see it.

#: Steps of one page.
LARGEST_PAGE = 1000


def find_chain_state(id: str, start: int, limit: int) -> ChainState | None:
    """Read the state of the chain that a work belongs to, with a page of its steps.

    ``id`` is that of any of its works. The first work is read before its continuations, as in
    :func:`last_step`. Returns None when no work of the chain exists. Raises InvalidOption.
    """
    require_page(start, limit)
    row = find_row(id)
    chain_id = row.chain if row is not None else id
    first = row if row is None or row.id == chain_id else find_row(chain_id)
    page = steps_from(chain_id, start, limit + 1)
    if page and page[0].chain_index == 0:
        first = page[0]
    elif start == 0 and first is not None:
        page = [first, *page]
    is_last = 0 < len(page) <= limit
    last = page[-1] if is_last else last_step(chain_id)
    return None if last is None else chain_state(chain_id, first, last, page, limit)


def require_page(start: int, limit: int) -> None:
    """Raise unless this is a page."""
    for name, value, least, most in (("start", start, 0, None), ("limit", limit, 1, LARGEST_PAGE)):
        if not is_whole(value) or value < least or (most is not None and value > most):
            span = f"{least} or more" if most is None else f"from {least} to {most}"
            raise InvalidOption(f"expected {name} to be a whole number, {span}, got: {value!r}.")


def chain_state(
    chain_id: str, first: WorkRow | None, last: WorkRow, page: list[WorkRow], limit: int
) -> ChainState:
    """Return a chain as users see it; ``page`` may have a step more than is shown."""
    end = state_of(last)
    return ChainState(
        id=chain_id,
        type=first.type if first else None,
        input=readable_input(first) if first else None,
        status=end.status,
        output=end.result if end.status is Status.SUCCESS else None,
        error=end.error,
        queued_at=first.queued_at if first else None,
        ended_at=last.ended_at if is_terminal(last.status) else None,
        length=last.chain_index + 1,
        steps=tuple(states_of(page[:limit])),
        next_start=page[limit].chain_index if len(page) > limit else None,
    )


def readable_input(row: WorkRow) -> Any:
    """Return the input by name; one that cannot be read back as its text, and that of a gate as None."""
    if row.type == GATE_TYPE:
        return None
    try:
        return decode_input(row.input, codec_of(registry.find(row.type)))
    except BaseException:  # a codec of the project's own may raise anything
        return row.input
