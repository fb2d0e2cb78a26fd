"""The parts of a page: sections, texts for people, links, stored values.

A value is a text, or HTML made by ``format_html``; templates escape the former.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pprint import pformat
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib.admin import AdminSite
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.utils import quote
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.text import Truncator
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.explain import condition_of
from django_ayework.models import Group, Waiter, Work
from django_ayework.rules.codec import Codec
from django_ayework.rules.conditions import Count
from django_ayework.rules.formatting import Phrase, duration, filled
from django_ayework.rules.retry import RetryPolicy
from django_ayework.store.database import rows

NOTHING = "–"
#: Where a long name may break.
AFTER_SEPARATOR = re.compile(r"(?<=[._:/-])(?=.)")
#: Characters of one stored value that a page shows.
SHOWN = 10_000


# Sections


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and a value; a wide one takes a line of its own."""

    label: str
    value: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page under a title; ``more`` is the address of what did not fit."""

    title: str
    facts: Sequence[Fact] = ()
    table: Table | None = None
    note: str = ""
    more: str | None = None


def listing(title: str, table: Table, note: str = "", more: str | None = None) -> list[Section]:
    """Return a section with a table; none for a table without rows."""
    return [Section(title, table=table, note=note, more=more)] if table.rows else []


@dataclass(frozen=True, slots=True)
class Page:
    """A page: a headline, and sections."""

    headline: str
    sections: Sequence[Section]


# Texts


def badge(kind: str, word: Any) -> str:
    """Return a state in its colour, as HTML."""
    return format_html('<span class="ayework-status ayework-{}">{}</span>', kind, word)


def type_name(type: str) -> str:
    """Return a type as people know it: gates have one of the engine's own."""
    return str(_("gate")) if type == GATE_TYPE else type


def short(id: str) -> str:
    """Return an id short enough for a column; generated ids differ in their last figures.

    >>> short("0199f3a1-72c4-7a11-9a3e-2f6d2c90b7e1"), short("order-17")
    ('…2c90b7e1', 'order-17')
    """
    return id if len(id) <= 12 else f"…{id[-8:]}"


def short_in_full(id: str, text: str | None = None) -> str:
    """Return an id as HTML, shortened or as another text; in full on hovering."""
    return format_html('<span class="ayework-id" title="{}">{}</span>', id, text or short(id))


def first_line(text: str, length: int) -> str:
    """Return the first line of an error, shortened."""
    lines = text.strip().splitlines()
    return Truncator(lines[0]).chars(length) if lines else ""


def error_line(text: str, length: int = 140) -> str:
    """Return the first line of an error as HTML, shortened."""
    return format_html('<span class="ayework-error">{}</span>', first_line(text, length))


def full_moment(at: datetime | None) -> str:
    """Return a moment to the second, in the current time zone."""
    return NOTHING if at is None else date_format(localtime(at), "j M Y H:i:s T")


def moment(at: datetime | None, now: datetime) -> str:
    """Return a moment for a column: the time if it is of today, else the day too."""
    if at is None:
        return NOTHING
    here = localtime(at)
    is_today = here.date() == localtime(now).date()
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        here.isoformat(),
        full_moment(at),
        date_format(here, "H:i:s" if is_today else "j M H:i"),
    )


def optional_duration(seconds: float | None) -> str:
    """Return a duration, or a dash for none."""
    return NOTHING if seconds is None else duration(seconds)


def policy(retry: RetryPolicy) -> str:
    """Return a retry policy as a sentence."""
    attempts = ngettext("%(count)d attempt", "%(count)d attempts", retry.attempts) % {"count": retry.attempts}
    if retry.attempts == 1:
        return attempts
    text = _(
        "%(attempts)s; the first wait is %(base)s, each next one %(factor)g times as long, at most %(max)s"
    )
    waits = {"base": duration(retry.base), "factor": retry.factor, "max": duration(retry.max)}
    text %= {"attempts": attempts, **waits}
    if not retry.jitter:
        return text
    return _("%(policy)s, less up to %(share)d %% at random") % {"policy": text, "share": retry.jitter * 100}


def condition(waiter: Waiter) -> str:
    """Return a gate's condition in words; as it is stored if it cannot be read."""
    condition = condition_of(waiter)
    if condition is None:
        return str(waiter.condition)
    if isinstance(condition, Count):
        many = _("%(count)d succeeded") if condition.of == "success" else _("%(count)d ended")
        return many % {"count": condition.n}
    return _("all succeeded") if condition == "all-success" else _("all ended")


# Links


