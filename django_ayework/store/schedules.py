"""Schedules and their firings: a small table, read through the moments at which something is to be done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q

from django_ayework.models import Firing, Schedule, Work
from django_ayework.rules.states import is_terminal
from django_ayework.store.database import delete_first, rows
from django_ayework.store.rows import find_group


def soonest(names: Collection[str], types: Collection[str], limit: int) -> list[tuple[int, datetime]]:
    """Return the next schedules to check, the soonest first: ids, and when.

    Schedules that only other processes know are theirs: of those that code declares, ``names`` are known
    here, and of those made in the admin the ones that run one of these ``types``.
    """
    waiting = rows(Schedule).filter(due_at__isnull=False).order_by("due_at")
    columns = waiting.values_list("id", "due_at", "origin", "name", "function")
    known, runnable = set(names), set(types)
    start = 0
    while True:
        page = list(columns[start : start + limit])
        ours = [
            (id, due_at)
            for id, due_at, origin, name, function in page
            if due_at is not None and (name in known if origin == "code" else function in runnable)
        ]
        if ours or len(page) < limit:  # others' schedules, left undone, may fill a page
            return ours
        start += limit


def lock_due(id: int, now: datetime) -> Schedule | None:
    """Lock a schedule if it is due, unless another process has locked it.

    No call waits for the lock: its holder runs the project's code, for as long as that takes.
    """
    return rows(Schedule).select_for_update(skip_locked=True).filter(id=id, due_at__lte=now).first()


def lock_schedule(id: int) -> Schedule | None:
    """Lock a schedule, after another holder of the lock has finished."""
    return rows(Schedule).select_for_update().filter(id=id).first()


def lock_schedules(names: Iterable[str], skip_locked: bool = False) -> dict[str, Schedule]:
    """Lock schedules, in one order for all; those that others have locked are waited for, or passed over."""
    locked = rows(Schedule).select_for_update(skip_locked=skip_locked).filter(name__in=list(names))
    return {row.name: row for row in locked.order_by("name")}


def all_declared(names: Iterable[str]) -> dict[str, Schedule]:
    """Read the schedules of these names, and all that code has declared at some time."""
    found = rows(Schedule).filter(Q(origin="code") | Q(name__in=list(names)))
    return {row.name: row for row in found}


def all_schedules() -> list[Schedule]:
    """Read every schedule, by name."""
    return list(rows(Schedule).order_by("name"))


def insert_missing(schedules: Iterable[Schedule]) -> None:
    """Insert schedules whose names are not there."""
    rows(Schedule).bulk_create(list(schedules), ignore_conflicts=True)


def insert_schedule(schedule: Schedule) -> Schedule:
    """Insert one schedule; return it with its id."""
    rows(Schedule).bulk_create([schedule])
    return rows(Schedule).get(name=schedule.name)


def change_schedule(id: int, changes: Mapping[str, Any]) -> None:
    """Write columns of a schedule whose row the caller has locked."""
    rows(Schedule).filter(id=id).update(**changes)


def delete_schedule(id: int) -> None:
    """Delete a schedule whose row the caller has locked, and its firings."""
    rows(Schedule).filter(id=id).delete()


def move_schedule(row: Schedule, changes: Mapping[str, Any]) -> bool:
    """Move a schedule on if it is still where the row says; return False if it is not."""
    unmoved = rows(Schedule).filter(id=row.pk, next_at=row.next_at, last_at=row.last_at)
    return bool(unmoved.update(**changes))


def insert_firing(schedule: int, occurrence: datetime, status: str, now: datetime, **more: Any) -> None:
    """Insert what became of an occurrence. Raises IntegrityError when it was dealt with before."""
    firing = Firing(schedule_id=schedule, occurrence=occurrence, status=status, made_at=now, **more)
    rows(Firing).bulk_create([firing])


def was_dealt_with(schedule: int, occurrence: datetime) -> bool:
    """Tell whether an occurrence has its firing."""
    return rows(Firing).filter(schedule_id=schedule, occurrence=occurrence).exists()


def link_firing(
    schedule: int, occurrence: datetime, status: str, work: str, group: str, now: datetime, **more: Any
) -> None:
    """Write what a firing has queued; both are empty when it is not known."""
    columns = {"status": status, "work_id": work, "group_id": group, "made_at": now, **more}
    rows(Firing).filter(schedule_id=schedule, occurrence=occurrence).update(**columns)


def first_queued(schedule: int) -> Firing | None:
    """Return the firing that has waited longest for the works of the one before."""
    return rows(Firing).filter(schedule_id=schedule, status="queued").order_by("occurrence").first()


def has_ended(group: str) -> bool:
    """Tell whether all works of a group have ended; deleted works have.

    A work that is alone is its own group. Continuations of a chain are in the group of its first work.
    """
    found = find_group(group)
    if found is not None:
        return found.open <= 0
    status = rows(Work).filter(id=group).values_list("status", flat=True).first()
    return status is None or is_terminal(status)


def delete_firings(before: datetime, limit: int) -> int:
    """Delete old history, in a batch; what still waits stays."""
    old = rows(Firing).filter(made_at__lt=before).exclude(status="queued").order_by("made_at")
    return delete_first(old, limit)
