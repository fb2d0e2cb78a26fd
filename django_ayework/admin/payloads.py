"""Stored inputs, results and values, for people to read."""

from __future__ import annotations

import json
from pprint import pformat

from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_ayework.admin.words import NOTHING
from django_ayework.rules.codec import Codec

#: Characters of one value that a page shows.
SHOWN = 10_000


def shown(text: str | None, codec: Codec) -> str:
    """Return a stored value as HTML, or a dash for none."""
    return NOTHING if text is None else boxed(readable(text, codec))


def boxed(text: str) -> str:
    """Return a text as HTML that keeps its lines; a long one is cut, and its length told."""
    if len(text) <= SHOWN:
        return format_html('<pre class="ayework-text">{}</pre>', text)
    note = _("The first %(shown)d of %(size)d characters.") % {"shown": SHOWN, "size": len(text)}
    return format_html('<pre class="ayework-text">{}…</pre><p class="help">{}</p>', text[:SHOWN], note)


def readable(text: str, codec: Codec) -> str:
    """Return a stored value laid out over lines; what cannot be decoded is shown as it is stored."""
    try:
        return printable(laid_out(codec.decode(text)))
    except Exception:  # a codec, or a value's own __str__, may raise anything
        return printable(text)


def laid_out(value: object) -> str:
    """Return a decoded value as indented JSON, in which what JSON has no word for is a text."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # such as keys that are not texts
        return pformat(value)


def printable(text: str) -> str:
    """Return a text that can be sent: lone surrogates are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
