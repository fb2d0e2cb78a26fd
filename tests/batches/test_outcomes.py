"""How the works of a batch end: together where the handler failed, and each by itself in all else."""

import asyncio

import pytest

from django_ayework import (
    Abort,
    Context,
    Defer,
    Reschedule,
    Retry,
    WorkFailed,
    batch_work,
    dependency,
    enqueue,
    enqueue_many,
    retry,
    work,
)
from django_ayework.models import Attempt, Work
from tests.batches.works import AT_ONCE, hundred, three, three_async
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db
KINDS = pytest.mark.parametrize("kind", [three, three_async], ids=["plain", "async"])


def raising(error: BaseException, times: int = 1):
    """Raise in the first so many runs, then double."""
    left = [error] * times

    def act(items):
        if left:
            raise left.pop()
        return [2 * item.input for item in items]

    return act


@KINDS
def test_each_work_gets_the_output_of_its_place(drain, stage, kind, settings):
    events = []
    settings.AYEWORK = {"ON_EVENT": events.append}
    handles = enqueue_many([kind(number) for number in range(7)])
    report = drain()
    assert (report.ran, report.succeeded) == (7, 7)
    assert [handle.result() for handle in handles] == [0, 2, 4, 6, 8, 10, 12]
    assert stage.runs == [[0, 1, 2], [3, 4, 5], [6]]
    assert [(item.id, item.attempt) for item in stage.items] == [(handle.id, 1) for handle in handles]
    for handle in handles:
        assert [event.kind for event in events if event.id == handle.id] == ["queued", "started", "succeeded"]


@on_sqlite
@pytest.mark.parametrize(
    ("act", "results"),
    [
        (lambda items: tuple(item.input for item in items), [0, 1]),
        (lambda items: [None] * len(items), [None, None]),
        (lambda items: [Work.objects.filter(status="running").count()] * len(items), [2, 2]),
    ],
    ids=["tuple", "none", "queries of the test's transaction"],
)
def test_outputs_may_be_a_tuple_or_none_or_queried(drain, stage, act, results):
    stage.act = act
    handles = enqueue_many([three(number) for number in range(2)])
    drain()
    assert [handle.result() for handle in handles] == results


@on_sqlite
@KINDS
@pytest.mark.parametrize(
    ("error", "first", "attempts", "end"),
    [
        (RuntimeError("no luck"), {"retried": 3, "succeeded": 3}, [1] * 3 + [2] * 3, ("success", None)),
        (Defer(delay=60), {"deferred": 3}, [1] * 6, ("success", None)),
        (Reschedule(delay=60), {"retried": 3}, [1] * 3 + [2] * 3, ("success", None)),
        (Abort("no card"), {"dead": 3}, [1] * 3, ("dead", "aborted")),
    ],
    ids=["error", "deferral", "reschedule", "abort"],
)
def test_what_the_handler_raises_holds_for_all(drain, stage, kind, time_travel, error, first, attempts, end):
    stage.act = raising(error)
    handles = enqueue_many([kind(number) for number in range(3)])
    report = drain(raises=False)
    assert {name: getattr(report, name) for name in first} == first
    time_travel(61)
    drain()
    assert [item.attempt for item in stage.items] == attempts
    assert {(handle.state().status, handle.state().reason) for handle in handles} == {end}
    if isinstance(error, RuntimeError):
        assert set(Attempt.objects.values_list("outcome", "error")) == {("failed", "RuntimeError: no luck")}
        assert "raise left.pop()" in Attempt.objects.first().traceback


def test_each_has_a_budget_of_its_own(drain, stage):
    stage.act = raising(RuntimeError("no luck"), times=2)
    short, long = enqueue(three(1), retry=Retry(attempts=1)), enqueue(three(2))
    drain(raises=False)
    assert (short.state().status, short.state().reason) == ("dead", "exhausted")
    assert (long.result(), long.state().attempt) == (4, 3)
    assert stage.runs == [[1, 2], [2], [2]]


