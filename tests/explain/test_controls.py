"""Works whose type or queue is controlled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import limit, pause
from django_ayework.testing import now
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.explain.kit import facts, why

TYPE = "controls.plain"
pytestmark = pytest.mark.usefixtures("worker")


@pytest.fixture
def worker(db):
    from tests.controls import works

    WorkerProcessFactory()
    return works


def test_its_type_is_paused():
    pause(type=TYPE)
    text = why(WorkFactory(type=TYPE).id, "type_paused")
    assert text == f"Its type {TYPE!r} is paused; resume(type={TYPE!r}) or the admin's controls let it go on."


def test_its_queue_is_paused():
    pause(queue="mail")
    text = why(WorkFactory(type=TYPE, queue="mail").id, "queue_paused")
    assert text.startswith("Its queue 'mail' is paused; resume(queue='mail')")
    why(WorkFactory(type=TYPE).id, "next")


def test_a_scheduled_work_says_that_it_will_meet_a_pause():
    pause(type=TYPE)
    work = WorkFactory(type=TYPE, status="scheduled", run_at=now() + timedelta(hours=1))
    why(work.id, "not_due", "type_paused")


def test_its_type_is_at_its_limit():
    limit(TYPE, max_running=2)
    work = WorkFactory(type=TYPE)
    WorkFactory(type=TYPE, status="running")
    why(work.id, "next")
    WorkFactory(type=TYPE, status="running")
    WorkFactory(type="controls.other", status="running")
    text = why(work.id, "at_limit")
    assert text.startswith(f"Its type {TYPE!r} is at its limit: 2 works of it run, and 2 may.")
    assert facts(work.id, "at_limit") == {"running": 2, "max_running": 2}


def test_types_of_higher_priority_go_first():
    limit("controls.other", priority=1)
    work = WorkFactory(type=TYPE)
    why(work.id, "next")
    other = WorkFactory(type="controls.other")
    text = why(work.id, "outranked")
    assert text.startswith("Types of higher priority go first in its queue 'default': 'controls.other'.")
    why(other.id, "next")
    WorkFactory(type="controls.other")
    why(WorkFactory(type="controls.other").id, "behind_others")
