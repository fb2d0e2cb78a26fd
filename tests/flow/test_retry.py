"""Retrying by hand: what can be retried, with which input, and what begins anew."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_ayework import NotRetryable, Retry, UnknownWorkType, WorkNotFound, aretry, enqueue, retry, work
from django_ayework.models import Work
from django_ayework.testing import now
from django_ayework.testing.factories import WorkFactory
from tests.app.works import fail
from tests.flow.kit import Opaque, stated

pytestmark = pytest.mark.django_db


@work(name="t.bad.once", retry=Retry(attempts=1), expires=60)
def once(n: int = 1) -> int:
    if n < 5:
        raise ValueError(f"{n} is too small")
    return n


@pytest.mark.parametrize("status", ["pending", "scheduled", "running", "success", "blocked"])
def test_a_work_that_has_not_died_cannot_be_retried(status: str) -> None:
    row = WorkFactory(status=status)
    with pytest.raises(NotRetryable) as raised:
        retry(row.id)
    hint = f" To run it once more, as a new work, call retry({row.id!r}, again=True)."
    assert str(raised.value) == (
        f"expected the work {row.id} to be dead or cancelled, but it is {status}; "
        f"only ended works without success can be retried.{hint if status == 'success' else ''}"
    )
    assert raised.value.id == row.id
    row.refresh_from_db()
    assert row.status == status


def test_a_work_that_is_not_there_cannot_be_retried() -> None:
    with pytest.raises(WorkNotFound, match="no work has the id 'nowhere', so it cannot be retried") as raised:
        retry("nowhere")
    assert raised.value.id == "nowhere"


def test_a_retry_gives_a_full_budget_and_remembers_the_last_error(drain: Any, time_travel: Any) -> None:
    handle = enqueue(fail(), retry=Retry(attempts=2))
    for _ in range(2):
        drain(raises=False)
        time_travel(60)
    assert stated(handle.id).status == "dead"
    assert retry(handle.id) == handle
    state = stated(handle.id)
    assert (state.status, state.attempt, state.reason, state.error) == ("pending", 0, None, None)
    assert state.last_error == "RuntimeError: no luck"
    assert (state.ended_at, state.completed_by) == (None, None)
    assert drain(raises=False).retried == 1


def test_a_cancelled_work_can_be_retried(drain: Any) -> None:
    row = WorkFactory(status="cancelled")
    retry(row.id)
    assert drain().succeeded == 1


def test_a_retry_may_bring_a_new_input(drain: Any) -> None:
    handle = enqueue(once(n=1))
    drain(raises=False)
    retry(handle.id, {"n": 7})
    drain()
    assert handle.result(timeout=0) == 7


@pytest.mark.parametrize(
    ("input", "error"),
    [
        ({"m": 1}, "got an unexpected keyword argument 'm'"),
        ({"n": Opaque()}, r"input\['n'\]"),
    ],
    ids=["misfit", "opaque"],
)
def test_a_new_input_is_checked_and_a_bad_one_changes_nothing(input: Any, error: str, drain: Any) -> None:
    handle = enqueue(once(n=1))
    drain(raises=False)
    with pytest.raises(TypeError, match=error):
        retry(handle.id, input)
    assert Work.objects.get().input == '{"n":1}'
    assert stated(handle.id).status == "dead"


def test_a_new_input_for_a_type_nobody_knows_is_refused() -> None:
    row = WorkFactory(type="t.bad.gone", status="dead")
    with pytest.raises(UnknownWorkType):
        retry(row.id, {"a": 1})
    assert retry(row.id).id == row.id


def test_expires_counts_anew_after_a_retry(drain: Any, time_travel: Any) -> None:
    handle = enqueue(once(n=9))
    time_travel(61)
    drain()
    assert stated(handle.id).reason == "expired"
    time_travel(600)
    retry(handle.id)
    deadline = stated(handle.id).deadline
    assert deadline is not None
    assert abs((deadline - now()).total_seconds() - 60) < 1
    drain()
    assert handle.result(timeout=0) == 9


def test_an_explicit_deadline_stays_after_a_retry(drain: Any, time_travel: Any) -> None:
    moment = now() + timedelta(seconds=30)
    handle = enqueue(once(n=9), deadline=moment)
    time_travel(31)
    drain()
    retry(handle.id)
    assert stated(handle.id).deadline == moment
    drain()
    assert stated(handle.id).reason == "expired"


@pytest.mark.django_db(transaction=True)
def test_the_async_twin_retries_too(drain: Any) -> None:
    handle = enqueue(once(n=1))
    drain(raises=False)
    assert async_to_sync(aretry)(handle.id, {"n": 8}) == handle
    drain()
    assert handle.result(timeout=0) == 8
