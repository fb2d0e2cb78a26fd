"""The state of a work, as users see it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from django_ayework.define.handles import WorkState as WorkState
from django_ayework.define.registry import registry
from django_ayework.flow.options import decode_options
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.rules.states import Status
from django_ayework.store.rows import WorkRow, find_row
from django_ayework.store.waiters import watched_by, watched_by_all


def find_state(id: str) -> WorkState | None:
    """Read a work's state, or None when no work has this id."""
    row = find_row(id)
    return None if row is None else state_of(row, dependents_of(row), blocker_ids_of(row))


class ClaimedState(WorkState):
    """The state of a work that a gate has released; ``dependents`` are read when they are asked for."""

    __slots__ = ("_row",)

    def __init__(self, row: WorkRow) -> None:
        state = state_of(row)
        for each in fields(WorkState):
            if each.name != "dependents":
                object.__setattr__(self, each.name, getattr(state, each.name))
        object.__setattr__(self, "_row", row)

    def __getattr__(self, name: str) -> Any:
        """Read what is asked for the first time."""
        if name != "dependents":
            raise AttributeError(name)
        found = dependents_of(self._row)
        object.__setattr__(self, name, found)
        return found


def claimed_state_of(row: WorkRow) -> WorkState:
    """Return a claimed row as users see it, without reading what its gate had waited for."""
    return ClaimedState(row) if decode_options(row.options).released else state_of(row)


def dependents_of(row: WorkRow) -> tuple[str, ...]:
    """Return the ids that the gate which released this work had waited for."""
    options = decode_options(row.options)
    gate = options.released_by or row.parent_id
    if gate is None or not options.released:
        return ()
    return tuple(id for id, _ in watched_by(gate))


def blocker_ids_of(row: WorkRow) -> tuple[str, ...]:
    """Return the ids of the chains that block, or had blocked, this work."""
    blocked = decode_options(row.options).blocked
    return tuple(id for id, _ in watched_by(row.id)) if blocked else ()


def states_of(rows: Sequence[WorkRow]) -> list[WorkState]:
    """Return rows as users see them; what works wait or had waited for is read at once for all of them."""
    options = [decode_options(row.options) for row in rows]
    pairs = list(zip(rows, options, strict=True))
    gates = {row.parent_id for row, option in pairs if option.released and row.parent_id is not None}
    blocked = {row.id for row, option in pairs if option.blocked}
    watched = watched_by_all(gates | blocked) if gates or blocked else {}
    return [
        state_of(
            row,
            watched.get(row.parent_id or "", ()) if option.released else (),
            watched.get(row.id, ()) if option.blocked else (),
        )
        for row, option in pairs
    ]


def state_of(row: WorkRow, dependents: tuple[str, ...] = (), blockers: tuple[str, ...] = ()) -> WorkState:
    """Return a row as users see it."""
    options = decode_options(row.options)
    succeeded = row.status == Status.SUCCESS
    last_error = None if succeeded else row.error or None
    return WorkState(
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
        dependents=dependents,
        blockers=blockers,
        unit=row.unit,
        completed_by=row.completed_by,
        worker=row.worker,
        progress=json.loads(row.progress) if row.progress else None,
    )


def readable_result(row: WorkRow) -> Any:
    """Return the result; one that cannot be read back is given as its text, so there is always a state."""
    try:
        return decode_value(row.result, codec_of(registry.find(row.type)))
    except BaseException:  # a codec of the project's own may raise anything
        return row.result