@on_sqlite
@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ([], "0 outputs for 3 inputs; return a list with one output per item"),
        ([1, 2], "2 outputs for 3 inputs; "),
        ((1, 2, 3, 4), "4 outputs for 3 inputs; "),
        (None, "a non-list (None) for 3 inputs; "),
        ({1: 1, 2: 2, 3: 3}, "a non-list ({1: 1, 2: 2, 3: 3}) for 3 inputs; "),
        ("abc", "a non-list ('abc') for 3 inputs; "),
    ],
    ids=["none", "too few", "too many", "nothing", "mapping", "text"],
)
def test_outputs_that_do_not_match_the_inputs_fail_the_run_and_are_retried(drain, stage, returned, text):
    stage.act = lambda items: returned if len(stage.runs) % 2 else [0] * len(items)
    for kind in (three, three_async):
        enqueue_many([kind(number) for number in range(3)])
        report = drain()
        assert (report.retried, report.succeeded) == (3, 3), kind
        errors = list(
            Attempt.objects.filter(error__contains=f'"{kind.name}"').values_list("error", flat=True)
        )
        assert len(errors) == 3, kind
        for error in errors:
            assert error.startswith(f'InvalidInstruction: batch "{kind.name}" returned {text}')


@on_sqlite
def test_advice_is_asked_for_each_work_and_a_deferral_holds_for_all(drain, stage, time_travel):
    """As that of a service's "too many requests", which concerns the call and not its items."""
    calls = []

    def advise(error, info):
        calls.append((str(error), info.id, info.type, info.attempt, info.attempts))
        if len(stage.runs) == 1:
            return Defer(delay=15)
        return "abort" if info.id == handles[1].id else None

    @batch_work(name="t.batches.advised", on_failure=advise, retry=AT_ONCE)
    def advised(items):
        stage.enter(items)
        if len(stage.runs) < 3:
            raise ValueError("odd")
        return [item.attempt for item in items]

    handles = enqueue_many([advised(number) for number in range(3)])
    drain()
    assert {handle.state().status for handle in handles} == {"scheduled"}
    time_travel(16)
    drain(raises=False)
    assert [handle.state().status for handle in handles] == ["success", "dead", "success"]
    assert (handles[0].result(), handles[1].state().reason) == (2, "aborted")
    assert calls[3:] == [("odd", handle.id, "t.batches.advised", 1, 3) for handle in handles]


def test_an_output_that_is_an_exception_or_cannot_be_stored_fails_its_work_alone(drain, stage):
    answers = {1: ValueError("odd"), 2: Defer(delay=60), 3: Abort("no card"), 4: "four", 5: object()}
    stage.act = lambda items: [answers[item.input] for item in items]
    handles = [enqueue(hundred(number), retry=Retry(attempts=1)) for number in answers]
    report = drain(raises=False)
    assert (report.succeeded, report.dead, report.deferred) == (1, 3, 1)
    states = [handle.state() for handle in handles]
    assert [state.status for state in states] == ["dead", "scheduled", "dead", "success", "dead"]
    assert [state.reason for state in states] == ["exhausted", None, "aborted", None, "exhausted"]
    with pytest.raises(WorkFailed, match="ValueError: odd"):
        handles[0].result()
    assert handles[3].result() == "four"
    assert "NotEncodable" in states[4].error


@on_sqlite
def test_a_coroutine_of_a_plain_handler_fails_all(drain, stage):
    async def later():
        return [1]

    stage.act = lambda items: later()
    enqueue_many([three(number) for number in range(3)], retry=Retry(attempts=1))
    assert drain(raises=False).dead == 3
    for error in Work.objects.values_list("error", flat=True):
        assert "is a plain function that returned a coroutine" in error


def test_works_that_cannot_run_are_left_out(drain, stage, time_travel):
    late, bad, good = enqueue(three(1), expires=10), enqueue(three(1)), enqueue(three(2))
    Work.objects.filter(id=bad.id).update(input='{"number":1}')
    time_travel(11)
    report = drain(raises=False)
    assert (late.state().reason, late.state().attempt) == ("expired", 0)
    assert bad.state().reason == "bad_input"
    assert (good.result(), stage.runs, report.ran) == (4, [[2]], 3)
    enqueue(three(1), expires=10)
    time_travel(11)
    assert drain().dead == 1
    assert stage.runs == [[2]], "a batch without works does not run"


