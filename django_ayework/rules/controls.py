"""What governs types and queues at run time: declared in code, overruled by operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_WEIGHT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeControl:
    """How a type is served. Limits of 0 are none; ``interval`` is in seconds, None if not continuous."""

    paused: bool = False
    priority: int = 0
    weight: int = DEFAULT_WEIGHT
    max_running: int = 0
    max_claimed: int = 0
    interval: float | None = None

    @property
    def is_ranked(self) -> bool:
        """Whether the type has a place of its own among those of its queue."""
        return self.priority != 0 or self.weight != DEFAULT_WEIGHT


UNCONTROLLED = TypeControl()


@dataclass(frozen=True, slots=True)
class Controls:
    """The controls of every type and queue that has any."""

    types: Mapping[str, TypeControl] = field(default_factory=dict)
    paused_queues: frozenset[str] = frozenset()

    def of(self, type: str) -> TypeControl:
        """Return the control of a type."""
        return self.types.get(type, UNCONTROLLED)

    def permits(self, queue: str, type: str) -> bool:
        """Tell whether neither the queue nor the type is paused."""
        return queue not in self.paused_queues and not self.of(type).paused
