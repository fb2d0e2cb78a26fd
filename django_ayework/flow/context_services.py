"""The services behind the context of a running handler: progress, claims of keys, the works waited for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from django_ayework.define.context import Assignment
from django_ayework.define.types import registry
from django_ayework.documentation import type_error
from django_ayework.errors import WorkNotFound
from django_ayework.flow.payloads import codec_of, decode_options, decode_value
from django_ayework.flow.states import blocker_ids_of, dependents_of, gate_of
from django_ayework.rules.formatting import error_before
from django_ayework.rules.identity import require_text
from django_ayework.rules.states import Status
from django_ayework.store import entries
from django_ayework.store.connections import read
from django_ayework.store.database import clock
from django_ayework.store.rows import WorkRow, find_row, last_steps, statuses_of

# The facts of a work that a context shows.


def assignment_of(row: WorkRow) -> Assignment:
    """Return the facts a handler may read. Those that it has waited for are perhaps very many ids."""
    return Assignment(
        row.id, row.type, row.group, row.chain, row.attempt, row.parent_id,
        lambda: read(lambda: kept_dependents_of(row)), lambda: read(lambda: results_of_blockers(row)),
        error_before(row.error) or None, row.deadline, row.unit,
    )  # fmt: skip


def kept_dependents_of(row: WorkRow) -> tuple[str, ...]:
    """Return the ids that the gate which released this work had waited for; raise if the gate was deleted."""
    ids = dependents_of(row)
    gate = None if ids else gate_of(row, decode_options(row.options))
    if gate is not None and find_row(gate) is None:
        raise deleted(row, gate)
    return ids


def results_of_blockers(row: WorkRow) -> tuple[Any, ...]:
    """Return the results of the chains that had blocked a work, in the order they were given."""
    ids = blocker_ids_of(row)
    steps = last_steps(set(ids)) if ids else {}
    if missing := next((id for id in ids if id not in steps), None):
        raise deleted(row, missing)
    results = {id: decode_value(row.result, codec_of(registry.find(row.type))) for id, row in steps.items()}
    return tuple(results[id] for id in ids)


def deleted(row: WorkRow, id: str) -> WorkNotFound:
    """Return the error for a work that is retried after what it had waited for was deleted."""
    return WorkNotFound(
        f"expected what {row.type!r} had waited for to be there still, but {id} was deleted, as its "
        "retention is over. Queue the workflow anew, and keep its works for longer: retention= or "
        "AYEWORK['RETENTION'].",
        id=id,
        code="waited-for-deleted",
    )


# The calls of a running handler to the engine.

CLAIM_LIFE = timedelta(hours=24)
MAX_KEY_LENGTH = 180


class EngineServices:
    """The services of one process; progress is kept here until the worker writes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: dict[str, str] = {}

    def claim(self, key: str) -> bool:
        """Take a key once across the fleet, for 24 hours."""
        now = clock.read()
        return entries.set_if_absent(claim_key(key), "", now, now + CLAIM_LIFE)

    def states(self, ids: Iterable[str]) -> list[Status | None]:
        """Return the status of each work, in order; None for an unknown one."""
        wanted = [*map(require_text, ids)]
        found = statuses_of(wanted)
        return [found.get(id) for id in wanted]

    def note_failure(self, id: str, error: BaseException) -> None:
        """Note what failed an attempt; the testing kit shows it."""

    def progress(self, id: str, progress: Mapping[str, Any]) -> None:
        """Keep the latest progress of a work."""
        encoded = json.dumps(progress, default=float)
        with self._lock:
            self._progress[id] = encoded

    @property
    def has_progress(self) -> bool:
        """Whether there is any to be written."""
        return bool(self._progress)

    def latest_progress(self, id: str) -> str | None:
        """Return the progress of one work that is not written yet, and keep it."""
        with self._lock:
            return self._progress.get(id)

    def take_progress(self, ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return the progress (of these works, or of all) that is not written yet, and forget it."""
        with self._lock:
            wanted = list(self._progress) if ids is None else [id for id in ids if id in self._progress]
            return {id: self._progress.pop(id) for id in wanted}


def claim_key(key: str) -> str:
    """Return the stored key, hashed where needed so that any text will do. Raises TypeError for all else.

    MySQL compares without trailing spaces, and no database takes every character.
    """
    if not isinstance(key, str):
        raise type_error(
            "claim-key-not-a-text", f"expected ctx.claim(key) with a text as the key, got: {key!r}."
        )
    if len(key) > MAX_KEY_LENGTH or not key.isprintable() or key.endswith(" "):
        key = f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return f"claim:{key}"
