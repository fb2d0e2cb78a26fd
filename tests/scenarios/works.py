"""A fan-out and its report, as a project would write them."""

from __future__ import annotations

import os
from pathlib import Path

from django_ayework import Context, work
from tests.processes import eventually


@work(name="scenarios.root")
def root(ctx: Context, children: int, place: str, gated: bool = False):
    pieces = [piece(number=number, place=place, gated=gated) for number in range(children)]
    return ctx.queue(pieces).next([report(place=place)])


@work(name="scenarios.piece")
def piece(ctx: Context, number: int, place: str, gated: bool = False):
    """With ``gated``, wait until the test has seen every worker at work and says go."""
    note(place, f"piece {number}")
    if gated:
        eventually(lambda: (Path(place) / "go").exists() or ctx.signal.aborted)
    return ctx.result(number, append=lambda total: (total or 0) + number)


@work(name="scenarios.report")
def report(ctx: Context, place: str):
    note(place, "report")
    states = ctx.states(ctx.dependents)
    return ctx.result([len(ctx.dependents), states.count("success")], append=lambda total: total)  # type: ignore[arg-type]


def note(place: str, line: str) -> None:
    """Add a line to this process's own file."""
    with (Path(place) / f"{os.getpid()}").open("a") as file:
        file.write(f"{line}\n")
