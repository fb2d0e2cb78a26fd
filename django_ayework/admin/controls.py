"""The controls of types and queues: one page with all of them, and a form for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import pages
from django_ayework.admin.lists import QueueAdmin, declared_queues
from django_ayework.admin.pages import field_in_words
from django_ayework.admin.refusals import shows_refusals
from django_ayework.define.types import registry
from django_ayework.errors import did_you_mean
from django_ayework.flow.controls import control_of, write
from django_ayework.models import WorkControl
from django_ayework.rules.controls import TypeControl
from django_ayework.store.controls import Scope, all_controls
from django_ayework.store.database import atomic, rows
from django_ayework.store.lanes import lanes_with_work

#: Lanes of pending works that are read to find queues that no type names.
LANES_READ = 500
#: Columns that apply to types, and not to queues.
OF_TYPES = ("priority", "weight", "max_running", "max_claimed", "continuous", "interval")
#: Columns that apply to continuous types alone.
OF_CONTINUOUS = ("continuous", "interval")
#: A control with nothing decided: what the code declares applies.
NOTHING: dict[str, Any] = {"paused": False, **dict.fromkeys(OF_TYPES)}


# What the board shows: types and queues, with the values in force


@dataclass(frozen=True, slots=True)
class Target:
    """A type or a queue, and its control, if it has one."""

    scope: str
    name: str
    row: WorkControl | None

    @property
    def has_values(self) -> bool:
        """Whether there is more to set than a pause: a queue can only be paused."""
        return self.scope == "type"

    @property
    def is_paused(self) -> bool:
        """Whether operators have paused it."""
        return self.row is not None and self.row.paused

    @property
    def is_known(self) -> bool:
        """Whether a type is registered in this process; a queue needs no declaration."""
        return self.scope == "queue" or registry.find(self.name) is not None

    @property
    def is_continuous(self) -> bool:
        """Whether the code declares the type continuous."""
        work_type = registry.find(self.name) if self.scope == "type" else None
        return work_type is not None and work_type.settings.interval is not None


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
        field.hidden_widget = partial(forms.HiddenInput, attrs={"form": form_id})
        cells.append(form[name])
    return cells


# The forms


class WorkControlForm(forms.ModelForm):  # type: ignore[type-arg]  # which Django does not take
    """The form of a control of a registered type, or of any queue."""

    class Meta:
        """All columns that the engine does not write."""

        model = WorkControl
        fields: ClassVar[Any] = ("scope", "name", "paused", *OF_TYPES)
        help_texts: ClassVar[Any] = {
            "name": gettext_lazy("The name of a type or of a queue."),
            "paused": gettext_lazy("Workers claim no more of its works; running works continue."),
            "priority": gettext_lazy("Types of a larger priority are served first within their queue."),
            "weight": gettext_lazy("The share of the queue among types of the same priority; 20 unless set."),
            "max_running": gettext_lazy("How many may run at a time in the whole fleet; 0 is no limit."),
            "max_claimed": gettext_lazy("How many a worker may claim at once; 0 is no limit."),
            "continuous": gettext_lazy("Whether a type that is declared continuous is so now."),
            "interval": gettext_lazy("Seconds from one work of a continuous type to the next."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in NOTHING.keys() & self.fields.keys():
            self.fields[name].show_hidden_initial = True  # what has changed since the page was opened
        if "continuous" in self.fields:
            choices = [("unknown", _("as declared")), ("true", _("yes")), ("false", _("no"))]
            self.fields["continuous"].widget.choices = choices

    def _get_validation_exclusions(self) -> set[str]:
        """Accept a type or a queue that has a control: the form changes that."""
        return {*super()._get_validation_exclusions(), "name"}  # type: ignore[misc]

    def clean_weight(self) -> int | None:
        """Refuse a weight of 0, with which a type would never be served: that is a pause."""
        weight: int | None = self.cleaned_data["weight"]
        if weight == 0:
            raise forms.ValidationError(_("A weight is at least 1; pause the type to stop it."))
        return weight

    def clean_interval(self) -> float | None:
        """Refuse a negative interval."""
        interval: float | None = self.cleaned_data["interval"]
        if interval is not None and interval < 0:
            raise forms.ValidationError(_("An interval is 0 seconds or more."))
        return interval

    def clean(self) -> dict[str, Any]:
        """Refuse unknown types, and for a queue everything but a pause."""
        cleaned = super().clean() or self.cleaned_data
        scope, name = cleaned.get("scope", self.instance.scope), cleaned.get("name", self.instance.name)
        types = registry.names()
        if scope == "type" and name and name not in types and not self.instance.pk:
            self.add_error("name", _("No work has this name.") + did_you_mean(name, types))
        for field in OF_TYPES if scope == "queue" else ():
            if cleaned.get(field) is not None:
                self.add_error(field, _("A queue can only be paused."))
        return cleaned


class InPlaceForm(WorkControlForm):
    """The fields of a type in its row of the board."""

    class Meta(WorkControlForm.Meta):
        """Pausing has a button of its own."""

        fields: ClassVar[Any] = OF_TYPES

    def __init__(self, *args: Any, target: Target, **kwargs: Any) -> None:
        row = target.row or WorkControl(scope=target.scope, name=target.name)
        super().__init__(*args, instance=row, **kwargs)
        for name in () if target.is_continuous else OF_CONTINUOUS:
            del self.fields[name]


class Suggesting(forms.TextInput):
    """A text field with suggestions."""

    template_name = "admin/django_ayework/suggesting.html"

    def __init__(self, suggestions: list[str]) -> None:
        super().__init__(attrs={"class": "vTextField", "list": "ayework-names"})
        self.suggestions = suggestions

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Add the suggestions."""
        return {**super().get_context(name, value, attrs), "suggestions": self.suggestions}


