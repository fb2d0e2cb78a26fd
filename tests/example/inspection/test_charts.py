"""The geometry of the bar chart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.audit.charts import LABEL, bar_chart, shares, text_bars


def test_no_rows_make_an_empty_chart() -> None:
    assert bar_chart([]).bars == ()
    assert bar_chart([]).height == 0
    assert text_bars([]) == []


def test_bars_start_under_their_label_and_do_not_overlap() -> None:
    chart = bar_chart([("a", 10, "10 B"), ("b", 5, "5 B")])
    first, second = chart.bars
    assert first.text_y < first.y
    assert first.y + first.height < second.text_y
    assert second.y + second.height <= chart.height
    assert (first.width, second.width) == (100.0, 50.0)


@given(st.lists(st.integers(min_value=0, max_value=10**15)))
def test_shares_stay_within_the_chart_and_keep_the_order(values: list[int]) -> None:
    widths = shares(values)
    assert all(0 <= width <= 100 for width in widths)
    assert all((width > 0) == (value > 0) for width, value in zip(widths, values, strict=True))
    paired = sorted(zip(values, widths, strict=True))
    assert [width for _, width in paired] == sorted(widths)


def test_a_long_label_is_cut_and_kept_whole_for_the_title() -> None:
    [bar] = bar_chart([("x" * 99, 1, "1 B")]).bars
    assert len(bar.label) == LABEL
    assert bar.full_label == "x" * 99


@pytest.mark.parametrize(("value", "blocks"), [(100, "████"), (50, "██"), (1, "▏"), (0, "")])
def test_text_bars(value: int, blocks: str) -> None:
    line = text_bars([("top", 100, "top"), ("a", value, "v")], width=4)[1]
    assert line == f"a    {blocks:<4}  v"
