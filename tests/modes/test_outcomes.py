"""What the outcome of a block is, what an end without one leaves, and that ``perform`` does the same."""

from __future__ import annotations

import pytest

from django_ayework import Context, cancel, complete, work
from django_ayework.testing import perform
from tests.app.models import Order
from tests.modes.kit import run
from tests.modes.works import atomic, note, notes, staged, staged_async

pytestmark = pytest.mark.django_db


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