@admin.display(description=gettext_lazy("as declared"))
def declared(control: WorkControl) -> str:
    """The values that the code declares, which apply where the control's own are empty."""
    return declared_in_words(control.scope, control.name)


def label_of(name: str) -> Any:
    """Return what a column is called."""
    return WorkControl._meta.get_field(name).verbose_name  # type: ignore[union-attr]


def decide(model_admin: Any, request: HttpRequest, scope: str, name: str, values: dict[str, Any]) -> None:
    """Write a control, log it with the old values, and show what came of it."""
    before = rows(WorkControl).filter(scope=scope, name=name).first() or WorkControl()
    changed = {field: value for field, value in values.items() if value != getattr(before, field)}
    if not changed:
        messages.info(request, _("%(name)s: there was nothing to change.") % {"name": name})
        return
    text = " ".join(change_text(field, getattr(before, field), value) for field, value in changed.items())
    with atomic():
        write(cast("Scope", scope), name, **changed)
        model_admin.log_change(request, rows(WorkControl).get(scope=scope, name=name), text)
    messages.success(request, f"{name}: {text}")


def change_text(field: str, before: Any, after: Any) -> str:
    """Return a change of a control in words, with the old value."""
    if field == "paused":
        return _("Paused; it was served.") if after else _("Resumed; it was paused.")
    was, now = (_("as declared") if each is None else field_in_words(each) for each in (before, after))
    words = {"field": label_of(field), "before": was, "after": now}
    return _("Changed %(field)s from %(before)s to %(after)s.") % words


