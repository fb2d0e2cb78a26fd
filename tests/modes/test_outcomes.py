"""Phases of an attempt: their errors, their outcomes, and what prepare and complete refuse."""

import asyncio
import threading
from contextlib import suppress

import pytest
from django.db import Error, IntegrityError, connection, transaction

from django_ayework import (
    Context,
    Retry,
    cancel,
    complete,
    completing,
    delete_chains,
    dependency,
    enqueue,
    work,
)
from django_ayework.errors import ImproperWork, InvalidInstruction, InvalidOption
from django_ayework.models import Attempt, Work
from django_ayework.testing import assert_enqueued, drain, perform, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.marks import on_sqlite
from tests.modes.works import acompletes, atomic, completes, note, notes, plain, staged, staged_async

pytestmark = pytest.mark.django_db
#: mode, the phase that breaks, what the first attempt leaves, what the second one adds.
BOTH = ["prepare 2", "complete 2"]
PHASES = [
    (plain, "after", ["before 1"], ["before 2"]),
    (atomic, "before", [], ["handler 2"]),
    (atomic, "after", [], ["handler 2"]),
    (staged, "prepare", [], BOTH),
    *[(staged, broken, ["prepare 1"], BOTH) for broken in ("between", "complete", "built", "after")],
    (staged_async, "prepare", [], BOTH),
    *[(staged_async, broken, ["prepare 1"], BOTH) for broken in ("between", "complete")],
]
#: A database error in a block; outside of any it undoes the attempt in a TestCase, see the guide.
BADLY = {("modes.atomic", "after"), ("modes.staged", "complete"), ("modes.staged_async", "prepare")}
CASES = [
    *(pytest.param(*phase, "raises", marks=on_sqlite) for phase in PHASES),
    *((*phase, "queries badly") for phase in PHASES if (phase[0].name, phase[1]) in BADLY),
]


def run(handler, **options):
    """Declare a handler, queue it, run it; return its state."""
    handle = enqueue(work(name="modes.case", retry=Retry(attempts=1), **options)(handler)())
    drain(raises=False)
    return handle.state()


@pytest.mark.parametrize(("mode", "broken", "left", "added", "how"), CASES)
def test_an_error_leaves_what_the_mode_promises(mode, broken, left, added, how):
    handle = enqueue(mode(broken=broken, how=how))
    gate = enqueue(dependency(on=[handle], queue=[add(a=5, b=6)]))
    drain(limit=1, raises=False)
    assert notes() == left
    assert handle.state().status in ("pending", "scheduled")
    assert (gate.state().status, Work.objects.count()) == ("blocked", 2)
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "failed")]
    drain()
    assert notes() == left + added
    assert (handle.state().status, handle.state().attempt) == ("success", 2)
    for a in (1, 3, 5):
        assert_enqueued(add, a=a)
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}
    assert Work.objects.count() == 6


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["raises", "queries badly"])
def test_an_error_leaves_what_the_mode_promises_in_a_worker(how, caplog):
    with running_worker():
        for number, (mode, broken, left, added) in enumerate(PHASES, start=1):
            handle = enqueue(mode(broken=broken, how=how))
            handle.group(timeout=20)
            assert notes() == left + added, (mode, broken)
            assert (handle.state().status, handle.state().attempt) == ("success", 2)
            assert Work.objects.count() == 4 * number
            Order.objects.all().delete()
    assert "came too late" not in caplog.text, "an outcome was settled twice"


def spoiled_by_a_model(ctx: Context) -> str:
    order = Order.objects.create(reference="first")
    with ctx.prepare():
        note(ctx, "prepare")
        with suppress(IntegrityError):
            Order.objects.create(pk=order.pk)
    return "charged"


def spoiled_by_a_statement(ctx: Context) -> str:
    with ctx.prepare(), connection.cursor() as cursor:
        note(ctx, "prepare")
        with suppress(Error):
            cursor.execute("no statement")
    return "charged"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("handler", [spoiled_by_a_model, spoiled_by_a_statement])
def test_prepare_does_not_lose_its_rows_to_an_error_of_the_database_that_was_caught(handler):
    handle = enqueue(work(name="modes.case", retry=Retry(attempts=1))(handler)())
    with running_worker(burst=True) as worker:
        worker._thread.join(20)
    if handle.state().status == "success":
        assert notes() == ["prepare 1"], "this database undoes the statement alone"
    else:
        assert "expected the handler not to catch an error of the database" in handle.state().error


