"""What tests of chains share: their works, and how they look at a chain."""

from __future__ import annotations

from typing import Any

from django_ayework import Context, WorkState, get_handle, work

#: The steps of ``count`` that ran: (id, chain id, n).
SEEN: list[tuple[Any, ...]] = []


@work(name="t.chain.count")
def count(ctx: Context, n: int, until: int):
    """A loop: the same type again and again."""
    SEEN.append((ctx.id, ctx.chain_id, n))
    return ctx.result(n) if n == until else ctx.continue_with(count(n=n + 1, until=until))


@work(name="t.blockers.gather")
def gather(ctx: Context):
    return ctx.result(list(ctx.blockers))


@work(name="t.chain.onward")
def onward(ctx: Context, of: list[str]):
    """Its continuation is blocked, it is not."""
    return ctx.continue_with(gather(), blockers=of)


def steps_of(id: str) -> tuple[WorkState, ...]:
    """Return the works of the chain of a work, the first first."""
    chain = get_handle(id).chain_state()
    assert chain is not None
    return chain.steps
