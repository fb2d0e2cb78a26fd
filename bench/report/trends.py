"""Whether a series grows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Trend:
    """The straight line nearest to a series: its growth per step, and that as a share of the mean."""

    growth: float
    share: float


def slope(values: Sequence[float]) -> Trend:
    """Return the trend of a series by least squares; a series of zeros or of one value does not grow."""
    if len(values) < 2:
        return Trend(0.0, 0.0)
    growth = statistics.linear_regression(range(len(values)), values).slope
    mean = statistics.fmean(values)
    return Trend(growth, growth / mean if mean else 0.0)