@on_sqlite
def test_the_shortest_timeout_of_its_works_bounds_an_async_run(drain, stage):
    @batch_work(name="t.batches.slow", timeout=60, retry=Retry(attempts=1))
    async def slow(items):
        await asyncio.sleep(60)

    handles = [enqueue(slow(1)), enqueue(slow(2), timeout=0.01)]
    drain(raises=False)
    error = "AttemptTimeout: the batch ran longer than 0.01 seconds, the shortest timeout of its works."
    assert {handle.state().error for handle in handles} == {error}


def test_draining_keeps_to_its_limit_and_to_priorities(drain, stage):
    enqueue_many([three(number) for number in range(5)])
    enqueue_many([three(number) for number in (10, 11)], priority=5)
    assert (drain(limit=2).ran, drain(limit=4).ran) == (2, 4)
    assert stage.runs == [[10, 11], [0, 1, 2], [3]]
    drain()
    enqueue_many([three(number) for number in range(3)])
    enqueue_many([three(number) for number in (10, 11)], priority=5)
    drain()
    assert stage.runs[-2:] == [[10, 11, 0], [1, 2]]


def test_a_work_retried_by_hand_can_be_given_another_input(drain, stage):
    stage.act = raising(Abort("no"))
    handle = enqueue(three(1))
    drain()
    retry(handle.id, 21)
    drain()
    assert handle.result() == 42


@on_sqlite
@KINDS
def test_one_item_alone_is_performed(perform, stage, kind):
    performed = perform(kind(4), attempt=2)
    assert (performed.result, performed.error) == (8, None)
    assert [(item.input, item.attempt) for item in stage.items] == [(4, 2)]
    assert Work.objects.count() == 0
    raised, given = ValueError("raised"), ValueError("given")
    stage.act = raising(raised)
    assert perform(kind(1)).error is raised
    stage.act = lambda items: [given]
    assert perform(kind(1)).error is given
    for outputs, message in (([], "returned 0 outputs for 1 inputs"), ([object()], "cannot be stored")):
        stage.act = lambda items, outputs=outputs: outputs
        assert message in str(perform(kind(1)).error)


@work(name="batches.sum")
def sum_of(ctx: Context) -> int:
    return len([status for status in ctx.states(ctx.dependents) if status == "success"])


@work(name="batches.fan_out")
def fan_out(ctx: Context, numbers: list[int]):
    return ctx.queue([three(number) for number in numbers]).next([sum_of()])


@work(name="batches.hand_over")
def hand_over(ctx: Context, number: int):
    return ctx.continue_with(three(number))


def test_a_handler_fans_out_to_a_batch_and_joins_it(drain, stage):
    handle = enqueue(fan_out(numbers=[1, 2, 3, 4, 5]))
    drain()
    assert (stage.runs, handle.group()) == ([[1, 2, 3], [4, 5]], 5)


def test_a_gate_waits_for_works_of_a_batch_and_releases_some(drain, stage):
    watched = enqueue_many([three(number) for number in range(2)])
    gate = enqueue(dependency(watched, [three(10), three(11)]))
    drain()
    assert (stage.runs, gate.group()) == ([[0, 1], [10, 11]], 22)


def test_a_chain_goes_on_with_a_work_of_a_batch(drain, stage):
    handle = enqueue(hand_over(number=4))
    blocked = enqueue(three(2), blockers=[handle])
    drain()
    assert (stage.runs, handle.chain(), blocked.result()) == ([[4], [2]], 8, 4)


def test_units_can_be_output_to_a_batch(drain, stage):
    @work(name="t.batches.crawl", then="batches.three")
    def crawl(ctx: Context) -> None:
        ctx.output({"a": {"n": 1}, "b": {"n": 2}})

    stage.act = lambda items: [item.input["n"] for item in items]
    enqueue(crawl())
    assert drain().succeeded == 3
    assert stage.runs == [[{"n": 1}, {"n": 2}]]
