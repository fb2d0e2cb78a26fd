"""A fan-out and its report, as a project would write them."""

from __future__ import annotations

import os
from pathlib import Path

from django_ayework import Context, work
from tests.processes import eventually


@work(name="scenarios.root")
def root(ctx: Context, children: int, place: str):
    halves = ["first half"] * (children // 2) + ["second half"] * (children // 2)
    pieces = [piece(number=number, place=place, half=half) for number, half in enumerate(halves)]
    return ctx.queue(pieces).next([report(place=place)])


@work(name="scenarios.piece")
def piece(ctx: Context, number: int, place: str, half: str):
    """Wait until the test lets this half of the pieces go on."""
    note(place, f"piece {number}")
    eventually(lambda: (Path(place) / half).exists() or ctx.signal.aborted)
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
