"""Running one function through a doer, and getting its outcome."""

from __future__ import annotations

import asyncio
import threading

import pytest

from django_ayework import doers
from tests.doers.kit import PATIENCE


def fail() -> None:
    raise KeyError("order-17")


def test_what_a_function_returns_or_raises_is_the_callers(reported):
    doer = doers.balanced(1)
    names: list[str] = []

    def name() -> str:
        names.append(threading.current_thread().name)
        return "done"

    assert doers.run(doer, name, fairness="acme", priority=3) == "done"
    assert names[0] != threading.current_thread().name
    with pytest.raises(KeyError, match="order-17"):
        doers.run(doer, fail)
    assert asyncio.run(doers.arun(doer, name)) == "done"
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
