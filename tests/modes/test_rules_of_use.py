"""What prepare and complete refuse, and what the outcome of a block is."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

from django_ayework import Context, Retry, cancel, complete, completing, enqueue, work
from django_ayework.errors import ImproperWork, InvalidInstruction, InvalidOption
from django_ayework.testing import drain, perform
from tests.app.models import Order
from tests.app.works import add
from tests.modes.works import atomic, note, notes, staged, staged_async

pytestmark = pytest.mark.django_db
ONCE = Retry(attempts=1)


def run(handler, **options):
    """Declare a handler, queue it, run it; return its state."""
    handle = enqueue(work(name="modes.case", retry=ONCE, **options)(handler)())
    drain()
    return handle.state()


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


def returned_inside(ctx: Context):
    with ctx.complete():
        return ctx.result("it")


def built_inside(ctx: Context):
    with ctx.complete():
        ctx.result("it")


def returned_outside(ctx: Context):
    with ctx.complete():
        outcome = ctx.result("it")
    return outcome


def plain_value(ctx: Context):
    with ctx.complete():
        return "it"


def built_before(ctx: Context):
    outcome = ctx.result("it")
    with ctx.complete():
        return outcome


async def returned_by_function(ctx: Context):
    return await ctx.acomplete(lambda: ctx.result("it"))


async def built_by_function(ctx: Context):
    await ctx.acomplete(lambda: print(ctx.result("it")))


async def value_of_function(ctx: Context):
    return await ctx.acomplete(lambda: "it")


def second_thoughts(ctx: Context):
    try:
        with ctx.complete():
            note(ctx, "complete")
            ctx.result("never")
            raise ValueError
    except ValueError:
        return ctx.result("it")


OUTCOMES = [
    returned_inside,
    built_inside,
    returned_outside,
    plain_value,
    built_before,
    returned_by_function,
    built_by_function,
    value_of_function,
    second_thoughts,
]


@pytest.mark.parametrize("handler", OUTCOMES, ids=lambda handler: handler.__name__)
def test_the_outcome_of_the_block_is_that_of_the_work(handler):
    state = run(handler)
    assert (state.status, state.result) == ("success", "it")
    assert notes() == []


@pytest.mark.parametrize("handler", OUTCOMES, ids=lambda handler: handler.__name__)
def test_perform_gives_it_too(handler):
    assert perform(work(name="modes.case")(handler)()).result == "it"


def test_an_outcome_that_cannot_be_stored_undoes_the_block():
    def handler(ctx: Context):
        with ctx.complete():
            note(ctx, "complete")
            return object()

    state = run(handler)
    assert state.status == "dead"
    assert state.error.startswith("NotEncodable")
    assert notes() == []


def test_an_append_that_raises_undoes_an_atomic_work_and_is_its_error():
    def handler(ctx: Context):
        note(ctx, "handler")
        return ctx.result(1, append=lambda existing: 1 / 0)

    state = run(handler, atomic=True)
    assert (state.status, state.error) == ("dead", "ZeroDivisionError: division by zero")
    assert notes() == []


@pytest.mark.parametrize("act", [cancel, complete])
def test_a_work_that_ends_itself_in_its_own_transaction_fails(act):
    """Its end is rolled back with the rest, so nobody else will end it."""

    def handler(ctx: Context):
        note(ctx, "handler")
        act(ctx.id)

    state = run(handler, atomic=True)
    assert (state.status, state.error.partition(":")[0]) == ("dead", "Aborted")
    assert notes() == []


async def failing_after(ctx: Context):
    await ctx.acomplete(lambda: note(ctx, "complete"))
    raise RuntimeError("too late")


async def contradicting_after(ctx: Context):
    await ctx.acomplete(lambda: note(ctx, "complete"))
    return "another"


@pytest.mark.parametrize(
    ("handler", "text"), [(failing_after, "too late"), (contradicting_after, "given another outcome already")]
)
def test_what_an_async_handler_does_after_complete_is_reported_and_changes_nothing(handler, text, settings):
    reported: list[str] = []
    settings.AYEWORK = {"ON_ERROR": lambda error, phase: reported.append(str(error))}
    state = run(handler)
    assert (state.status, state.attempt, notes()) == ("success", 1, ["complete 1"])
    assert [text in line for line in reported] == [True]


@pytest.mark.parametrize("mode", [atomic, staged, staged_async], ids=lambda mode: mode.name)
def test_perform_keeps_what_a_handler_wrote_and_queues_nothing(mode):
    from django_ayework.models import Work

    performed = perform(mode(broken=""))
    assert performed.error is None
    assert len(performed.instruction.items) == 1
    assert notes()[-1] in ("handler 1", "complete 1")
    assert Work.objects.count() == 0


@pytest.mark.parametrize("how", ["raises", "queries badly"])
@pytest.mark.parametrize(
    ("mode", "broken", "left"),
    [
        (atomic, "after", []),
        (staged, "complete", ["prepare 1"]),
        (staged, "after", ["prepare 1"]),
        (staged_async, "complete", ["prepare 1"]),
    ],
)
def test_perform_undoes_what_the_mode_undoes(mode, broken, left, how):
    assert perform(mode(broken=broken, how=how)).error is not None
    assert notes() == left
    assert Order.objects.count() == len(left)
