"""The wrapper around values JSON does not know: ``{"$ayework": "<tag>", "value": …}``."""

from __future__ import annotations

from typing import Any

TAG = "$ayework"
VALUE = "value"


def tagged(tag: str, value: Any) -> dict[str, Any]:
    """Wrap ``value``.

    >>> tagged("date", "2026-05-01")
    {'$ayework': 'date', 'value': '2026-05-01'}
    """
    return {TAG: tag, VALUE: value}


class UnknownTag(dict[str, Any]):
    """A wrapper whose tag this codec does not know, written perhaps by a newer release.

    It is a dict with the stored content. Being a class of its own, it can be written back as it was, while a
    mapping of a user that merely looks like it is escaped.
    """

    __slots__ = ()
