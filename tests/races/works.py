"""What races; run by worker processes too."""

from __future__ import annotations

from django_ayework import Context, work


@work(name="races.step")
def step(ctx: Context, number: int = 0):
    return ctx.result(number)


@work(name="races.join", options=lambda of: {"blockers": of})
def join(ctx: Context, of: list[str]):
    return ctx.result(sum(ctx.blockers))


@work(name="races.tally")
def tally(ctx: Context, number: int):
    return ctx.result(number, append=lambda total: (total or 0) + number)


@work(name="races.tally_all")
def tally_all(ctx: Context, numbers: int):
    return ctx.queue([tally(number=number) for number in range(numbers)])
