"""Edit and retry: a form for the input of an ended work, the difference, and the retry with the new input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any

from django import forms
from django.contrib import messages
from django.db import Error
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from django_ayework.admin.action_execution import log_done
from django_ayework.admin.buttons import ButtonsAdmin
from django_ayework.admin.inputs import ABSENT, InputField, field_of, json_kind
from django_ayework.admin.pages import NOTHING, Links, boxed, printable
from django_ayework.admin.refusals import show_refusal
from django_ayework.define.annotations import annotations_of
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import AnyWorkType, registry
from django_ayework.errors import AyeworkError, NotEncodable
from django_ayework.flow.enqueue import request_of
from django_ayework.flow.payloads import codec_of, decode_options, encoded_input, redacts
from django_ayework.flow.retry import retry_edited, state_token
from django_ayework.models import Work
from django_ayework.models.work import STATUS_LABELS
from django_ayework.rules.codec import Codec
from django_ayework.rules.formatting import HIDDEN, error_text
from django_ayework.rules.states import RETRYABLE, Status

#: The statuses of works whose input can be edited.
EDITABLE = RETRYABLE | {Status.SUCCESS}
#: Characters of one change that the admin's log keeps.
LOGGED = 200
#: The prefix of the names of the form's fields.
PREFIX = "input"


@dataclass(frozen=True, slots=True)
class Change:
    """One input before and after, as texts that may be shown."""

    name: str
    old: str
    new: str


class InputForm(forms.Form):
    """The inputs of a work, as the signature of its handler names them."""

    def __init__(self, work: Work, work_type: AnyWorkType, data: Any = None) -> None:
        super().__init__(data, prefix=PREFIX)
        self.work_type, self.codec = work_type, codec_of(work_type)
        self.hidden = hidden_inputs(work, work_type)
        self.stored, self.problem = stored_input(work, self.codec)
        self.rest: str | None = None
        annotations = annotations_of(work_type)
        for name, parameter in work_type.signature.parameters.items():
            if parameter.kind is Parameter.VAR_KEYWORD:
                self.rest = name
                kind, is_hidden = json_kind(self.codec), self.hides_rest()
                self.fields[name] = InputField(kind, self.unnamed(), {}, is_hidden=is_hidden)
                continue
            stored = self.stored.get(name, ABSENT)
            self.fields[name] = field_of(parameter, annotations, self.codec, stored, name in self.hidden)
        self.arguments: dict[str, Any] = {}

    def unnamed(self) -> Any:
        """Return the stored arguments that no parameter names."""
        parameters = self.work_type.signature.parameters.values()
        named = {each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD}
        return {name: value for name, value in self.stored.items() if name not in named}

    def hides_rest(self) -> bool:
        """Tell whether an argument that no parameter names is hidden."""
        return bool(self.hidden.intersection(self.unnamed()))

    @property
    def dropped(self) -> list[str]:
        """The stored arguments that the handler does not take any more."""
        return [] if self.rest else sorted(map(printable, self.unnamed()))

    def clean(self) -> dict[str, Any]:
        """Build the request, so that what does not fit is refused as when it is queued."""
        cleaned = dict(self.cleaned_data)
        if self.errors:
            return cleaned
        more = cleaned.pop(self.rest) if self.rest else {}
        if not isinstance(more, Mapping):
            got = HIDDEN if self.hides_rest() else repr(more)
            self.add_error(self.rest, _("expected a JSON object, got: %s.") % got)
            return cleaned
        given = {name: value for name, value in cleaned.items() if value is not ABSENT}
        self.arguments = {**given, **more}
        self.check()
        return cleaned

    def check(self) -> None:
        """Note why the arguments cannot be queued, at the field that it is about if that is known."""
        try:
            encoded_input(request_of(self.work_type.name, self.input))
        except NotEncodable as error:
            name = next((name for name in self.fields if f"[{name!r}]" in error.path), None)
            self.add_error(name, str(error))
        except Exception as error:  # options= of the type may raise anything
            self.add_error(None, HIDDEN if redacts(self.work_type.name) else error_text(error))

    @property
    def input(self) -> Any:
        """The new input: arguments by name, or the one input of a batch type."""
        if registry.batch(self.work_type.name):
            return self.arguments[next(iter(self.fields))]
        return self.arguments

    def changes(self) -> list[Change]:
        """Return the inputs that differ from the stored ones, in the order of the form."""
        names = dict.fromkeys([*self.arguments, *self.stored])
        pairs = ((name, self.stored.get(name, ABSENT), self.arguments.get(name, ABSENT)) for name in names)
        return [
            Change(name, self.text(name, old), self.text(name, new))
            for name, old, new in pairs
            if self.differs(old, new)
        ]

    def differs(self, old: Any, new: Any) -> bool:
        """Tell whether a value would be stored otherwise."""
        if old is new or ABSENT in (old, new):
            return old is not new
        return shown_value(self.codec, old) != shown_value(self.codec, new)

    def text(self, name: str, value: Any) -> str:
        """Return a value as it may be shown."""
        if value is ABSENT:
            return NOTHING
        return HIDDEN if name in self.hidden else shown_value(self.codec, value)


def shown_value(codec: Codec, value: Any) -> str:
    """Return a value as the codec writes it."""
    try:
        return printable(json_kind(codec).show(value))
    except Exception:  # a codec of the project's own may raise anything
        return HIDDEN


def hidden_inputs(work: Work, work_type: AnyWorkType) -> set[str]:
    """Return the names of inputs with hidden parts."""
    paths = {*decode_options(work.options).redact, *work_type.settings.redact}
    return paths | {path.partition(".")[0] for path in paths}


def stored_input(work: Work, codec: Codec) -> tuple[dict[str, Any], bool]:
    """Return the stored input by name, and whether it could not be read."""
    try:
        stored = codec.decode(work.input)
    except Exception:  # a codec of the project's own may raise anything
        return {}, True
    if not isinstance(stored, dict) or not all(isinstance(name, str) for name in stored):
        return {}, True
    return stored, False


def refusal(work: Work) -> str:
    """Return why the input of a work cannot be edited; nothing if it can."""
    if work.type == GATE_TYPE:
        text = _("expected a work with a handler, but %(id)s is a gate: its releases are fixed.")
    elif registry.find_anywhere(work.type) is None:
        text = _(
            "expected a work of a type that is known here, but no work is named %(type)r, so nothing tells "
            "which inputs it takes."
        )
    elif work.status not in EDITABLE:
        text = _("expected an ended work, but %(id)s is %(status)s now; nothing was changed.")
    else:
        return ""
    return text % {"id": work.id, "type": work.type, "status": STATUS_LABELS.get(work.status, work.status)}


class EditingAdmin(ButtonsAdmin):
    """Adds the page that edits the input of a work and retries it."""

    def may_edit(self, request: HttpRequest, obj: Work | None) -> bool:
        """Tell whether the user may edit the input of this work and retry it."""
        raise NotImplementedError

    def edit_url(self, request: HttpRequest, obj: Work) -> str | None:
        """Return the address of the form, or None when there is none for this work and user."""
        if refusal(obj) or not self.may_edit(request, obj):
            return None
        return Links(self.admin_site, request).address(Work, "edit", obj.pk)

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the form; a work keeps its form when it is no dead letter any more."""
        if self.opts.proxy:
            return super().get_urls()
        return [self.row_path("edit", self.edit_view), *super().get_urls()]

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Show the form; of a form that is sent, the errors or the difference; once confirmed, retry."""
        work: Work = self.row_for(request, object_id, partial(self.may_edit, request))
        refused = refusal(work)
        work_type = registry.find_anywhere(work.type)
        if work_type is None or work.type == GATE_TYPE or (refused and request.method != "POST"):
            messages.error(request, refused)
            return HttpResponseRedirect(self.address_after(request, work))
        form = InputForm(work, work_type, request.POST if request.method == "POST" else None)
        if request.method != "POST" or not form.is_valid():
            return self.edit_page(request, work, form)
        if refused or request.POST.get("token") != state_token(work):
            messages.error(request, refused or changed(work))
            return self.edit_page(request, work, form)
        return self.confirmed(request, work, form) or self.edit_page(request, work, form, form.changes())

    def confirmed(self, request: HttpRequest, work: Work, form: InputForm) -> HttpResponse | None:
        """Retry the work with the new input, if the difference was confirmed; return where to go then."""
        if "confirm" not in request.POST:
            return None
        user: Any = request.user
        try:
            handle = retry_edited(work.id, form.input, state_token(work), str(user.get_username()))
        except AyeworkError as refused:
            messages.error(request, str(refused))
            return None
        except Error as error:
            show_refusal(request, error)
            return None
        log_done(request, [(work, logged(work, form.changes()))])
        messages.success(request, _("The work was retried with the new input."))
        new = Work(id=handle.id, type=work.type)
        return HttpResponseRedirect(self.address_after(request, new))

    def edit_page(
        self, request: HttpRequest, work: Work, form: InputForm, changes: list[Change] | None = None
    ) -> HttpResponse:
        """Return the form, or the difference between the old input and the new one."""
        context = {
            "title": _("Edit and retry"),
            "has_form": True,
            "media": self.media + form.media,
            "original": work,
            "form": form,
            "changes": changes,
            "asks": changes is not None,
            "entered": [item for item in request.POST.items() if item[0].startswith(f"{PREFIX}-")],
            "token": request.POST.get("token") or state_token(work),
            "as_stored": boxed(work.input) if form.problem and not form.hidden else "",
            "again": work.status == Status.SUCCESS,
            "back": self.address("change", work.pk),
        }
        return self.framed(request, "edit.html", context)


def changed(work: Work) -> str:
    """Return the sentence for a work that is no more as the form has shown it."""
    return _(
        "expected the work %(id)s to be as it was when this form was opened, but it was retried or edited "
        "since. Your entries are still here; open the form again to see the input as it is now."
    ) % {"id": work.id}


def logged(work: Work, changes: list[Change]) -> str:
    """Return what the admin's log says of an edited input."""
    told = [
        f"{change.name}: {Truncator(change.old).chars(LOGGED)} → {Truncator(change.new).chars(LOGGED)}"
        for change in changes
    ]
    text = _("Retried with another input. It was %(status)s. %(changes)s")
    return text % {"status": STATUS_LABELS.get(work.status, work.status), "changes": "; ".join(told)}
