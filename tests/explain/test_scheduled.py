"""A work whose moment has not come, or has just come."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django_ayework import Retry, enqueue
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.app.works import fail
from tests.explain.kit import facts, why
from tests.explain.works import defer, one

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+"


def test_it_is_due_later():
    handle = enqueue(one(number=1), delay=300)
    assert re.fullmatch(rf"It is due at {MOMENT} \(in (5 min|4 min 59 s)\)\.", why(handle.id, "not_due"))
    assert 290 < facts(handle.id, "not_due")["seconds"] <= 300


def test_its_moment_has_come_and_a_worker_has_yet_to_notice():
    handle = enqueue(one(number=1), delay=60)
    time_travel(90)
    WorkerProcessFactory(seen_at=now())
    text = why(handle.id, "due")
    assert re.fullmatch(
        rf"It was due at {MOMENT} \(3\d s ago\); a worker makes it pending at its next poll\.", text
    )


def test_its_moment_has_come_and_there_is_no_worker_for_it():
    handle = enqueue(one(number=1), delay=60)
    time_travel(90)
    why(handle.id, "due", "no_worker")
    WorkerProcessFactory(queues="mail", seen_at=now())
    why(handle.id, "due", "queue_not_served")


def test_a_retry_after_a_failure():
    handle = enqueue(fail(message="no\nluck"), retry=Retry(attempts=5, base=600, max=600, jitter=0))
    drain(raises=False)
    text = why(handle.id, "not_due", "retrying")
    assert ". It is tried again, because attempt 1 of 5 failed: RuntimeError: no." in text
    assert facts(handle.id, "retrying") == {
        "attempt": 1,
        "attempts": 5,
        "error": "RuntimeError: no\nluck",
        "lost": False,
    }
    time_travel(601)
    drain(raises=False)
    assert "attempt 2 of 5 failed" in why(handle.id, "not_due", "retrying")


def test_a_deferral():
    handle = enqueue(defer(seconds=600))
    drain()
    text = why(handle.id, "not_due", "deferred")
    assert ". Its handler deferred it to " in text
    assert text.endswith("that used no attempt.")


def test_a_work_parked_because_nobody_knew_its_type(settings: Any):
    settings.AYEWORK = {"UNKNOWN_TYPE_GRACE": 600}
    work = WorkFactory(type="gone.work")
    drain()
    text = why(work.id, "not_due", "parked")
    assert "has known its type 'gone.work' since" in text
    assert re.search(rf"It dies when none does until {MOMENT} \((in 10 min|in 9 min 5\d s)\)\.", text)
    found = facts(work.id, "parked")
    assert found["until"] - found["since"] == timedelta(minutes=10)
    assert found["type"] == "gone.work"


def test_its_deadline():
    handle = enqueue(one(number=1), delay=60, expires=3600)
    assert "It expires unless it starts by " in why(handle.id, "not_due", "deadline")
    assert facts(handle.id, "deadline") == {"deadline": handle.state().deadline}
