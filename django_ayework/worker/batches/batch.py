"""Works of one type that run together: one call of the handler, in one slot."""

from __future__ import annotations

from collections.abc import Iterable

from django_ayework.worker.attempts.delivery import Delivery


class Batch:
    """Deliveries of one batch type."""

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self.deliveries = tuple(deliveries)
        self._runs: bool | None = None

    @property
    def type(self) -> str:
        """The name of the type."""
        return self.deliveries[0].row.type

    def start(self) -> bool:
        """Mark the attempts as started, once; False when none is left to run.

        Works that were given back, or lost while they waited, are left out.
        """
        if self._runs is None:
            started = [each.start() for each in self.deliveries if not each.signal.aborted]
            self._runs = any(started)
        return self._runs

    def __str__(self) -> str:
        return f"a batch of {len(self.deliveries)} {self.type}"
