"""Doers that run so many tasks at a time and choose the next; the doer without limits; ``doers.run()``."""

import asyncio
import threading
from datetime import datetime, timedelta
from functools import partial

import pytest

from django_ayework import doers
from tests.doers.kit import PATIENCE
from tests.rules.moments import NOON


def aged(seconds: float) -> dict[str, datetime]:
    return {"created_at": NOON - timedelta(seconds=seconds)}


def test_a_free_slot_goes_to_the_label_of_which_the_fewest_run(stage):
    doer = doers.balanced(2)
    for name in ("a1", "a2", "a3", "b1", "c1"):
        doer.submit(stage.task(name), fairness=name[0])
    assert sorted(stage.wait_for(2)) == ["a1", "a2"]
    for ending, following in [("a1", "b1"), ("b1", "c1"), ("c1", "a3")]:
        stage.end(ending)
        assert stage.wait_for(len(stage.started) + 1)[-1] == following
    assert stage.peak == 2


@pytest.mark.parametrize(
    ("make", "hints", "order"),
    [
        # The first takes the free slot before the others have come.
        (partial(doers.priority, buffer=9), {n: {"priority": int(n)} for n in "0519"}, ["0", "9", "5", "1"]),
        (doers.priority, {"first": {}, "young": aged(1), "old": aged(2)}, ["first", "old", "young"]),
        (
            doers.age,
            {"0": {}} | {n: {"fairness": n, "priority": -int(n)} | aged(int(n)) for n in "132"},
            ["0", "3", "2", "1"],
        ),
        (doers.age, {name: {} for name in "abcd"}, list("abcd")),
        (doers.balanced, {name: {"fairness": name[0]} for name in ("a1", "a2", "b1")}, ["a1", "a2", "b1"]),
    ],
    ids=["priority", "age within a priority", "age whatever the priority", "submission", "ended labels"],
)
def test_the_order_in_which_waiting_tasks_start(stage, make, hints, order):
    doer = make(1)
    for name, given in hints.items():
        doer.submit(stage.task(name), **given)
    stage.end(*hints)
    doer.drained()
    assert stage.started == order


@pytest.mark.parametrize("make", [doers.balanced, doers.priority, doers.age])
def test_it_welcomes_what_it_can_run_and_as_much_again(stage, make):
    doer = make(2)
    assert (doer.available(), make(3, buffer=0).available(), make(3, buffer=10).available()) == (4, 3, 13)
    for names, left in (("ab", 2), ("c", 1)):
        for name in names:
            doer.submit(stage.task(name))
        assert doer.available() == left
    stage.end(*"abc")
    doer.drained()
    assert doer.available() == 4


def test_what_is_more_than_welcome_is_accepted_and_runs(stage):
    doer = doers.balanced(1, buffer=0)
    for name in "abcdef":
        doer.submit(stage.task(name))
    assert doer.available() == 0
    stage.end(*"abcdef")
    doer.drained()
    assert (stage.started, stage.peak, doer.available()) == (list("abcdef"), 1, 1)


@pytest.mark.parametrize("make", [doers.balanced, doers.priority, doers.age, doers.unlimited])
@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2", None])
def test_how_many_run_is_a_whole_number_above_zero(make, given):
    option = "capacity" if make is doers.unlimited else "max"
    with pytest.raises(ValueError, match=f"expected {option} to be a whole number, 1 or more, got: "):
        make(given)
    if given and option == "max":
        with pytest.raises(ValueError, match="expected buffer to be a whole number, 0 or more, got: "):
            make(1, buffer=given)


def test_an_unlimited_doer_starts_every_task_at_once(stage):
    doer = doers.unlimited()
    doer.drained()  # it holds nothing
    assert doer.available() == 256
    names = {str(number) for number in range(20)}
    for name in names:
        doer.submit(stage.task(name))
    assert set(stage.wait_for(20)) == names
    assert (stage.peak, doer.available()) == (20, 256)
    assert doers.unlimited(capacity=3).available() == 3


def fail() -> None:
    raise KeyError("order-17")


def test_what_a_function_returns_or_raises_is_the_callers(reported):
    doer = doers.balanced(1)
    names = []

    def name() -> str:
        names.append(threading.current_thread().name)
        return "done"

    assert doers.run(doer, name, fairness="acme", priority=3) == asyncio.run(doers.arun(doer, name)) == "done"
    assert threading.current_thread().name not in names
    with pytest.raises(KeyError, match="order-17"):
        doers.run(doer, fail)
    with pytest.raises(KeyError, match="order-17"):
        asyncio.run(doers.arun(doer, fail))
    doer.drained()
    assert reported == []  # nothing is swallowed, so nothing is reported
    with pytest.raises(TypeError, match="expected a function without arguments, got: 17"):
        doers.run(doer, 17)


def test_a_function_that_raises_stop_iteration_keeps_no_caller_waiting():
    """A future of asyncio refuses that error on older Pythons, and then never ends."""
    doer = doers.balanced(1)

    def first_of_none() -> str:
        return next(iter([]))

    async def run() -> str:
        return await asyncio.wait_for(doers.arun(doer, first_of_none), PATIENCE)

    with pytest.raises(StopIteration):
        doers.run(doer, first_of_none)
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(run())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_error_that_would_end_a_process_reaches_the_caller(error):
    def fail() -> None:
        raise error

    with pytest.raises(error):
        doers.run(doers.balanced(1), fail, timeout=PATIENCE)


def test_the_limits_of_the_doer_hold_and_a_function_that_is_too_late_is_not_called(stage):
    doer = doers.balanced(1)
    ran: list[str] = []
    doer.submit(stage.task("first"))
    stage.wait_for(1)
    with pytest.raises(TimeoutError):
        doers.run(doer, lambda: ran.append("second"), timeout=0.01)

    async def give_up() -> None:
        await asyncio.wait_for(doers.arun(doer, lambda: ran.append("third")), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    stage.end("first")
    assert doers.run(doer, lambda: "fourth", timeout=PATIENCE) == "fourth"
    doer.drained()
    assert ran == []
