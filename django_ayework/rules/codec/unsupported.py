"""What to say about values that have no stored form, and what to pass instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple

from django_ayework.rules.codec.refusal import Refusal

STORABLE = "a value that can be stored"


class Remedy(NamedTuple):
    """A kind of value people try to pass, and what they should pass."""

    fits: Callable[[Any], bool]
    kind: str
    advice: str


def is_model(value: Any) -> bool:
    """Tell whether ``value`` is, or lazily stands for, a row of a Django model."""
    return hasattr(value.__class__, "_meta") and hasattr(value.__class__, "pk")


def is_queryset(value: Any) -> bool:
    """Tell whether ``value`` looks like a queryset."""
    return hasattr(value, "model") and hasattr(value, "query")


def is_dataclass(value: Any) -> bool:
    """Tell whether ``value`` is an instance of a dataclass."""
    return dataclasses.is_dataclass(type(value))


REMEDIES = (
    Remedy(lambda v: isinstance(v, type), "a class", "pass its dotted name"),
    Remedy(is_model, "a model instance", "pass its primary key (.pk) and load it in the handler"),
    Remedy(is_queryset, "a queryset", "pass a list of primary keys and load them in the handler"),
    Remedy(lambda v: isinstance(v, Enum), "an enum member", "pass its .value"),
    Remedy(is_dataclass, "a dataclass", "pass dataclasses.asdict(…) of it, or describe it in a CustomType"),
    Remedy(lambda v: hasattr(v, "model_dump"), "a pydantic model", "pass its model_dump()"),
    Remedy(lambda v: isinstance(v, PurePath), "a path", "pass str(…) of it"),
    Remedy(lambda v: hasattr(v, "read"), "a file", "save it and pass its name"),
    Remedy(lambda v: isinstance(v, Awaitable), "an awaitable", "await it first"),
    Remedy(lambda v: isinstance(v, Iterable), "an iterable", "pass list(…) of it"),
    Remedy(callable, "a callable", "pass its dotted name"),
)

OTHERWISE = "pass plain data, or describe its class in a CustomType"


def unsupported(value: Any) -> Refusal:
    """Return the refusal of ``value``.

    >>> str(unsupported(range(3)).error("rows"))
    'expected a value that can be stored, got: range (an iterable) at rows; pass list(…) of it'
    """
    name = type(value).__name__
    for remedy in REMEDIES:
        if fits(remedy, value):
            return Refusal(expected=STORABLE, got=f"{name} ({remedy.kind})", advice=remedy.advice)
    return Refusal(expected=STORABLE, got=name, advice=OTHERWISE)


def fits(remedy: Remedy, value: Any) -> bool:
    """Ask, and take any failure of a foreign object as a no."""
    try:
        return remedy.fits(value)
    except Exception:
        return False
