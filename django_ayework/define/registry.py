"""All types of work of this process, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from django_ayework.define.requests import providers
from django_ayework.define.types import BatchType, WorkType
from django_ayework.errors import ImproperWork, UnknownWorkType, did_you_mean
from django_ayework.rules.explain.reasons import listed

AnyWorkType: TypeAlias = WorkType[..., Any, Any]
AnyBatchType: TypeAlias = BatchType[..., Any, Any]

#: How many modules a message names at most.
MOST_MODULES = 20


class Registry:
    """Types of work by name. Two handlers of one name are remembered, for the system check to report."""

    def __init__(self) -> None:
        self._types: dict[str, AnyWorkType] = {}
        self.clashes: dict[str, tuple[str, str]] = {}
        self._targets: set[str | None] = set()
        #: Grows with every change.
        self.version = 0

    def register(self, work_type: AnyWorkType) -> None:
        """Add a type; the same function again (a reload) replaces itself."""
        known = self._types.get(work_type.name)
        if known is not None and origin(known) != origin(work_type):
            self.clashes[work_type.name] = (origin(known), origin(work_type))
        self._types[work_type.name] = work_type
        self._note_targets()

    def unregister(self, name: str) -> None:
        """Forget a type; an unknown one is ignored."""
        self._types.pop(name, None)
        self.clashes.pop(name, None)
        self._note_targets()

    def _note_targets(self) -> None:
        """Note which types are named by another's ``then=``; claims need the set often."""
        self.version += 1
        self._targets = {known.settings.then for known in self._types.values()}

    def find(self, name: str) -> AnyWorkType | None:
        """Return the type of this name, or None."""
        return self._types.get(name)

    def batch(self, name: str) -> AnyBatchType | None:
        """Return the type of this name if its works run in batches, else None."""
        found = self._types.get(name)
        return found if isinstance(found, BatchType) else None

    def get(self, name: str) -> AnyWorkType:
        """Return the type of this name; raise UnknownWorkType suggesting the nearest."""
        found = self._types.get(name)
        if found is None:
            raise UnknownWorkType(
                f"no work is named {name!r}.{did_you_mean(name, self._types)} "
                "A work is known once its app is in INSTALLED_APPS and its works.py defines it, or imports "
                f"the module that does. {self.loaded()}"
            )
        return found

    def order_of(self, name: str) -> Literal["time", "unit"]:
        """Return the order in which works of a type are claimed when their priority is the same.

        The default is "unit" for types named by another's ``then=``, and "time" for others.
        """
        found = self._types.get(name)
        if found is not None and found.settings.order is not None:
            return found.settings.order
        return "unit" if name in self._targets else "time"

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(self._types)

    def loaded(self) -> str:
        """Return the modules that define the registered types, as a sentence."""
        modules = sorted({work_type.handler.__module__ for work_type in self._types.values()})
        if not modules:
            return "No module that defines works is loaded here."
        return f"Works are loaded here from {listed(modules[:MOST_MODULES], len(modules))}."

    def __iter__(self) -> Iterator[AnyWorkType]:
        return iter(list(self._types.values()))


def default_name(handler: Callable[..., Any], decorator: str) -> str:
    """Return ``"<app_label>.<function name>"``; raise when the function is in no installed app."""
    label = providers.app_label_of(handler.__module__)
    if label is None:
        is_loaded = hasattr(providers, "enqueue")
        hint = "" if is_loaded else " (django_ayework itself is not loaded: is it in INSTALLED_APPS?)"
        raise ImproperWork(
            f"{handler.__module__}.{handler.__qualname__} is in no installed app, so it has no name; "
            f'give one: {decorator}(name="...").{hint}'
        )
    return f"{label}.{handler.__name__}"


def origin(work_type: AnyWorkType) -> str:
    """Return where a type's handler is defined."""
    return f"{work_type.handler.__module__}.{work_type.handler.__qualname__}"


registry = Registry()
