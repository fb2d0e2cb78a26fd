"""Handlers without annotations: nothing is known of them, so nothing is refused."""
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import Any, assert_type

from django_ayework import BatchItem, Context, WorkRequest, batch_work, work


@work(name="types.bare")
def bare(a, b):
    return a + b


assert_type(bare(a=1, b=2).id, str)


@work(name="types.bare_context")
def bare_context(ctx, a, b):
    return ctx.result(a + b)


assert_type(bare_context(a=1, b=2).id, str)


@work(name="types.bare_procedure")
async def bare_procedure(a, b=2):
    pass


assert_type(bare_procedure(a=1).id, str)


@work(name="types.bare_result")
def bare_result(ctx: Context, a: int):
    return ctx.result(a)


assert_type(bare_result(a=1).id, str)


@work(name="types.anything")
def anything(a: int) -> Any:
    return a


assert_type(anything(a=1), WorkRequest[Any, Any])


@batch_work(name="types.bare_batch")
def bare_batch(items):
    return [item.input for item in items]


assert_type(bare_batch(1), WorkRequest[Any, Any])


@batch_work(name="types.half_bare_batch")
def half_bare_batch(items: list[BatchItem[int]]):
    return [item.input for item in items]


assert_type(half_bare_batch(1).id, str)
