"""The state of a work, as users see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from django_ayework.define.handles import WorkState as WorkState
from django_ayework.define.registry import registry
from django_ayework.flow.options import StoredOptions, decode_options
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.rules.states import Status
from django_ayework.store.rows import WorkRow, find_row
from django_ayework.store.threads import read
from django_ayework.store.waiters import watched_by, watched_by_all


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
        """Read what is asked for the first time."""
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


def gate_of(row: WorkRow, options: StoredOptions) -> str | None:
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


#: What is read of a work when it is asked for.
WAITED_FOR: dict[str, Callable[[WorkRow], tuple[str, ...]]] = {
    "dependents": dependents_of,
    "blockers": blocker_ids_of,
}


def state_of(row: WorkRow) -> WorkState:
    """Return a row as users see it; what it waits for, which may be very many ids, is not read yet."""
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
    try:
        return decode_value(row.result, codec_of(registry.find(row.type)))
    except BaseException:  # a codec of the project's own may raise anything
        return row.result
