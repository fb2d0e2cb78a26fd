"""Refusals: values that cannot be stored, where they are, and what to pass in their place."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from enum import Enum
from pathlib import PurePath
from typing import Any

from django_ayework.errors import NotEncodable

LONGEST_PATH = 200
#: Steps of a path that are no subscripts.
KEY, MEMBER = "key of ", "{…}"


class Refusal(Exception):
    """A value cannot be stored. The path to the value is collected while the call stack unwinds.

    So paths cost nothing unless a value is refused.
    """

    def __init__(self, *, expected: str, got: str, advice: str) -> None:
        super().__init__(expected, got, advice)
        self.expected = expected
        self.got = got
        self.advice = advice
        self.steps: list[str] = []

    def error(self, root: str) -> NotEncodable:
        """Return the error to show to the caller."""
        path = located(root, self.steps)
        return NotEncodable(f"expected {self.expected}, got: {self.got} at {path}; {self.advice}", path=path)


def located(root: str, steps: list[str]) -> str:
    """Return the path to a value, given the steps from the value up to the root.

    >>> located("order", ["[2]", "['lines']"])
    "order['lines'][2]"
    >>> located("order", [KEY, "['lines']"])
    "key of order['lines']"
    """
    prefix = ""
    while KEY in steps:
        prefix, steps = KEY, steps[steps.index(KEY) + 1 :]
    path = root + "".join(reversed(steps))
    return prefix + (path if len(path) <= LONGEST_PATH else f"{path[:120]}…{path[-60:]}")


def quoted(value: Any, limit: int = 60) -> str:
    """Return the ``repr`` of ``value``, shortened, whatever ``value`` is.

    >>> quoted("tea"), quoted("x" * 100, limit=10)
    ("'tea'", "'xxxxxxxx…")
    """
    try:
        text = repr(str.__str__(value) if isinstance(value, str) else value)
    except Exception:  # a foreign __repr__, or a number with too many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def message_of(error: BaseException) -> str:
    """Return ``str(error)``, or a note if even that fails."""
    try:
        return str(error)
    except Exception:
        return "<its message cannot be read>"


#: Kinds of values that cannot be stored: how to tell them, their names, and the values to pass instead.
REMEDIES: tuple[tuple[Callable[[Any], bool], str, str], ...] = (
    (lambda v: isinstance(v, type), "a class", "pass its dotted name"),
    (
        # A lazy object fakes __class__, and counts as the row it stands for.
        lambda v: hasattr(v.__class__, "_meta") and hasattr(v.__class__, "pk"),
        "a model instance",
        "pass its primary key (.pk) and load it in the handler",
    ),
    (lambda v: v.__class__ is not type(v), "a lazy object", "pass what it stands for, such as str(…) of it"),
    (
        lambda v: hasattr(v, "model") and hasattr(v, "query"),
        "a queryset",
        "pass a list of primary keys and load them in the handler",
    ),
    (lambda v: isinstance(v, Enum), "an enum member", "pass its .value"),
    (lambda v: hasattr(v, "input") and hasattr(v, "options"), "a built work", "queue it and pass its id"),
    (
        lambda v: dataclasses.is_dataclass(type(v)),
        "a dataclass",
        "pass dataclasses.asdict(…) of it, or describe it in a CustomType",
    ),
    (lambda v: hasattr(v, "model_dump"), "a pydantic model", "pass its model_dump()"),
    (lambda v: isinstance(v, PurePath), "a path", "pass str(…) of it"),
    (
        lambda v: hasattr(v, "read") and hasattr(v, "META"),
        "a request",
        "pass what the handler needs of it, such as the primary key of its user",
    ),
    (lambda v: hasattr(v, "read"), "a file", "save it and pass its name"),
    (lambda v: hasattr(type(v), "chain_state"), "a handle", "pass its id (.id)"),
    (lambda v: isinstance(v, Awaitable), "an awaitable", "await it first"),
    (lambda v: isinstance(v, Iterable), "an iterable", "pass list(…) of it"),
    (callable, "a callable", "pass its dotted name"),
)


def unsupported(value: Any) -> Refusal:
    """Return the refusal of ``value``.

    >>> str(unsupported(range(3)).error("rows"))
    'expected a value that can be stored, got: range (an iterable) at rows; pass list(…) of it'
    """
    expected, name = "a value that can be stored", type(value).__name__
    for fits, kind, advice in REMEDIES:
        with suppress(Exception):  # a foreign object may fail to answer
            if fits(value):
                return Refusal(expected=expected, got=f"{name} ({kind})", advice=advice)
    return Refusal(
        expected=expected, got=name, advice="pass plain data, or describe its class in a CustomType"
    )
