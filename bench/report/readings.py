"""Figures, as they were taken."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Reading:
    """One figure of one contestant: a number per round, or the reason why there is none."""

    phase: str
    contestant: str
    database: str
    setting: str
    figure: str
    rounds: tuple[float, ...] = ()
    reason: str = ""

    @property
    def median(self) -> float:
        """The median of the rounds, of which there must be one."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half of the distance between the extremes, as a share of the median."""
        half = (max(self.rounds) - min(self.rounds)) / 2
        return half / self.median if self.median else 0.0

    @property
    def more_is_better(self) -> bool:
        """Whether this figure is a rate rather than a cost."""
        return self.figure == "jobs/s"

    def as_json(self) -> dict[str, Any]:
        """Return what from_json() reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Reading:
        """Return what as_json() has written."""
        return cls(**{**found, "rounds": tuple(found["rounds"])})


def best(readings: Iterable[Reading]) -> Reading | None:
    """Return the reading with the best median, or None when none has a figure."""
    measured = [reading for reading in readings if reading.rounds]
    if not measured:
        return None
    choose = max if measured[0].more_is_better else min
    return choose(measured, key=lambda reading: reading.median)
