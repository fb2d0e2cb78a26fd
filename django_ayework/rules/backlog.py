"""When somebody is to be told that work piles up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogInfo:
    """What ``ON_BACKLOG`` is given: how much runs, how much waits, and for how many seconds some has waited.

    ``queued`` is None where nobody can say.
    """

    active: int
    queued: int | None
    behind_for: float


class Episode:
    """A time in which something waits without a break, from ``since`` on.

    ``after`` is how many seconds it may last untold; it is told again ``every`` so many seconds, or once
    only. Moments are seconds on any clock that does not step back.

    >>> episode = Episode(since=100.0, after=10, every=None)
    >>> episode.told(105.0), episode.told(110.0), episode.told(500.0)
    (None, 10.0, None)
    """

    def __init__(self, since: float, after: float, every: float | None) -> None:
        self.since = since
        self.every = every
        #: When somebody is to be told next; None for never again.
        self.due_at: float | None = since + after

    def told(self, now: float) -> float | None:
        """Return how long it has lasted, if somebody is to be told now, and note that it is done."""
        if self.due_at is None or now < self.due_at:
            return None
        self.due_at = None if self.every is None else now + self.every
        return now - self.since