@admin.register(WorkControl)
class WorkControlAdmin(QueueAdmin):
    """The controls of types and queues. Every worker applies a change within a poll."""

    looks = ("pages",)
    form = WorkControlForm
    fields: ClassVar[Any] = ("scope", "name", "paused", *OF_TYPES, declared)
    readonly_fields: ClassVar[Any] = (declared,)
    actions: Any = None

    # The board

    @shows_refusals
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show all types and queues, or change one in its row."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        found = targets()
        if request.method != "POST":
            return self.board(request, found)
        wanted = (request.POST.get("scope"), request.POST.get("name"))
        target = next((each for each in found if (each.scope, each.name) == wanted), None)
        if target is None:
            messages.error(request, _("There is no type or queue of this name; nothing was changed."))
            return HttpResponseRedirect(self.address("changelist"))
        return self.change_in_place(request, target, found)

    def change_in_place(self, request: HttpRequest, target: Target, found: list[Target]) -> HttpResponse:
        """Pause, resume, change or reset a type or a queue; show the board again."""
        act = request.POST.get("act", "save")
        may = self.may_remove(request, target) if act == "declared" else self.may_change(request, target)
        if not may:
            raise PermissionDenied
        if act in ("pause", "resume"):
            decide(self, request, target.scope, target.name, {"paused": act == "pause"})
        elif act == "declared":
            decide(self, request, target.scope, target.name, NOTHING)
        elif target.scope == "type":
            form = InPlaceForm(request.POST, target=target)
            if not form.is_valid():
                return self.board(request, found, target, form)
            changes = {name: form.cleaned_data[name] for name in form.changed_data}
            decide(self, request, target.scope, target.name, changes)
        return HttpResponseRedirect(self.address("changelist"))

    def may_change(self, request: HttpRequest, target: Target) -> bool:
        """Tell whether the user may control this type or queue."""
        if target.row is None:
            return self.has_add_permission(request)
        return self.has_change_permission(request, target.row)

    def may_remove(self, request: HttpRequest, target: Target) -> bool:
        """Tell whether the user may return this type or queue to what the code declares."""
        return target.row is not None and self.has_delete_permission(request, target.row)

    def board(
        self,
        request: HttpRequest,
        found: list[Target],
        refused: Target | None = None,
        form: InPlaceForm | None = None,
    ) -> HttpResponse:
        """Return the page; ``form`` is the refused form of one of the targets."""
        are_continuous = any(target.is_continuous for target in found)
        names = [name for name in OF_TYPES if are_continuous or name not in OF_CONTINUOUS]
        rows = [
            self.board_row(request, number, target, form if target is refused else None, names)
            for number, target in enumerate(found)
        ]
        types = [row for row in rows if row["target"].has_values]
        queues = [row for row in rows if not row["target"].has_values]
        of_types = [_("type"), _("state"), *map(label_of, names), _("in force"), _("change")]
        of_queues = [_("queue"), _("state"), _("change")]
        context = {
            "title": _("Controls"),
            "is_list": True,
            "has_form": True,
            "media": self.media["css"],
            "tables": [
                {"id": "types", "title": _("Types"), "headings": of_types, "rows": types},
                {"id": "queues", "title": _("Queues"), "headings": of_queues, "rows": queues},
            ],
            "add_url": self.address("add") if self.has_add_permission(request) else None,
        }
        return self.framed(request, "controls.html", context)

    def board_row(
        self,
        request: HttpRequest,
        number: int,
        target: Target,
        form: InPlaceForm | None,
        names: Sequence[str],
    ) -> dict[str, Any]:
        """Return a row of the board. ``fields`` are the cells of the form, None where one does not apply."""
        id = f"control-{number}"
        fields: list[Any] = []
        errors: list[str] = []
        if target.has_values:
            shown = form or InPlaceForm(target=target, auto_id=f"{id}-%s")
            fields = labelled(shown, target, id, names)
            wrong = shown.errors.items()
            errors = [f"{shown.fields[name].label}: {' '.join(map(str, texts))}" for name, texts in wrong]
        return {
            "id": id,
            "target": target,
            "state": state_of(target),
            "declared": declared_in_words(target.scope, target.name),
            "in_force": force_in_words(target),
            "fields": fields,
            "errors": errors,
            "may_change": self.may_change(request, target),
            "may_remove": self.may_remove(request, target) and target.row is not None and decides(target.row),
            "page_url": self.address("change", target.row.pk) if target.row is not None else None,
        }

    # The form of one control

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """The type or queue of a control does not change."""
        return (*self.readonly_fields, "scope", "name") if obj else self.readonly_fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Suggest the registered types and their queues."""
        form = super().get_form(request, obj, change, **kwargs)
        if "name" in form.base_fields:
            form.base_fields["name"].widget = Suggesting([*registry.names(), *declared_queues()])
        return form

    def save_model(self, request: HttpRequest, obj: WorkControl, form: Any, change: bool) -> None:
        """Write the control, so that workers read it. What was not changed in the form stays.

        The form for another control keeps what a control that is there says in fields that were left empty.
        """
        values = {name: form.cleaned_data[name] for name in NOTHING}
        if change:
            values = {name: values[name] for name in NOTHING if name in form.changed_data}
        else:
            values = {name: value for name, value in values.items() if value not in (None, False)}
        write(cast("Scope", obj.scope), obj.name, **values)
        obj.pk = self.get_queryset(request).get(scope=obj.scope, name=obj.name).pk

    def delete_model(self, request: HttpRequest, obj: WorkControl) -> None:
        """Return to what the code declares. The row stays, as it is also the lock of a limit."""
        write(cast("Scope", obj.scope), obj.name, **NOTHING)
