"""All types of work, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from django_ayework.define.work_type import WorkType
from django_ayework.errors import UnknownWorkType, did_you_mean

AnyWorkType: TypeAlias = WorkType[..., Any, Any]


class Registry:
    """Types of work by name. Two handlers of one name are remembered, for the system check to report."""

    def __init__(self) -> None:
        self._types: dict[str, AnyWorkType] = {}
        self.clashes: dict[str, tuple[str, str]] = {}

    def register(self, work_type: AnyWorkType) -> None:
        """Add a type; the same function again (a reload) replaces itself."""
        known = self._types.get(work_type.name)
        if known is not None and origin(known) != origin(work_type):
            self.clashes[work_type.name] = (origin(known), origin(work_type))
        self._types[work_type.name] = work_type

    def unregister(self, name: str) -> None:
        """Forget a type; an unknown one is ignored."""
        self._types.pop(name, None)
        self.clashes.pop(name, None)

    def find(self, name: str) -> AnyWorkType | None:
        """Return the type of this name, or None."""
        return self._types.get(name)

    def get(self, name: str) -> AnyWorkType:
        """Return the type of this name; raise UnknownWorkType suggesting the nearest."""
        found = self._types.get(name)
        if found is None:
            raise UnknownWorkType(
                f"no work is named {name!r}.{did_you_mean(name, self._types)} "
                "A work is known once its app is in INSTALLED_APPS and its works.py defines it."
            )
        return found

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(self._types)

    def __iter__(self) -> Iterator[AnyWorkType]:
        return iter(list(self._types.values()))


def origin(work_type: AnyWorkType) -> str:
    """Return where a type's handler is defined."""
    return f"{work_type.handler.__module__}.{work_type.handler.__qualname__}"


registry = Registry()
