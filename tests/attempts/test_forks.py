"""A handler that forks the process of its worker: a child that comes back from it has no outcome."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from django_ayework import BatchItem, batch_work, enqueue
from django_ayework.testing import running_worker
from tests.app.models import Order
from tests.attempts.conftest import ended
from tests.attempts.forms import Act, atomic, declare, plain
from tests.processes import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def awaited(act: Act) -> Any:
    async def handler() -> Any:
        return act()

    return declare(handler)


def in_batch(act: Act) -> Any:
    def handler(items: list[BatchItem[int]]) -> list[Any]:
        return [act() for _ in items]

    return batch_work(name="attempts.case", size=1)(handler)


def status_of(child: int) -> int:
    """Wait for the end of a child, which is killed if it does not come; return its wait status."""
    try:
        return eventually(lambda: (found := os.waitpid(child, os.WNOHANG))[0] and found, seconds=5)[1]
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]


def raises() -> None:
    raise ValueError("in the child")


@pytest.mark.parametrize("back", [lambda: "of the child", raises, sys.exit])
@pytest.mark.parametrize("form", [plain, atomic, awaited, in_batch])
def test_a_forked_child_that_comes_back_ends_and_the_outcome_of_the_parent_counts(
    form: Callable[..., Any], back: Act
) -> None:
    def forks() -> Any:
        Order.objects.exists() if form is not awaited else None
        child = os.fork()
        return back() if not child else os.waitstatus_to_exitcode(status_of(child))

    type_ = form(forks)
    with running_worker(concurrency=1):
        assert ended(enqueue(type_(1) if form is in_batch else type_())).result == 1