@dataclass(frozen=True, slots=True)
class Links:
    """Makes links for one user. A page that the user may not open is named without a link."""

    site: AdminSite
    request: HttpRequest

    def work(self, id: str | None, text: str | None = None) -> str:
        """Return a link to a work, or a dash for none."""
        return NOTHING if id is None else linked(self.address(Work, "change", id), text or id)

    def short_work(self, id: str | None) -> str:
        """Return a link to a work for a column, or a dash for none."""
        return format_html('<span class="ayework-id">{}</span>', self.work(id, id and short(id)))

    def group(self, id: str | None) -> str:
        """Return a link to a group, or a dash for none."""
        return NOTHING if id is None else linked(self.address(Group, "change", id), id)

    def about(self, label: str | None, key: str | None) -> str:
        """Return a link to the object that a work is about, if the admin has a page for it."""
        if label is None or key is None:
            return NOTHING
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError):  # its app is gone
            return f"{label}:{key}"
        return linked(self.address(model, "change", key), f"{label}:{key}")

    def works_where(self, **filters: str) -> str | None:
        """Return the address of the list of works with these filters, or None."""
        address = self.address(Work, "changelist")
        return address and f"{address}?{urlencode(filters)}"

    def address(self, model: type[Model], page: str, *keys: str) -> str | None:
        """Return the address of a page, or None when there is none or the user may not open it."""
        if not self.may_view(model):
            return None
        return found_address(self.site, f"{model._meta.app_label}_{model._meta.model_name}_{page}", *keys)

    def may_view(self, model: type[Model]) -> bool:
        """Tell whether the model has a page that the user may open."""
        model_admin = admin_of(self.site, model)
        return model_admin is not None and bool(model_admin.has_view_or_change_permission(self.request))


def admin_of(site: AdminSite, model: type[Model]) -> Any:
    """Return the admin of a model on this site, which decides who may look and act; None for no admin."""
    try:
        return site.get_model_admin(model)
    except NotRegistered:
        return None


def seen_works(site: AdminSite, request: HttpRequest) -> QuerySet[Work]:
    """Return the works that the admin of works shows to the user; all works on a site without one."""
    work_admin = admin_of(site, Work)
    found: QuerySet[Work] = rows(Work).all() if work_admin is None else work_admin.get_queryset(request)
    return found


def found_address(site: AdminSite, page: str, *keys: str) -> str | None:
    """Return the address of a page of an admin site, or None on a site without this page."""
    try:
        return reverse(f"admin:{page}", args=[quote(key) for key in keys], current_app=site.name)
    except NoReverseMatch:
        return None


def linked(address: str | None, text: str) -> str:
    """Return a link as HTML, or the text alone without an address."""
    return text if address is None else format_html('<a href="{}">{}</a>', address, text)


def linked_name(address: str | None, name: str) -> str:
    """Return a link to what has this name; a long name breaks after its dots and underscores."""
    parts = format_html_join(mark_safe("<wbr>"), "{}", ((part,) for part in AFTER_SEPARATOR.split(name)))
    return format_html('<span class="ayework-name">{}</span>', linked(address, parts))


# Stored values


def shown(text: str | None, codec: Codec) -> str:
    """Return a stored value as HTML, or a dash for none."""
    return NOTHING if text is None else boxed(readable(text, codec))


def choice_label(row: Model, field: str) -> str:
    """Return the label of the choice that a row has in this field."""
    label: str = getattr(row, f"get_{field}_display")()
    return label


def boxed(text: str) -> str:
    """Return a text as HTML that keeps its lines; a long text is cut, with a note of its length."""
    if len(text) <= SHOWN:
        return format_html('<pre class="ayework-text" tabindex="0">{}</pre>', text)
    note = _("The first %(shown)d of %(size)d characters.") % {"shown": SHOWN, "size": len(text)}
    return format_html(
        '<pre class="ayework-text" tabindex="0">{}…</pre><p class="help">{}</p>', text[:SHOWN], note
    )


def readable(text: str, codec: Codec) -> str:
    """Return a stored value laid out over lines; a value that cannot be decoded is shown as it is stored."""
    try:
        return printable(laid_out(codec.decode(text)))
    except Exception:  # a codec, or a value's own __str__, may raise anything
        return printable(text)


def laid_out(value: object) -> str:
    """Return a decoded value as indented JSON; a part that JSON cannot express becomes a text."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # such as keys that are not texts
        return pformat(value)


def printable(text: str) -> str:
    """Return a text that can be encoded: lone surrogates are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


# Phrases of the rules, which know nothing of Django, in the current language


def in_words(text: str) -> str:
    """Return a phrase in the current language; any other text as it is."""
    if not isinstance(text, Phrase):
        return text
    if text.parts:
        return text.between.join(in_words(part) for part in text.parts)
    if not text.one:
        return str(text)
    template = ngettext(text.one, text.many, text.values["count"]) if text.many else _(text.one)
    return filled(template, {name: shown_value(value) for name, value in text.values.items()})


def shown_value(value: Any) -> Any:
    """Return a value of a phrase in the current language."""
    if isinstance(value, list):
        return [in_words(each) for each in value]
    return in_words(value) if isinstance(value, str) else value


# Changes by a form in words, for the log of the admin

#: Characters of a value that the log keeps.
LONGEST = 200


def field_in_words(value: Any) -> str:
    """Return a value of a field in words; nothing for none."""
    if value is None or value == "":
        return _("nothing")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return str(value)[:LONGEST]


def changed_in_words(form: Any) -> str:
    """Return a sentence for each field that a valid form has changed."""
    changes = []
    for name in form.changed_data:
        old, new = (field_in_words(values.get(name)) for values in (form.initial, form.cleaned_data))
        words = {"field": form.fields[name].label or name, "old": old, "new": new}
        changes.append(_("%(field)s: %(old)s → %(new)s.") % words)
    return " ".join(changes)
