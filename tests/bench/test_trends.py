"""Whether a series grows, and by how much of itself."""

import pytest

from bench.report.trends import Trend, slope


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([1, 2, 3], Trend(1, 0.5)),
        ([4, 4, 4, 4], Trend(0, 0)),
        ([3, 2, 1], Trend(-1, -0.5)),
        ([0, 0], Trend(0, 0)),
        ([7], Trend(0, 0)),
        ([], Trend(0, 0)),
    ],
)
def test_a_trend_is_the_growth_per_step_and_its_share_of_the_mean(values, trend):
    assert slope(values) == trend
