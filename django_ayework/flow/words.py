"""Shows the phrases of the rules, which know nothing of Django, in the current language."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext, ngettext

from django_ayework.rules.phrases import Phrase, filled


def in_words(text: str) -> str:
    """Return a phrase in the current language; any other text as it is."""
    if not isinstance(text, Phrase):
        return text
    if text.parts:
        return text.between.join(in_words(part) for part in text.parts)
    if not text.one:
        return str(text)
    template = ngettext(text.one, text.many, text.values["count"]) if text.many else gettext(text.one)
    return filled(template, {name: shown(value) for name, value in text.values.items()})


def shown(value: Any) -> Any:
    """Return a value of a phrase in the current language."""
    if isinstance(value, list):
        return [in_words(each) for each in value]
    return in_words(value) if isinstance(value, str) else value
