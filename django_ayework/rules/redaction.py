"""Hiding named parts of a work's input from people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django_ayework.rules.codec.text import UnknownTag

HIDDEN = "••••"


def redacted(value: Any, paths: Iterable[str]) -> Any:
    """Return the value with what the dotted paths lead to hidden. Lists are looked through.

    Where a path leads into something that cannot be looked into, all of it is hidden.

    >>> redacted({"card": {"number": 4111, "holder": "Ann"}}, ["card.number"])
    {'card': {'number': '••••', 'holder': 'Ann'}}
    >>> redacted({"cards": [{"number": 4111}], "pin": 17}, ["cards.number", "pin"])
    {'cards': [{'number': '••••'}], 'pin': '••••'}
    >>> redacted({"card": "4111 Ann"}, ["card.number"])
    {'card': '••••'}
    """
    for path in paths:
        value = without(value, path)
    return value


def without(value: Any, path: str) -> Any:
    """Return the value with what one path leads to hidden."""
    if isinstance(value, Mapping) and not isinstance(value, UnknownTag):
        return {key: beyond(key, item, path) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without(item, path) for item in value]
    return None if value is None else HIDDEN


def beyond(key: object, item: Any, path: str) -> Any:
    """Return one item of a mapping: hidden if the path ends at its key, which may have dots of its own."""
    if key == path:
        return HIDDEN
    if isinstance(key, str) and path.startswith(f"{key}."):
        return without(item, path[len(key) + 1 :])
    return item
