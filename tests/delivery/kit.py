"""What delivers ids in tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django_ayework.ports.queue import LocalQueue, PoppedId


class Carrier(LocalQueue):
    """Notes what is pushed, popped and acknowledged; may lose ids, give each twice, or be away."""

    def __init__(self) -> None:
        super().__init__()
        self.pushed: list[str] = []
        self.popped: list[str] = []
        self.acknowledged: list[str] = []
        self.times = 1
        self.error: BaseException | None = None
        self.refused = 0
        self.reported: list[tuple[str, str]] = []

    def push(self, name: str, ids: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        self.pushed += ids
        super().push(name, [id for id in ids for _ in range(self.times)])

    def pop(self, names: Sequence[str], most: int, wait: float) -> list[PoppedId]:
        if self.error is not None:
            self.refused += 1
            raise self.error
        popped = super().pop(names, most, min(wait, 0.05))
        self.popped += [each.id for each in popped]
        return popped

    def ack(self, popped: Iterable[PoppedId]) -> None:
        popped = list(popped)
        self.acknowledged += [each.id for each in popped]
        super().ack(popped)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, and nothing was popped that is not acknowledged."""
        with self._changed:
            return not self._popped and not any(self._waiting.values())
