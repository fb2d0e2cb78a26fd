"""Fields of a form for the inputs of a handler, from its annotations; inputs without one are JSON."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from inspect import Parameter
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.rules.codec import Codec
from django_ayework.rules.formatting import is_storable

#: Texts that are longer get a field of several lines.
LINE = 80
#: Values that a field of one line can show.
SCALARS = (str, int, float, Decimal, date, time, UUID, Enum, type(None))
#: Stands for a value that was not stored, or not given.
ABSENT: Any = Parameter.empty
WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True)
class Kind:
    """Values of one kind: its name in errors, how a text is read, how a value is shown as text.

    ``choices`` are the values there are by their texts, if they are few.
    """

    expected: Any
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str
    choices: Mapping[str, Any] | None = None
    is_long: bool = False
    takes_empty: bool = False


def whole(text: str) -> int:
    """Read a whole number."""
    if not WHOLE.fullmatch(text.strip()):
        raise ValueError
    return int(text)


def shown_moment(value: Any) -> str:
    """Show a moment, a day or a time as ISO 8601."""
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def shown_boolean(value: Any) -> str:
    """Show True or False."""
    return str(value).lower()


TEXT = Kind(gettext_lazy("a text"), str, takes_empty=True)
BOOLEANS = {"true": True, "false": False}
KINDS: dict[Any, Kind] = {
    str: TEXT,
    int: Kind(gettext_lazy("a whole number"), whole),
    float: Kind(gettext_lazy("a number"), float),
    Decimal: Kind(gettext_lazy("a decimal number"), Decimal),
    UUID: Kind(gettext_lazy("a UUID"), UUID),
    datetime: Kind(
        gettext_lazy("a moment such as 2026-03-01T09:30:00+00:00"), datetime.fromisoformat, shown_moment
    ),
    date: Kind(gettext_lazy("a day such as 2026-03-01"), date.fromisoformat, shown_moment),
    time: Kind(gettext_lazy("a time such as 09:30:00"), time.fromisoformat, shown_moment),
    bool: Kind(gettext_lazy("true or false"), BOOLEANS.__getitem__, shown_boolean, BOOLEANS),
}


def choice_kind(values: Mapping[str, Any], show: Callable[[Any], str]) -> Kind:
    """Return the kind of values that are one of a few."""
    expected = _("one of %(choices)s") % {"choices": ", ".join(values)}
    return Kind(expected, values.__getitem__, show, values)


def enum_kind(enum: type[Enum]) -> Kind:
    """Return the kind of an enumeration of texts or numbers, which are stored as such."""

    def show(value: Any) -> str:
        return str(value.value if isinstance(value, Enum) else value)

    return choice_kind({str(member.value): member.value for member in enum}, show)


def json_kind(codec: Codec) -> Kind:
    """Return the kind of all other values, as the codec writes them."""
    return Kind(_("JSON"), codec.decode, partial(laid_out, codec), is_long=True)


def laid_out(codec: Codec, value: Any) -> str:
    """Return a value as the codec writes it, over several lines if that is JSON."""
    text = codec.encode(value)
    try:
        stored = json.loads(text)
    except ValueError:
        return text
    shown = json.dumps(stored, indent=2, ensure_ascii=False)
    return shown if is_storable(shown) else json.dumps(stored, indent=2)


def kind_of(annotation: Any, codec: Codec) -> tuple[Kind, bool]:
    """Return the kind that an annotation describes, and whether None is one of its values."""
    if get_origin(annotation) is Annotated:
        return kind_of(get_args(annotation)[0], codec)
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        is_optional = len(members) < len(get_args(annotation))
        kind = kind_of(members[0], codec)[0] if len(members) == 1 else json_kind(codec)
        return kind, is_optional
    if get_origin(annotation) is Literal:
        values = [value for value in get_args(annotation) if value is not None]
        kind = choice_kind({str(value): value for value in values}, str)
        return kind, len(values) < len(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum) and issubclass(annotation, (str, int)):
        return enum_kind(annotation), False
    described = KINDS.get(annotation) if isinstance(annotation, type) else None
    return described or json_kind(codec), False


# Fields


class SecretTextarea(forms.Textarea):
    """A field of several lines that is never filled in."""

    def format_value(self, value: Any) -> str | None:
        """Return nothing, whatever there is."""
        return None


class InputField(forms.Field):
    """The field of one input. ``stored`` is its value now, or ABSENT; a hidden one is never filled in."""

    def __init__(
        self,
        kind: Kind,
        stored: Any,
        default: Any = ABSENT,
        is_optional: bool = False,
        is_hidden: bool = False,
    ) -> None:
        self.kind, self.stored, self.is_optional, self.is_hidden = kind, stored, is_optional, is_hidden
        self.default = default
        known = default if stored is ABSENT else stored
        shown = "" if is_hidden or known is ABSENT or known is None else shown_or_nothing(kind, known)
        super().__init__(
            required=False,
            initial=shown,
            widget=widget_for(kind, shown, is_optional, is_hidden),
            help_text=self.help(),
        )

    def help(self) -> str:
        """Return what can be entered."""
        notes = [str(self.kind.expected)[:1].upper() + str(self.kind.expected)[1:] + "."]
        if self.is_hidden:
            notes = [*notes, _("It is not shown. Left empty, it stays as it is.")]
        elif self.is_optional:
            notes = [*notes, _("Left empty, it is None.")]
        if self.default is not ABSENT and self.stored is ABSENT:
            notes = [*notes, _("It was not given; this is the default.")]
        return " ".join(notes)

    @property
    def is_missing(self) -> bool:
        """Whether there is neither a stored value nor a default."""
        return self.stored is ABSENT and self.default is ABSENT

    def clean(self, value: Any) -> Any:
        """Return the value that was entered; the stored one, which may be ABSENT, if it was left as it is."""
        text = without_returns(str(value or ""))
        is_kept = not self.is_missing and text == without_returns(str(self.initial))
        if is_kept and (self.is_hidden or self.stored is ABSENT):
            return self.stored
        entered = None if not text and self.is_optional else self.read(text)
        return self.stored if is_kept else entered

    def read(self, text: str) -> Any:
        """Return the value of a text. Raises ValidationError with the expected kind and the given text."""
        try:
            if not text and not self.kind.takes_empty:
                raise ValueError
            return self.kind.read(text)
        except Exception as error:  # a codec of the project's own may raise anything
            got = _("something else") if self.is_hidden else repr(text[:LINE])
            cause = error.__cause__ or error  # an error of the codec quotes the text once more
            why = f" ({cause})" if self.kind.is_long and str(cause) and not self.is_hidden else ""
            message = _("expected %(expected)s, got: %(got)s%(why)s")
            raise forms.ValidationError(
                message, params={"expected": self.kind.expected, "got": got, "why": why}
            ) from None


def without_returns(text: str) -> str:
    """Return a text with its lines ended as Python ends them; browsers add a carriage return."""
    return text.replace("\r\n", "\n")


def shown_or_nothing(kind: Kind, value: Any) -> str:
    """Return a value as text; nothing if it cannot be shown."""
    try:
        return kind.show(value)
    except Exception:  # a codec, or a value's own __str__, may raise anything
        return ""


def widget_for(kind: Kind, shown: str, is_optional: bool, is_hidden: bool) -> forms.Widget:
    """Return the widget that shows a kind."""
    is_long = kind.is_long or len(shown) > LINE or "\n" in shown
    if kind.choices is not None and not is_hidden:
        none = [("", "—")] if is_optional or shown not in kind.choices else []
        return forms.Select(choices=[*none, *((text, text) for text in kind.choices)])
    if is_long:
        attrs = {"rows": min(20, max(4, shown.count("\n") + 2)), "class": "vLargeTextField"}
        return SecretTextarea(attrs) if is_hidden else forms.Textarea(attrs)
    if is_hidden:
        return forms.PasswordInput(attrs={"class": "vTextField", "autocomplete": "off"})
    return forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"})


def has_field(value: Any) -> bool:
    """Tell whether a field of one line can show a value; a page cannot have half of a surrogate pair."""
    return isinstance(value, SCALARS) and (not isinstance(value, str) or is_storable(value))


def field_of(
    parameter: Parameter, annotations: Mapping[str, Any], codec: Codec, stored: Any, is_hidden: bool
) -> InputField:
    """Return the field of one input of a handler."""
    kind, is_optional = kind_of(annotations.get(parameter.name), codec)
    known = parameter.default if stored is ABSENT else stored
    if known is not ABSENT and not has_field(known):
        kind = json_kind(codec)
    return InputField(kind, stored, parameter.default, is_optional or parameter.default is None, is_hidden)
