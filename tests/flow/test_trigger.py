"""Triggering scheduled works."""

import pytest

from django_ayework import NotTriggerable, WorkNotFound, enqueue, trigger
from django_ayework.testing import drain, now
from tests.app.works import add

pytestmark = pytest.mark.django_db


def test_a_scheduled_work_runs_now():
    handle = enqueue(add(a=1, b=2), delay=3600)
    assert drain().ran == 0

    [state] = trigger(handle.id)

    assert (state.id, state.status) == (handle.id, "pending")
    assert state.start_at <= now()
    assert drain().succeeded == 1
    assert handle.result() == 3


def test_states_come_in_the_order_given_each_once():
    first, second = (enqueue(add(a=1, b=n), delay=60) for n in range(2))
    assert [state.id for state in trigger(second.id, first.id, second.id)] == [second.id, first.id]


def test_nothing_to_trigger_is_fine():
    assert trigger() == []


def test_it_is_all_or_nothing():
    scheduled, pending = enqueue(add(a=1, b=1), delay=60), enqueue(add(a=1, b=2))

    with pytest.raises(NotTriggerable, match=f"{pending.id} to be scheduled, but it is pending") as refusal:
        trigger(scheduled.id, pending.id)

    assert refusal.value.id == pending.id
    assert scheduled.state().status == "scheduled"


def test_a_missing_work_is_told_of_before_an_unfit_one():
    pending = enqueue(add(a=1, b=2))
    with pytest.raises(WorkNotFound, match="'nobody'"):
        trigger(pending.id, "nobody")
