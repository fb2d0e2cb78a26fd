"""An attempt that queues thousands of works writes them itself, so that others' outcomes need not wait."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, transaction

from django_ayework import Context, NotEncodable, Retry, cancel, enqueue, work
from django_ayework.flow import outcomes, settle
from django_ayework.models import Work
from django_ayework.testing import drain, perform, running_worker
from django_ayework.worker.attempts import stages
from django_ayework.worker.attempts.outcome import HEAVY
from tests.app.works import add
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("postgresql")]

CHILDREN = HEAVY + 10
ended = frozenset({"success", "dead", "cancelled"})


class Runs:
    """What the handlers of a test have noted, and what they do besides."""

    def __init__(self) -> None:
        self.count = 0
        self.besides: Callable[[Context], object] = lambda ctx: None
        self.first: Any = 0
        self.children = CHILDREN


runs = Runs()


@pytest.fixture(autouse=True)
def fresh_runs() -> None:
    runs.__init__()  # type: ignore[misc]


@work(name="attempts.heavy", retry=Retry(attempts=1))
def heavy(ctx: Context) -> Any:
    runs.count += 1
    runs.besides(ctx)
    return ctx.queue([add(a=runs.first, b=0), *(add(a=n, b=0) for n in range(runs.children - 1))])


@work(name="attempts.heavy_and_async")
async def heavy_and_async(ctx: Context) -> Any:
    return ctx.queue([add(a=n, b=0) for n in range(CHILDREN)])


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that have settled something, in order."""
    seen: list[str] = []

    def noting(settlements: Any) -> Any:
        seen.append(threading.current_thread().name)
        return original(settlements)

    original = settle.settle_here
    for module in (settle, stages):
        monkeypatch.setattr(module, "settle_here", noting)
    return seen


def run_it(request: Any = None) -> Any:
    """Let a worker run it, and nothing of what it queues; return its row."""
    handle = enqueue(request or heavy())
    with running_worker(concurrency=2, exclude_types=["shop.add"]):
        eventually(lambda: handle.state().status in ended)
    return Work.objects.get(id=handle.id)


def children() -> int:
    return Work.objects.filter(type="shop.add").count()


def test_it_is_written_by_the_thread_that_ran_it(writers: list[str]) -> None:
    row = run_it()
    assert (row.status, row.group_id, children()) == ("success", row.id, CHILDREN)
    assert [name.rpartition("-")[0] for name in writers] == ["ayework-slot"]


def test_what_the_database_refuses_is_left_to_the_thread_that_waits_for_it(
    writers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler has done its part: it is not asked to do it again."""

    def refuse(settlements: Any) -> Any:
        settle.settle_here(settlements)
        raise OperationalError("the server is going away")

    monkeypatch.setattr(stages, "settle_here", refuse)
    row = run_it()
    assert (row.status, row.attempt, children()) == ("success", 1, CHILDREN)
    assert (runs.count, writers[-1]) == (1, "ayework-settler")


def test_an_error_after_the_commit_undoes_nothing(
    reported: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:

    def broken() -> None:
        raise OperationalError("a callback of the project's own")

    def settle_and_break(settlements: Any) -> Any:
        report = settle.settle_here(settlements)
        transaction.on_commit(broken)
        return report

    monkeypatch.setattr(stages, "settle_here", settle_and_break)
    row = run_it()
    assert (row.status, row.attempt, children(), runs.count) == ("success", 1, CHILDREN, 1)
    assert any("a callback of the project's own" in text for text, _ in reported)


def test_nothing_is_written_for_a_work_that_was_lost(writers: list[str]) -> None:
    runs.besides = lambda ctx: cancel(ctx.id)
    assert run_it().status == "cancelled"
    assert children() == 0


def test_an_async_handler_has_no_thread_for_that(writers: list[str]) -> None:
    assert (run_it(heavy_and_async()).status, children()) == ("success", CHILDREN)
    assert writers == ["ayework-settler"]


@pytest.mark.parametrize("children_queued", [outcomes.MANY + 1, CHILDREN])
def test_an_input_that_cannot_be_stored_fails_the_attempt(
    configure: Callable[..., None], children_queued: int
) -> None:
    runs.children = children_queued
    asked: Counter[str] = Counter()
    configure(ON_FAILURE=lambda error, info: asked.update([type(error).__name__]))
    runs.first = object()
    row = run_it()
    assert (row.status, row.reason, children()) == ("dead", "exhausted", 0)
    assert "the input of 'shop.add' cannot be stored" in row.error
    assert asked == {"NotEncodable": 1}


@pytest.mark.django_db
def test_within_a_transaction_of_a_test_it_goes_the_usual_way(writers: list[str]) -> None:
    enqueue(heavy())
    with transaction.atomic():
        drain(limit=1)
        assert children() == CHILDREN
    assert Work.objects.get(type="attempts.heavy").status == "success"
    assert len(writers) == 1


def test_perform_finds_an_input_that_cannot_be_stored() -> None:
    runs.first = object()
    assert isinstance(perform(heavy()).error, NotEncodable)
