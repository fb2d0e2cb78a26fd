"""Who counts the starts of a rate-limited doer: this process, or the fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from django_ayework.doers import seams
from django_ayework.rules.durations import later
from django_ayework.rules.rates import Name, Rate, Verdict


class Limiter(Protocol):
    """Keeps one count per name. What it raises means that nobody knows, and that nothing was counted."""

    def hit(self, name: Name) -> Verdict:
        """Count a start if it is within the limit."""
        ...

    def peek(self, name: Name) -> Verdict:
        """Tell what a hit would be told, without counting one."""
        ...


class FleetLimiter:
    """Counts for all processes, through the Store that the settings name."""

    def __init__(self, make: Callable[[], Rate]) -> None:
        self._make = make
        make()  # so that values which cannot be used are refused at once

    def hit(self, name: Name) -> Verdict:
        """Count a start if it is within the limit."""
        return seams.connections.fleet_hit(self._make(), name)

    def peek(self, name: Name) -> Verdict:
        """Tell what a hit would be told."""
        return seams.connections.fleet_peek(self._make(), name)


class LocalLimiter:
    """Counts in this process; what nobody has asked for in a while is forgotten."""

    def __init__(self, make: Callable[[], Rate], now: Callable[[], datetime] = seams.now) -> None:
        self._make = make
        self._now = now
        self._recent: dict[Name, Rate] = {}
        self._older: dict[Name, Rate] = {}
        self._life = make().life
        self._turns_at = later(now(), self._life)

    def hit(self, name: Name) -> Verdict:
        """Count a start if it is within the limit."""
        return self._rate(name).hit(self._now())

    def peek(self, name: Name) -> Verdict:
        """Tell what a hit would be told."""
        return self._rate(name).peek(self._now())

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def _rate(self, name: Name) -> Rate:
        """Return the count of this name."""
        self._forget()
        rate = self._recent.get(name) or self._older.pop(name, None) or self._make()
        self._recent[name] = rate
        return rate

    def _forget(self) -> None:
        """Drop, once per life of a count, those that were not asked for since the time before."""
        if self._now() >= self._turns_at:
            self._recent, self._older = {}, self._recent
            self._turns_at = later(self._now(), self._life)
