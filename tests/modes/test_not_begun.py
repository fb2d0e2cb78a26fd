"""A stage of which nothing has run, as its handler forgot ``with`` or ``await``."""

from __future__ import annotations

import pytest
from tests.modes.kit import run

from django_ayework import Context

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
]


def act() -> None: ...


def prepare(ctx: Context):
    ctx.prepare()


def complete(ctx: Context):
    ctx.complete()


async def aprepare(ctx: Context):
    ctx.aprepare(act)
    await ctx.acomplete(act)


async def acomplete(ctx: Context):
    await ctx.aprepare(act)
    ctx.acomplete(act)


@pytest.mark.parametrize(
    ("handler", "missing", "remedy"),
    [
        (prepare, "with", "with ctx.prepare()"),
        (complete, "with", "with ctx.complete()"),
        (aprepare, "await", "await ctx.aprepare(a_function)"),
        (acomplete, "await", "await ctx.acomplete(a_function)"),
    ],
)
def test_a_stage_that_did_not_begin_fails_the_attempt(handler, missing, remedy, undeclared):
    state = run(handler)
    stage = f"ctx.{handler.__name__} was called without {missing}"
    assert (state.status, state.error) == (
        "dead",
        f"InvalidInstruction: modes.case: {stage}, so nothing of it has run; write {remedy}.",
    )


def test_a_stage_that_was_refused_fails_nothing_by_itself(undeclared):
    def handler(ctx: Context):
        with (
            ctx.complete(),
            pytest.raises(Exception, match="prepare cannot be used after complete"),
            ctx.prepare(),
        ):
            pass

    assert run(handler).status == "success"
