"""The short cut: is a value made only of what JSON can say, exactly?"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from django_ayework.rules.codec.tags import TAG

#: Containers may be nested this deep. A fixed limit, well inside Python's own, means that what one process
#: could write another can read, whatever the depth of its stack.
MAX_DEPTH = 100

#: Whole numbers of this size and beyond are tagged: many JSON readers would round them.
BIG = 2**53

ATOMS = frozenset({str, bool, type(None)})
TEXT_ONLY = frozenset({str})


def is_plain(value: Any) -> bool:
    """Tell whether ``json`` alone would bring ``value`` back unchanged.

    >>> is_plain({"a": [1, None, "x"]}), is_plain({"a": (1,)}), is_plain({1: "a"})
    (True, False, False)
    """
    if type(value) is dict:  # as inputs are: one step less
        return has_names(value) and all_plain(value.values(), MAX_DEPTH - 1)
    return all_plain((value,), MAX_DEPTH)


def all_plain(values: Iterable[Any], room: int) -> bool:
    """Tell whether all ``values`` are plain and nested at most ``room`` deep."""
    for value in values:
        kind = type(value)
        if kind in ATOMS:
            continue
        if kind is int:
            plain = -BIG < value < BIG
        elif kind is float:
            plain = isfinite(value)
        elif kind is list:
            plain = room > 0 and all_plain(value, room - 1)
        else:
            plain = kind is dict and room > 0 and has_names(value) and all_plain(value.values(), room - 1)
        if not plain:
            return False
    return True


def has_names(value: dict[Any, Any]) -> bool:
    """Tell whether a dict has text for keys, none of them our tag."""
    return TAG not in value and TEXT_ONLY.issuperset(map(type, value))
