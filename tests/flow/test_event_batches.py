"""Batches of events tell what single receivers are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_ayework import WorkState, enqueue, enqueue_many, get_handle, signals
from django_ayework.flow.events import EventBatch
from django_ayework.testing import drain
from tests.app.works import add, fail
from tests.flow.kit import ONCE, connected

pytestmark = pytest.mark.django_db
SINGLE = {
    signals.work_queued: "queued",
    signals.work_started: "started",
    signals.work_unblocked: "unblocked",
    signals.work_succeeded: "succeeded",
    signals.work_failed: "failed",
}


@pytest.fixture
def batches() -> Iterator[list[EventBatch[Any]]]:
    """The batches that were announced."""
    seen: list[EventBatch[Any]] = []

    def receiver(batch: EventBatch[Any], **keywords: Any) -> None:
        seen.append(batch)

    with connected(receiver, signals.batch_announced):
        yield seen


@pytest.fixture
def singles() -> Iterator[list[tuple[str, WorkState]]]:
    """The kinds and works of single events; no signal of groups has receivers."""
    seen: list[tuple[str, WorkState]] = []

    def receiver(signal: Any, work: WorkState, **keywords: Any) -> None:
        seen.append((SINGLE[signal], work))

    with connected(receiver, *SINGLE):
        yield seen


def test_a_batch_has_the_events_of_a_transaction(batches: list[EventBatch[Any]]) -> None:
    handles = enqueue_many([add(a=1, b=1), fail(), add(a=2, b=2)])
    drain(raises=False, limit=0)
    [batch] = batches
    assert (batch.kind, [event.id for event in batch]) == ("queued", [handle.id for handle in handles])
    assert [item.row.type for item in batch.items] == ["shop.add", "shop.fail", "shop.add"]


def test_batches_have_the_events_that_single_receivers_get(
    batches: list[EventBatch[Any]], singles: list[tuple[str, WorkState]]
) -> None:
    first = enqueue(add(a=1, b=1))
    enqueue(add(a=2, b=2), blockers=[first])
    enqueue(fail(), retry=ONCE)
    drain(raises=False)
    together = [(str(event.kind), event.work) for batch in batches for event in batch if event.work]
    assert sorted(together, key=key_of) == sorted(singles, key=key_of)
    assert {kind for kind, _ in together} == set(SINGLE.values())


def key_of(event: tuple[str, WorkState]) -> tuple[str, str]:
    return event[1].id, event[0]


def test_an_item_says_how_long_its_handler_ran(batches: list[EventBatch[Any]]) -> None:
    enqueue(add(a=1, b=2))
    drain()
    queued, _, succeeded = (item for batch in batches for item in batch.items)
    assert queued.seconds is None
    assert 0 < succeeded.seconds < 60


def test_a_single_receiver_of_a_success_sees_its_result(singles: list[tuple[str, WorkState]]) -> None:
    handle = enqueue(add(a=1, b=2))
    drain()
    assert singles[-1] == ("succeeded", get_handle(handle.id).state())
    assert singles[-1][1].result == 3


def test_a_receiver_of_batches_that_raises_is_reported_and_disturbs_no_other(
    batches: list[EventBatch[Any]], reported: list[tuple[str, str]]
) -> None:
    def broken(**keywords: Any) -> None:
        raise LookupError("counter down")

    with connected(broken, signals.batch_announced):
        enqueue(add(a=1, b=2))
        assert drain().succeeded == 1
    assert reported == [("counter down", "hook")] * 3
    assert [batch.kind for batch in batches] == ["queued", "started", "succeeded"]
