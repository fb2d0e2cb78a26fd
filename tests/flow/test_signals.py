"""Signals: the sender, the keywords, and receivers that raise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.dispatch import Signal

from django_ayework import Defer, Retry, WorkState, enqueue, signals, work
from django_ayework.testing import now
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db

NAMES = {
    signals.work_queued: "queued",
    signals.work_started: "started",
    signals.work_deferred: "deferred",
    signals.work_succeeded: "succeeded",
    signals.work_failed: "failed",
    signals.work_expired: "expired",
    signals.work_cancelled: "cancelled",
    signals.group_done: "group_done",
}


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Any, dict[str, Any]]]]:
    """Each signal's name, sender and further keywords."""
    heard: list[tuple[str, Any, dict[str, Any]]] = []

    def receiver(signal: Signal, sender: Any, **keywords: Any) -> None:
        heard.append((NAMES[signal], sender, keywords))

    for signal in NAMES:
        signal.connect(receiver)
    yield heard
    for signal in NAMES:
        signal.disconnect(receiver)


def test_the_sender_is_the_type_and_the_work_is_a_state(drain: Any, heard: list[Any]) -> None:
    handle = enqueue(add(a=1, b=2))
    drain()
    assert [(name, sender) for name, sender, _ in heard[:3]] == [
        ("queued", "shop.add"),
        ("started", "shop.add"),
        ("succeeded", "shop.add"),
    ]
    for _, _, keywords in heard[:3]:
        assert set(keywords) == {"work"}
        assert isinstance(keywords["work"], WorkState)
        assert keywords["work"].id == handle.id
    assert heard[3][0] == "group_done"
    assert heard[3][2] == {"group_id": handle.id, "value": 3}
    assert len(heard) == 4


def test_a_failure_says_its_error_and_whether_it_is_retried(drain: Any, heard: list[Any]) -> None:
    enqueue(fail(message="no luck"), retry=Retry(attempts=1))
    drain(raises=False)
    name, sender, keywords = heard[2]
    assert (name, sender) == ("failed", "shop.fail")
    assert set(keywords) == {"work", "error", "will_retry"}
    assert (keywords["error"], keywords["will_retry"]) == ("RuntimeError: no luck", False)
    assert keywords["work"].status == "dead"


def test_a_deferral_says_when(drain: Any, heard: list[Any]) -> None:
    moment = now() + timedelta(hours=1)

    @work(name="t.signals.defers")
    def defers() -> None:
        raise Defer(run_at=moment)

    enqueue(defers())
    drain()
    name, _, keywords = heard[2]
    assert name == "deferred"
    assert set(keywords) == {"work", "run_at"}
    assert keywords["run_at"] == moment


def test_an_expiry_is_no_failure(drain: Any, time_travel: Any, heard: list[Any]) -> None:
    enqueue(add(a=1, b=2), expires=10)
    time_travel(11)
    drain()
    assert [name for name, _, _ in heard] == ["queued", "expired", "group_done"]
    assert set(heard[1][2]) == {"work"}
    assert heard[1][2]["work"].reason == "expired"


def test_a_receiver_hears_its_sender_only(drain: Any) -> None:
    seen: list[Any] = []

    def receiver(work: WorkState, **keywords: Any) -> None:
        seen.append(work.type)

    signals.work_succeeded.connect(receiver, sender="shop.add")
    enqueue(add(a=1, b=2))
    enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    signals.work_succeeded.disconnect(receiver, sender="shop.add")
    assert seen == ["shop.add"]


def test_a_receiver_that_raises_is_reported_and_the_others_hear(
    drain: Any, heard: list[Any], reported: list[Any]
) -> None:
    def broken(**keywords: Any) -> None:
        raise LookupError("receiver down")

    signals.work_succeeded.connect(broken)
    handle = enqueue(add(a=1, b=2))
    report = drain()
    signals.work_succeeded.disconnect(broken)
    assert (report.succeeded, report.dead, report.retried) == (1, 0, 0)
    assert handle.result(timeout=0) == 3
    assert reported == [("receiver down", "hook")]
    assert [name for name, _, _ in heard] == ["queued", "started", "succeeded", "group_done"]


def test_a_receiver_that_raises_at_the_queueing_does_not_undo_it(drain: Any) -> None:
    def broken(**keywords: Any) -> None:
        raise LookupError("receiver down")

    signals.work_queued.connect(broken)
    handle = enqueue(add(a=1, b=2))
    drain()
    signals.work_queued.disconnect(broken)
    assert handle.result(timeout=0) == 3


@pytest.mark.django_db(transaction=True)
def test_a_worker_says_when_it_starts_and_stops(running_worker: Any) -> None:
    seen: list[tuple[str, Any]] = []

    def started(worker: Any, **keywords: Any) -> None:
        seen.append(("started", worker))

    def stopped(worker: Any, **keywords: Any) -> None:
        seen.append(("stopped", worker))

    signals.worker_started.connect(started)
    signals.worker_stopped.connect(stopped)
    with running_worker(concurrency=1) as worker:
        enqueue(add(a=1, b=2)).result(timeout=20)
    signals.worker_started.disconnect(started)
    signals.worker_stopped.disconnect(stopped)
    assert seen == [("started", worker), ("stopped", worker)]
