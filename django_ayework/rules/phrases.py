"""Texts that can be shown in another language: a phrase is an English text that knows what it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Phrase(str):
    """A text in English, made of a template and values, or of texts that are joined.

    As a ``str`` it is what programs, logs and commands get. ``flow.words`` shows it in the current language.
    Among the values may be other phrases, and lists of texts, which are joined with commas. The functions
    ``phrase`` and ``phrases`` make it, and mark the template for the catalogues.
    """

    one: str = ""
    many: str = ""
    values: dict[str, Any]
    parts: Sequence[str] = ()
    between: str = ""


def phrase(text: str, /, **values: Any) -> Phrase:
    """Return a text with values in it, by their names.

    >>> phrase("%(name)s has ended, as %(works)s did.", name="a", works=["b", "c"])
    'a has ended, as b, c did.'
    """
    return made(text, "", text, values)


def phrases(one: str, many: str, count: int, /, **values: Any) -> Phrase:
    """Return the text for one thing or for many; ``%(count)d`` is how many.

    >>> phrases("%(count)d work", "%(count)d works", 1), phrases("%(count)d work", "%(count)d works", 3)
    ('1 work', '3 works')
    """
    return made(one, many, one if count == 1 else many, {"count": count, **values})


def made(one: str, many: str, chosen: str, values: dict[str, Any]) -> Phrase:
    """Return a phrase of a template."""
    found = Phrase(filled(chosen, values))
    found.one, found.many, found.values = one, many, values
    return found


def filled(template: str, values: dict[str, Any]) -> str:
    """Return a template with the values in it; one without values is taken as it is."""
    if not values:
        return template
    return template % {
        name: ", ".join(each) if isinstance(each, list) else each for name, each in values.items()
    }


def joined(parts: Sequence[str], between: str = " ") -> Phrase:
    """Return texts one after the other, each a sentence or an item of a list.

    >>> joined([phrase("It has ended."), "Retry it."])
    'It has ended. Retry it.'
    """
    found = Phrase(between.join(parts))
    found.parts, found.between, found.values = parts, between, {}
    return found
