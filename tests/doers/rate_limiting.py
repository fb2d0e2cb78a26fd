"""Rate-limited doers on a clock that is moved by hand, and a limiter that breaks."""

from __future__ import annotations

from functools import partial
from typing import Any

from django_ayework.doers.rate_limited import Limits, LocalLimiter, RateLimited
from django_ayework.rules.rates import FixedWindow
from tests.doers.kit import Inline, Time


class Kit:
    """Builds doers that go by a clock, and notes what they run."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.ran: list[str] = []

    def doer(
        self, limit=1, window=1.0, kind=FixedWindow, inner=None, key=None, per_label=None
    ) -> RateLimited:
        overall = LocalLimiter(partial(kind, limit, window), self.time.now)
        labels = LocalLimiter(partial(kind, *per_label), self.time.now) if per_label else None
        return self.of(Limits(overall, labels, key), limit, inner)

    def of(self, limits: Limits, limit: int = 100, inner=None) -> RateLimited:
        return RateLimited(limit, limits, inner or Inline(), self.time.timer)

    def submit(self, doer, *names: str, **hints: Any) -> None:
        for name in names:
            doer.submit(partial(self.ran.append, name), **hints)

    def run(self, seconds: float = 0.0) -> list[str]:
        """What runs within this time."""
        before = len(self.ran)
        self.time.advance(seconds)
        return self.ran[before:]


class Broken:
    """A limiter that raises so many times, and then allows everything."""

    def __init__(self, times: int) -> None:
        self.times = times

    def hit(self, name):
        if self.times:
            self.times -= 1
            raise ConnectionError("no store")
        return FixedWindow(1, 1).hit(Time().now())

    peek = hit
