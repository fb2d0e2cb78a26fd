"""What prepare and complete refuse."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

from django_ayework import Context, completing, enqueue, work
from django_ayework.errors import ImproperWork, InvalidInstruction, InvalidOption
from tests.app.works import add
from tests.modes.kit import run

pytestmark = pytest.mark.django_db


def prepare_twice(ctx: Context):
    with ctx.prepare():
        pass
    with ctx.prepare():
        pass


def complete_twice(ctx: Context):
    with ctx.complete():
        pass
    with ctx.complete():
        pass


def prepare_last(ctx: Context):
    with ctx.complete():
        pass
    with ctx.prepare():
        pass


def nested(ctx: Context):
    with ctx.prepare(), ctx.complete():
        pass


def own_transaction(ctx: Context):
    with transaction.atomic(), ctx.complete():
        pass


async def plain_in_async(ctx: Context):
    with ctx.complete():
        pass


def other_thread(ctx: Context):
    errors = []

    def complete():
        try:
            with ctx.complete():
                pass
        except InvalidInstruction as error:
            errors.append(error)

    thread = threading.Thread(target=complete)
    thread.start()
    thread.join()
    raise errors[0]


async def aprepare_twice(ctx: Context):
    await ctx.aprepare(lambda: None)
    await ctx.aprepare(lambda: None)


async def aprepare_last(ctx: Context):
    try:
        await ctx.acomplete(lambda: 1 / 0)
    except ZeroDivisionError:
        await ctx.aprepare(lambda: None)


def two_outcomes(ctx: Context):
    with ctx.complete():
        ctx.result(1)
        ctx.result(2)


def another_outcome(ctx: Context):
    with ctx.complete():
        ctx.result(1)
    return 2


def coroutine(ctx: Context):
    async def later(): ...

    with ctx.complete():
        return later()


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (prepare_twice, "prepare can only be used once"),
        (complete_twice, "complete can only be used once"),
        (prepare_last, "prepare cannot be used after complete"),
        (nested, "complete cannot be used inside prepare"),
        (own_transaction, "complete cannot be used inside transaction.atomic()"),
        (plain_in_async, "complete is for plain handlers; write await ctx.acomplete(a_function)"),
        (other_thread, "complete can only be used in the thread of the handler"),
        (aprepare_twice, "prepare can only be used once"),
        (aprepare_last, "prepare cannot be used after complete"),
        (two_outcomes, "expected one instruction for 'modes.case', got 2"),
        (another_outcome, "returned 2, but complete has given another outcome already"),
        (coroutine, "declare it with async def"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_misuse_fails_the_attempt_and_says_why(handler, message):
    state = run(handler)
    assert state.status == "dead"
    assert message in state.error


def test_an_async_function_for_a_plain_handler_is_refused():
    import asyncio

    def handler(ctx: Context):
        asyncio.run(ctx.acomplete(lambda: None))

    assert "acomplete is for async handlers; write with ctx.complete()" in run(handler).error


@pytest.mark.parametrize("stage", ["prepare", "complete"])
def test_a_stage_of_an_async_handler_takes_a_plain_function(stage):
    async def write(): ...

    async def handler(ctx: Context):
        await getattr(ctx, f"a{stage}")(write)

    assert run(handler).error == (
        f"InvalidInstruction: modes.case: ctx.a{stage}(write) expects a plain function, as Django's "
        "transactions are for plain code, and write() returned a coroutine; write it with def."
    )


@pytest.mark.parametrize("stage", ["prepare", "complete"])
def test_an_atomic_work_has_no_stages(stage):
    def handler(ctx: Context):
        with getattr(ctx, stage)():
            pass

    state = run(handler, atomic=True)
    assert f"{stage} cannot be used in an atomic=True work, which is one transaction already" in state.error


def test_outside_of_a_handler_there_are_no_stages():
    handle = enqueue(add(a=1, b=2))
    with (
        pytest.raises(InvalidInstruction, match="prepare and complete are for running handlers"),
        completing(handle.id) as ctx,
        ctx.complete(),
    ):
        pass


def test_an_async_handler_cannot_be_atomic():
    async def handler(): ...

    with pytest.raises(ImproperWork, match=r"atomic=True needs a plain function, and .*handler\(\) is async"):
        work(name="modes.never", atomic=True)(handler)


def test_atomic_is_yes_or_no():
    with pytest.raises(InvalidOption, match="expected atomic to be True or False, got: 'yes'"):
        work(name="modes.never", atomic="yes")(lambda: None)
