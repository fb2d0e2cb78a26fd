"""Works that cost nothing, so that what is measured is the engine."""

from __future__ import annotations

from django_ayework import Context, Instruction, work


@work(name="bench.noop")
def noop(number: int) -> int:
    """Return the input."""
    return number


@work(name="bench.fan_out")
def fan_out(ctx: Context, children: int) -> Instruction[None, int]:
    """Queue no-op children, and a report that follows them."""
    return ctx.queue([noop(number=number) for number in range(children)]).next([report()])


@work(name="bench.report")
def report(ctx: Context) -> Instruction[int, int]:
    """Return how many works were joined."""
    return ctx.result(len(ctx.dependents))