def returned_outside(ctx: Context):
    with ctx.complete():
        outcome = ctx.result("it")
    return outcome


def built_before(ctx: Context):
    outcome = ctx.result("it")
    with ctx.complete():
        return outcome


def second_thoughts(ctx: Context):
    try:
        with ctx.complete():
            note(ctx, "complete")
            ctx.result("never")
            raise ValueError
    except ValueError:
        return ctx.result("it")


@pytest.mark.parametrize(
    "handler",
    [
        completes(lambda ctx: ctx.result("it")),
        completes(lambda ctx: print(ctx.result("it"))),
        completes(lambda ctx: "it"),
        acompletes(lambda ctx: ctx.result("it")),
        acompletes(lambda ctx: print(ctx.result("it"))),
        acompletes(lambda ctx: "it"),
        returned_outside,
        built_before,
        second_thoughts,
    ],
    ids=["returned", "built", "a value", "areturned", "abuilt", "an avalue", "outside", "before", "second"],
)
@on_sqlite
def test_the_outcome_of_the_block_is_that_of_the_work(handler):
    state = run(handler)
    assert (state.status, state.result) == ("success", "it")
    assert perform(work(name="modes.case")(handler)()).result == "it"
    assert notes() == []


OWN = "InvalidInstruction: expected a handler not to end its own work"


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda ctx: object(), "NotEncodable"),
        (lambda ctx: ctx.result(1, append=lambda existing: 1 / 0), "ZeroDivisionError: division by zero"),
        (lambda ctx: cancel(ctx.id) and None, OWN),
        (lambda ctx: cancel(group=ctx.group_id) and None, OWN),
        (lambda ctx: complete(ctx.id) and None, OWN),
        (lambda ctx: delete_chains(ctx.id) and None, OWN),
    ],
    ids=["cannot be stored", "append fails", "cancels itself", "its group", "completes itself", "is deleted"],
)
def test_an_outcome_that_cannot_be_written_undoes_the_transaction(act, error):
    def handler(ctx: Context):
        note(ctx, "handler")
        return act(ctx)

    for state in (run(handler, atomic=True), run(completes(handler))):
        assert state.status == "dead"
        assert state.error.startswith(error)
        assert notes() == []


@on_sqlite
@pytest.mark.parametrize(
    ("is_failing", "text"), [(True, "too late"), (False, "given another outcome already")]
)
def test_an_end_of_an_async_handler_after_complete_is_reported_and_changes_nothing(
    is_failing, text, reported
):
    async def handler(ctx: Context):
        await ctx.acomplete(lambda: note(ctx, "complete"))
        if is_failing:
            raise RuntimeError("too late")
        return "another"

    state = run(handler)
    assert (state.status, state.attempt, notes()) == ("success", 1, ["complete 1"])
    assert [text in line for line, _ in reported] == [True]


@on_sqlite
@pytest.mark.parametrize("mode", [atomic, staged, staged_async], ids=lambda mode: mode.name)
def test_perform_keeps_what_a_handler_wrote_and_queues_nothing(mode):
    performed = perform(mode(broken=""))
    assert performed.error is None
    assert len(performed.instruction.items) == 1
    assert notes()[-1] in ("handler 1", "complete 1")
    assert Work.objects.count() == 0


@pytest.mark.parametrize("how", [pytest.param("raises", marks=on_sqlite), "queries badly"])
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


def using(*stages: str):
    """Return a handler that uses these stages one after the other."""

    def handler(ctx: Context):
        for stage in stages:
            with getattr(ctx, stage)():
                pass

    return handler


def nested(ctx: Context):
    with ctx.prepare(), ctx.complete():
        pass


def own_transaction(ctx: Context):
    with transaction.atomic(), ctx.complete():
        pass


async def plain_in_async(ctx: Context):
    using("complete")(ctx)


def async_in_plain(ctx: Context):
    asyncio.run(ctx.acomplete(lambda: None))


def other_thread(ctx: Context):
    errors = []

    def act():
        try:
            using("complete")(ctx)
        except InvalidInstruction as error:
            errors.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    raise errors[0]


async def aprepare_twice(ctx: Context):
    for _ in range(2):
        await ctx.aprepare(lambda: None)


