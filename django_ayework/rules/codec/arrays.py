"""Lists, tuples, sets and frozen sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_ayework.rules.codec.refusal import MEMBER, Refusal
from django_ayework.rules.codec.tags import tagged
from django_ayework.rules.codec.text import write
from django_ayework.rules.codec.walk import Walk


def write_list(walk: Walk, value: list[Any]) -> Any:
    """Write a JSON array."""
    walk.require_thawed(value, "a tuple")
    return elements(walk, value)


def write_tuple(walk: Walk, value: tuple[Any, ...]) -> Any:
    """Write a tagged array."""
    return tagged("tuple", elements(walk, value))


def write_set(walk: Walk, value: set[Any]) -> Any:
    """Write a tagged array."""
    walk.require_thawed(value, "a frozenset")
    return tagged("set", members(walk, value))


def write_frozenset(walk: Walk, value: frozenset[Any]) -> Any:
    """Write a tagged array."""
    return tagged("frozenset", members(walk, value))


def elements(walk: Walk, values: Iterable[Any]) -> list[Any]:
    """Return the plain forms of the elements, in order."""
    plain: list[Any] = []
    with walk.inside(values):
        try:
            for value in values:
                plain.append(walk.plain(value))
        except Refusal as refusal:
            refusal.steps.append(f"[{len(plain)}]")
            raise
    return plain


def members(walk: Walk, values: Iterable[Any]) -> list[Any]:
    """Return the plain forms of the members, sorted by their text so that equal sets are written alike."""
    with walk.inside(values):
        try:
            return sorted((walk.hashable(value) for value in values), key=write)
        except Refusal as refusal:
            refusal.steps.append(MEMBER)
            raise


def read_tuple(plain: Any) -> tuple[Any, ...]:
    """Read a tuple."""
    return tuple(require_list(plain))


def read_set(plain: Any) -> set[Any]:
    """Read a set; raise TypeError if a member cannot be hashed."""
    return set(require_list(plain))


def read_frozenset(plain: Any) -> frozenset[Any]:
    """Read a frozen set; raise TypeError if a member cannot be hashed."""
    return frozenset(require_list(plain))


def require_list(plain: Any) -> list[Any]:
    """Return ``plain``, which must be a list."""
    if type(plain) is not list:
        raise TypeError("expected a list")
    return plain
