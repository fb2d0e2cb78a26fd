"""The description of a type that JSON does not know."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Types with a JSON form of their own; their values cannot be given another one.
NATIVE: tuple[builtins.type, ...] = (type(None), bool, int, float, str, list, dict)


@dataclass(frozen=True, kw_only=True)
class CustomType(Generic[T]):
    """How values of one class, and of its subclasses, are written and read.

    ``to_plain`` may return anything the codec can encode, rich values included; ``from_plain`` gets the same
    back. ``tag`` is stored with every value: choose it once, and keep it when the class is renamed or moved.

    >>> from django_ayework.rules.codec import RichJSON
    >>> point = CustomType(tag="complex", type=complex,
    ...     to_plain=lambda c: [c.real, c.imag], from_plain=lambda parts: complex(*parts))
    >>> codec = RichJSON(extra=[point])
    >>> codec.encode(1 + 2j)
    '{"$ayework":"complex","value":[1.0,2.0]}'
    >>> codec.decode(codec.encode(1 + 2j))
    (1+2j)
    """

    tag: str
    type: builtins.type[T]
    to_plain: Callable[[T], Any]
    from_plain: Callable[[Any], T]

    def __post_init__(self) -> None:
        """Refuse what could never work, where the type is described."""
        if not isinstance(self.tag, str) or not self.tag:
            raise TypeError(f"expected tag to be a text that is not empty, got: {self.tag!r}")
        if not isinstance(self.type, builtins.type):
            raise TypeError(f"expected type to be a class, got: {self.type!r}")
        if self.type in (*NATIVE, object):
            raise ValueError(f"expected a class without a JSON form of its own, got: {self.type.__name__}")
        if not callable(self.to_plain) or not callable(self.from_plain):
            raise TypeError(f"expected to_plain and from_plain of tag {self.tag!r} to be callable")