async def aprepare_last(ctx: Context):
    try:
        await ctx.acomplete(lambda: 1 / 0)
    except ZeroDivisionError:
        await ctx.aprepare(lambda: None)


def another_outcome(ctx: Context):
    with ctx.complete():
        ctx.result(1)
    return 2


def two_outcomes(ctx: Context):
    with ctx.complete():
        ctx.result(1)
        ctx.result(2)


async def later(): ...


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (using("prepare", "prepare"), "prepare can only be used once"),
        (using("complete", "complete"), "complete can only be used once"),
        (using("complete", "prepare"), "prepare cannot be used after complete"),
        (nested, "complete cannot be used inside prepare"),
        (own_transaction, "complete cannot be used inside transaction.atomic()"),
        (plain_in_async, "complete is for plain handlers; write await ctx.acomplete(a_function)"),
        (async_in_plain, "acomplete is for async handlers; write with ctx.complete()"),
        (other_thread, "complete can only be used in the thread of the handler"),
        (aprepare_twice, "prepare can only be used once"),
        (aprepare_last, "prepare cannot be used after complete"),
        (two_outcomes, "expected one instruction for 'modes.case', got 2"),
        (another_outcome, "returned 2, but complete has given another outcome already"),
        (completes(lambda ctx: later()), "declare it with async def"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@on_sqlite
def test_a_misuse_fails_the_attempt_and_says_why(handler, message):
    state = run(handler)
    assert state.status == "dead"
    assert message in state.error


@on_sqlite
@pytest.mark.parametrize("stage", ["prepare", "complete"])
def test_a_stage_takes_a_plain_function_and_an_atomic_work_has_none(stage):
    async def write(): ...

    async def handler(ctx: Context):
        await getattr(ctx, f"a{stage}")(write)

    assert run(handler).error == (
        f"InvalidInstruction: modes.case: ctx.a{stage}(write) expects a plain function, as Django's "
        "transactions are for plain code, and write() returned a coroutine; write it with def."
    )
    message = f"{stage} cannot be used in an atomic=True work, which is one transaction already"
    assert message in run(using(stage), atomic=True).error


@on_sqlite
def test_stages_and_atomic_are_refused_where_they_make_no_sense():
    async def handler(): ...

    with pytest.raises(ImproperWork, match=r"atomic=True needs a plain function, and .*handler\(\) is async"):
        work(name="modes.never", atomic=True)(handler)
    with pytest.raises(InvalidOption, match="expected atomic to be True or False, got: 'yes'"):
        work(name="modes.never", atomic="yes")(lambda: None)
    handle = enqueue(add(a=1, b=2))
    with (
        pytest.raises(InvalidInstruction, match="prepare and complete are for running handlers"),
        completing(handle.id) as ctx,
        ctx.complete(),
    ):
        pass


# Stages that did not begin, because their handler forgot with or await


def act() -> None: ...


def without_prepare(ctx: Context):
    ctx.prepare()


def without_complete(ctx: Context):
    ctx.complete()


async def without_aprepare(ctx: Context):
    ctx.aprepare(act)
    await ctx.acomplete(act)


async def without_acomplete(ctx: Context):
    await ctx.aprepare(act)
    ctx.acomplete(act)


@pytest.mark.parametrize(
    ("handler", "missing", "remedy"),
    [
        (without_prepare, "with", "with ctx.prepare()"),
        (without_complete, "with", "with ctx.complete()"),
        (without_aprepare, "await", "await ctx.aprepare(a_function)"),
        (without_acomplete, "await", "await ctx.acomplete(a_function)"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@on_sqlite
def test_a_stage_that_did_not_begin_fails_the_attempt(handler, missing, remedy, undeclared):
    state = run(handler)
    stage = f"ctx.{handler.__name__.removeprefix('without_')} was called without {missing}"
    assert (state.status, state.error) == (
        "dead",
        f"InvalidInstruction: modes.case: {stage}, so nothing of it has run; write {remedy}.",
    )


@on_sqlite
def test_a_stage_that_was_refused_fails_nothing_by_itself(undeclared):
    def handler(ctx: Context):
        with (
            ctx.complete(),
            pytest.raises(Exception, match="prepare cannot be used after complete"),
            ctx.prepare(),
        ):
            pass

    assert run(handler).status == "success"
