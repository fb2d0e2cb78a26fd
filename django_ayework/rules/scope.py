"""Which works a worker serves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """Queues and types to serve, all when empty, and types to leave to others.

    >>> Scope(queues=("mail",), exclude_types=("shop.video",)).serves(("mail", "shop.send"))
    True
    """

    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()

    def serves(self, lane: tuple[str, str]) -> bool:
        """Tell whether works of this queue and type are to be claimed, and taken back."""
        queue, type = lane
        return self.serves_queue(queue) and self.serves_type(type)

    def serves_queue(self, queue: str) -> bool:
        """Tell whether works of this queue are to be claimed, of some types at least."""
        return not self.queues or queue in self.queues

    def serves_type(self, type: str) -> bool:
        """Tell whether works of this type are to be claimed, in the queues that are served."""
        return (not self.types or type in self.types) and type not in self.exclude_types


#: All queues and types.
EVERYTHING = Scope()


def several(names: Iterable[str]) -> tuple[str, ...]:
    """Return names given as several or as one.

    >>> several("mail"), several(["mail", "fax"])
    (('mail',), ('mail', 'fax'))
    """
    return (names,) if isinstance(names, str) else tuple(names)
