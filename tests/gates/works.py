"""The works that gates watch and release here."""

from __future__ import annotations

from typing import Any

from django_ayework import Abort, Context, dependency, enqueue, work
from django_ayework.testing import drain

#: What ran, in order: (label, dependents). A test empties it through the fixture ``ran``.
RAN: list[tuple[str, tuple[str, ...]]] = []
#: Labels of works that are to die.
BROKEN: set[str] = set()


@work(name="gates.step")
def step(ctx: Context, label: str):
    """Run, or die while the label is among the broken ones."""
    if label in BROKEN:
        raise Abort(f"{label} is broken")
    RAN.append((label, ctx.dependents))
    return ctx.result(label)


@work(name="gates.flow")
def flow(ctx: Context, links: list[list[str]], condition: str = "all-success"):
    """Fan out, then go link by link."""
    first, *rest = [[step(label=label) for label in link] for link in links]
    instruction = ctx.queue(first)
    for link in rest:
        instruction = instruction.next(link, condition)  # type: ignore[arg-type]
    return instruction


def labels() -> list[str]:
    """Return what ran, in order."""
    return [label for label, _ in RAN]


def run(*ids: str) -> None:
    """Queue steps whose labels are their ids, then run all that is due."""
    for id in ids:
        enqueue(step(label=id), id=id)
    drain()


def gate_over(on: Any, condition: Any = "all-success", **options: Any) -> Any:
    """Queue a gate that releases the step "after"."""
    return enqueue(dependency([*on], [step(label="after")], condition, **options))


def standing(handle: Any) -> tuple[str, str | None]:
    """Return the status of a work and its reason."""
    state = handle.state()
    return str(state.status), state.reason
