"""Curves, drawn to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def plot(path: Path, title: str, steps: str, series: Mapping[str, Sequence[float]]) -> str:
    """Draw each series, from 0 up, one below the other; return where they are, or why they are not."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "nowhere, as matplotlib is not installed"
    figure = Figure(figsize=(8, 1.8 * len(series)), layout="constrained")
    every_axes = figure.subplots(len(series), sharex=True, squeeze=False)[:, 0]
    for axes, (name, values) in zip(every_axes, series.items(), strict=True):
        axes.plot(range(len(values)), values, marker="o", markersize=3)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(name, fontsize=8)
        axes.grid(alpha=0.3)
    every_axes[-1].set_xlabel(steps)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)
    return str(path)
