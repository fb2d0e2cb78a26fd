"""Groups that settled and nobody waited for: the hook ``UNHANDLED_GROUP``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.handles import WorkState
from django_ayework.define.registry import registry
from django_ayework.flow.events import guarded
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.flow.states import state_of
from django_ayework.models import Work
from django_ayework.store import entries
from django_ayework.store.clock import clock
from django_ayework.store.database import in_transaction, rows
from django_ayework.store.groups import find_group
from django_ayework.store.rows import rows_of

WAITING_LIFE = timedelta(hours=1)
HANDLED_LIFE = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class SettledGroup:
    """What the hook is given: the group's value (None if nobody contributed) and its works."""

    group_id: str
    value: Any
    states: tuple[WorkState, ...]


def note_waiting(group_id: str) -> bool:
    """Note that somebody waits for this group, if the hook wants to know; return whether that is done.

    A note made within a transaction would not be seen in time, so there it is left for later.
    """
    if in_transaction():
        return False
    if get_settings().unhandled_group is not None:
        now = clock.now()
        entries.set_if_absent(f"wait:{group_id}", "", now, now + WAITING_LIFE)
    return True


def tell_all_unhandled(group_ids: Iterable[str]) -> None:
    """Call the hook for those settled groups that nobody waited for."""
    for group_id in group_ids:
        tell_unhandled(group_id)


def tell_unhandled(group_id: str) -> bool:
    """Call the hook for a settled group unless somebody waited for it; once across the fleet."""
    hook, now = get_settings().unhandled_group, clock.now()
    if hook is None or entries.is_set(f"wait:{group_id}", now):
        return False
    if not entries.set_if_absent(f"group-handled:{group_id}", "", now, now + HANDLED_LIFE):
        return False
    guarded(hook, settled_group(group_id))
    return True


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
