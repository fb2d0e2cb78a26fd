"""Controls of types and queues: a small table that workers read anew whenever it has changed."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, TypeAlias

from django.db import OperationalError
from django.db.models import Count, F

from django_ayework.models import Work, WorkControl
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, code_of, dialect, fetch, rows
from django_ayework.store.lanes import lanes_with_work

Scope: TypeAlias = Literal["type", "queue"]


def all_controls() -> list[WorkControl]:
    """Read every row."""
    return list(rows(WorkControl).all())


def ensure_controls(scope: Scope, names: Iterable[str], now: datetime) -> None:
    """Insert the rows that are missing, with nothing decided."""
    missing = [WorkControl(scope=scope, name=name, changed_at=now) for name in sorted(set(names))]
    rows(WorkControl).bulk_create(missing, ignore_conflicts=True)


def change_control(scope: Scope, name: str, changes: Mapping[str, Any], now: datetime) -> None:
    """Write what an operator has decided; the version grows, so that every worker reads it."""
    ensure_controls(scope, [name], now)
    changed = {**changes, "version": F("version") + 1, "changed_at": now}
    rows(WorkControl).filter(scope=scope, name=name).update(**changed)


def hold_type_controls(types: Collection[str], now: datetime) -> dict[str, WorkControl]:
    """Lock the rows of types that no other transaction holds; make those that are missing.

    A claim of a limited type requires its row. No lock is waited for: a caller may pause a type early in a
    long transaction. Rows are made without waiting, too, as such a caller may have inserted them.
    """
    held = lock_type_controls(types)
    if len(held) < len(set(types)):
        rest = set(types).difference(held)
        there = rows(WorkControl).filter(scope="type", name__in=rest).values_list("name", flat=True)
        made = [type for type in sorted(rest.difference(there)) if make_type_control(type, now)]
        held |= lock_type_controls(made) if made else {}
    return held


def lock_type_controls(types: Collection[str]) -> dict[str, WorkControl]:
    """Lock the rows of types that no other transaction has locked."""
    locked = rows(WorkControl).select_for_update(skip_locked=True).filter(scope="type", name__in=list(types))
    return {row.name: row for row in locked.order_by("name")}


def make_type_control(type: str, now: datetime) -> bool:
    """Insert the row of a type; return False if another transaction has inserted it and goes on."""
    try:
        with atomic(), without_lock_waits(type):
            ensure_controls("type", [type], now)
    except OperationalError as error:
        if code_of(error) not in dialect().lock_codes:
            raise
        return False
    return True


@contextmanager
def without_lock_waits(type: str) -> Generator[None]:
    """Fail where an INSERT of the row of a type would wait for another transaction."""
    if dialect().has_arrays:
        [(before,)] = fetch("SELECT current_setting('lock_timeout')", ())
        fetch("SELECT set_config('lock_timeout', '1ms', true)", ())
        yield
        fetch("SELECT set_config('lock_timeout', %s, true)", (before,))
        return
    if dialect().locks_uncommitted:
        list(rows(WorkControl).select_for_update(nowait=True).filter(scope="type", name=type))
    yield


def running_counts(types: Iterable[str]) -> dict[str, int]:
    """Count the running works of these types in the whole fleet; reads the running works alone."""
    running = rows(Work).filter(status=Status.RUNNING, type__in=list(types))
    counted = running.order_by().values("type").annotate(number=Count("id")).values_list("type", "number")
    return dict(counted)


def due_types(types: Iterable[str], now: datetime) -> list[str]:
    """Return which of these continuous types may have their next work queued by now."""
    waiting = rows(WorkControl).filter(scope="type", name__in=list(types), next_at__gt=now)
    not_yet = set(waiting.values_list("name", flat=True))
    return sorted(set(types) - not_yet)


def is_due_or_running(type: str) -> bool:
    """Tell whether a work of this type is pending or running; each is looked for where only those are."""
    is_due = any(lane.type == type for lane in lanes_with_work())
    return is_due or rows(Work).filter(status=Status.RUNNING, type=type).exists()


def set_next_at(type: str, next_at: datetime) -> None:
    """Note when the next work of a continuous type may be queued; its row is locked by the caller."""
    rows(WorkControl).filter(scope="type", name=type).update(next_at=next_at)
