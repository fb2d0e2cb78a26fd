"""The board of controls: every type and every queue, the values in force, and fields to change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from django.forms import HiddenInput
from django.utils.translation import gettext as _

from django_ayework.admin import pages
from django_ayework.admin.lists import declared_queues
from django_ayework.define.types import registry
from django_ayework.flow.controls import control_of
from django_ayework.models import WorkControl
from django_ayework.rules.controls import TypeControl
from django_ayework.store.controls import Scope, all_controls
from django_ayework.store.lanes import lanes_with_work

#: Lanes of pending works that are read to find queues that no type names.
LANES_READ = 500
#: Columns that apply to types, and not to queues.
OF_TYPES = ("priority", "weight", "max_running", "max_claimed", "continuous", "interval")
#: Columns that apply to continuous types alone.
OF_CONTINUOUS = ("continuous", "interval")


@dataclass(frozen=True, slots=True)
class Target:
    """A type or a queue, and its control, if it has one."""

    scope: Scope
    name: str
    row: WorkControl | None

    @property
    def is_paused(self) -> bool:
        """Whether operators have paused it."""
        return self.row is not None and self.row.paused

    @property
    def is_controlled(self) -> bool:
        """Whether operators have decided anything that differs from the code."""
        return self.row is not None and decides(self.row)

    @property
    def is_known(self) -> bool:
        """Whether a type is registered in this process; a queue needs no declaration."""
        return self.scope == "queue" or registry.find(self.name) is not None

    @property
    def is_continuous(self) -> bool:
        """Whether the code declares the type continuous."""
        work_type = registry.find(self.name) if self.scope == "type" else None
        return work_type is not None and work_type.settings.interval is not None


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A row of the board. ``fields`` are the cells of the form, None where a field does not apply."""

    id: str
    target: Target
    state: str
    declared: str
    in_force: str
    fields: Sequence[Any]
    errors: Sequence[str]
    may_change: bool
    may_remove: bool
    page_url: str | None

    @property
    def has_values(self) -> bool:
        """Whether it is that of a type; a queue can only be paused."""
        return self.target.scope == "type"


class BoardTable(NamedTuple):
    """The rows of all types, or of all queues, under headings."""

    id: str
    title: str
    headings: Sequence[Any]
    rows: Sequence[BoardRow]


def decides(row: WorkControl) -> bool:
    """Tell whether a control says anything; rows are also made as locks, with nothing decided."""
    return row.paused or any(getattr(row, name) is not None for name in OF_TYPES)


def targets() -> list[Target]:
    """Return all types, then all queues: declared ones, controlled ones, and queues with pending works."""
    stored: dict[tuple[str, str], WorkControl] = {(row.scope, row.name): row for row in all_controls()}
    decided = [key for key, row in stored.items() if decides(row)]
    types = {*registry.names(), *(name for scope, name in decided if scope == "type")}
    busy = {lane.queue for lane in islice(lanes_with_work(), LANES_READ)}
    queues = {*declared_queues(), *busy, *(name for scope, name in decided if scope == "queue")}
    return [
        *(Target("type", name, stored.get(("type", name))) for name in sorted(types)),
        *(Target("queue", name, stored.get(("queue", name))) for name in sorted(queues)),
    ]


# Words


def state_of(target: Target) -> str:
    """Return whether works are claimed, as a badge."""
    if target.is_paused:
        return pages.badge("blocked", _("paused"))
    return pages.badge("alive", _("active")) if target.is_known else pages.badge("unknown", _("not declared"))


def in_words(control: TypeControl) -> str:
    """Return the values of a type in words."""
    words = [_("weight %(number)s") % {"number": control.weight}]
    if control.priority:
        words.append(_("priority %(number)s") % {"number": control.priority})
    if control.max_running:
        words.append(_("at most %(number)s running") % {"number": control.max_running})
    if control.max_claimed:
        words.append(_("at most %(number)s claimed") % {"number": control.max_claimed})
    if control.interval is not None:
        words.append(_("every %(number)g s") % {"number": control.interval})
    return ", ".join(words)


def declared_in_words(scope: str, name: str) -> str:
    """Return the values that the code declares, in words."""
    work_type = registry.find(name) if scope == "type" else None
    return pages.NOTHING if work_type is None else in_words(control_of(work_type.settings, None))


def force_in_words(target: Target) -> str:
    """Return the values that workers apply, in words."""
    if target.scope == "queue":
        return pages.NOTHING
    work_type = registry.find(target.name)
    return in_words(control_of(work_type.settings if work_type else None, target.row))


def labelled(form: Any, target: Target, form_id: str, names: Sequence[str]) -> list[Any]:
    """Tie the fields of a form to a row of the table; return its cells, None for what does not apply."""
    cells: list[Any] = []
    for name in names:
        if name not in form.fields:
            cells.append(None)
            continue
        field = form.fields[name]
        label = _("%(field)s of %(type)s") % {"field": field.label, "type": target.name}
        field.widget.attrs |= {"form": form_id, "aria-label": label}
        field.hidden_widget = partial(HiddenInput, attrs={"form": form_id})
        cells.append(form[name])
    return cells


def columns(found: Sequence[Target]) -> tuple[str, ...]:
    """Return the columns of types; those of continuous types only where there is one."""
    if any(target.is_continuous for target in found):
        return OF_TYPES
    return tuple(name for name in OF_TYPES if name not in OF_CONTINUOUS)


def tables(headings: Sequence[Any], rows: Sequence[BoardRow]) -> list[BoardTable]:
    """Return the table of types, with these headings of their fields, and the table of queues."""
    types, queues = ([row for row in rows if row.has_values is has_values] for has_values in (True, False))
    of_types = [_("type"), _("state"), *headings, _("in force"), _("change")]
    return [
        BoardTable("types", _("Types"), of_types, types),
        BoardTable("queues", _("Queues"), [_("queue"), _("state"), _("change")], queues),
    ]
