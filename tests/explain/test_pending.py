"""A work that is due: which worker could take it, which works go first, and what controls its type."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import Retry, cancel, enqueue, limit, pause, retry
from django_ayework.flow import explain
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Work
from django_ayework.store.lanes import works_ahead
from django_ayework.store.rows import find_row
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.app.works import fail
from tests.explain.kit import defer, facts, one, why

TYPE = "controls.plain"


def test_no_worker_is_alive():
    WorkerProcessFactory(stopped_at=now())
    WorkerProcessFactory(seen_at=now() - timedelta(minutes=1))
    assert why(WorkFactory().id, "no_worker") == (
        "No worker is alive; start one with: manage.py ayework_worker"
    )


def test_no_live_worker_serves_its_queue():
    WorkerProcessFactory(queues="mail,slow")
    work = WorkFactory(queue="images")
    text = "No live worker serves its queue 'images': 1 worker serves 'mail', 'slow'."
    assert why(work.id, "queue_not_served") == text
    WorkerProcessFactory(queues="reports")
    assert "2 workers serve 'mail', 'reports', 'slow'." in why(work.id, "queue_not_served")
    expected = {"queue": "images", "served": ["mail", "reports", "slow"], "workers": 2}
    assert facts(work.id, "queue_not_served") == expected
    WorkerProcessFactory(queues="a,b,c,d")
    assert why(work.id, "queue_not_served").endswith("3 workers serve 'a', 'b', 'c', 'd', 'mail', ….")


def test_all_slots_are_busy():
    WorkerProcessFactory(concurrency=4, running=4)
    work = WorkFactory()
    assert why(work.id, "workers_busy") == (
        "All slots of the worker that serves its queue 'default' were busy at the last heartbeat (4/4)."
    )
    WorkerProcessFactory(concurrency=8, running=9, queues="mail,default")
    WorkerProcessFactory(concurrency=8, running=0, queues="mail")
    assert "the 2 workers that serve its queue 'default' were busy" in why(work.id, "workers_busy")
    expected = {"queue": "default", "running": 13, "concurrency": 12, "workers": 2}
    assert facts(work.id, "workers_busy") == expected
    WorkerProcessFactory(concurrency=4, running=3)
    assert why(work.id, "next") == "It is next: a worker will take it at its next poll, within 1 s."


def test_works_of_higher_priority_or_due_for_longer_go_first():
    WorkerProcessFactory()
    early = WorkFactory(run_at=now() - timedelta(seconds=10))
    work = WorkFactory()
    text = "1 work is ahead of it in its queue 'default': of higher priority, or due for longer."
    assert why(work.id, "behind_others") == text
    urgent = WorkFactory(priority=5)
    WorkFactory(priority=-1)
    WorkFactory(queue="mail", priority=9)
    WorkFactory(status="running", priority=9)
    WorkFactory(run_at=now() + timedelta(seconds=10))
    assert why(work.id, "behind_others").startswith("2 works are ahead")
    assert facts(work.id, "behind_others") == {"queue": "default", "ahead": 2, "more": False}
    why(urgent.id, "next")
    assert facts(early.id, "behind_others")["ahead"] == 1


def test_many_works_ahead_are_counted_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(explain, "MOST_AHEAD", 5)
    WorkerProcessFactory(running=8)
    ahead = WorkFactory.create_batch(5, priority=1)
    work = WorkFactory()
    assert "5 works are ahead" in why(work.id, "workers_busy", "behind_others")
    ahead += WorkFactory.create_batch(2, priority=1)
    assert "More than 5 works are ahead" in why(work.id, "workers_busy", "behind_others")
    assert facts(work.id, "behind_others") == {"queue": "default", "ahead": 5, "more": True}


def test_a_retry_without_a_pause_names_the_failure():
    WorkerProcessFactory()
    handle = enqueue(fail(), retry=Retry(base=0))
    drain(limit=1, raises=False)
    text = why(handle.id, "next", "retrying")
    assert text.endswith("It is tried again, because attempt 1 of 3 failed: RuntimeError: no luck.")


def test_a_work_whose_worker_was_lost():
    WorkerProcessFactory()
    lost = WorkFactory(
        status="running", attempt=1, delivery=1, worker="w", leased_until=now() - timedelta(seconds=1)
    )
    assert reclaim() == 1
    text = why(lost.id, "next", "retrying")
    assert text.endswith("because the worker that made attempt 1 of 3 was lost.")
    assert facts(lost.id, "retrying")["lost"] is True


def test_a_work_retried_by_hand_names_its_last_error():
    handle = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    retry(handle.id)
    text = why(handle.id, "no_worker", "retried_by_hand")
    assert text.endswith("It was retried by hand. Its last error before that: RuntimeError: no luck.")


def test_a_work_that_was_cancelled_and_retried_has_no_failure_and_a_deferred_one_its_deferral():
    handle, deferred = enqueue(one(number=1)), enqueue(defer(seconds=60))
    cancel(handle.id)
    retry(handle.id)
    why(handle.id, "no_worker")
    drain()
    time_travel(61)
    Work.objects.filter(id=deferred.id).update(status="pending")
    why(deferred.id, "no_worker", "deferred")


def test_a_deadline_to_come_and_one_that_has_passed():
    handle = enqueue(one(number=1), expires=60)
    assert "It expires unless it starts by " in why(handle.id, "no_worker", "deadline")
    time_travel(61)
    text = why(handle.id, "no_worker", "past_deadline")
    assert "the next worker that polls ends it as expired" in text


def test_a_work_taken_meanwhile_has_none_ahead():
    taken = find_row(WorkFactory().id)
    Work.objects.update(status="running")
    WorkFactory()
    assert taken is not None
    assert works_ahead(taken, [taken.type], 10) == 0


# --- controls -------------------------------------------------------------------------------------------


@pytest.fixture
def controlled():
    """A worker is alive, and types are declared whose controls are looked at."""
    from tests.controls import works  # noqa: F401

    WorkerProcessFactory()


@pytest.mark.usefixtures("controlled")
def test_its_type_is_paused():
    work = WorkFactory(type=TYPE, status="scheduled", run_at=now() + timedelta(hours=1))
    pause(type=TYPE)
    why(work.id, "not_due", "type_paused")
    text = why(WorkFactory(type=TYPE).id, "type_paused")
    assert text == f"Its type {TYPE!r} is paused; resume(type={TYPE!r}) or the admin's controls let it go on."


@pytest.mark.usefixtures("controlled")
def test_its_queue_is_paused():
    pause(queue="mail")
    text = why(WorkFactory(type=TYPE, queue="mail").id, "queue_paused")
    assert text.startswith("Its queue 'mail' is paused; resume(queue='mail')")
    why(WorkFactory(type=TYPE).id, "next")


@pytest.mark.usefixtures("controlled")
def test_its_type_is_at_its_limit():
    limit(TYPE, max_running=2)
    work = WorkFactory(type=TYPE)
    WorkFactory(type=TYPE, status="running")
    why(work.id, "next")
    WorkFactory(type=TYPE, status="running")
    WorkFactory(type="controls.other", status="running")
    limit_text = f"Its type {TYPE!r} is at its limit: 2 works of the type run, and at most 2 may run."
    assert why(work.id, "at_limit").startswith(limit_text)
    assert facts(work.id, "at_limit") == {"running": 2, "max_running": 2}


@pytest.mark.usefixtures("controlled")
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
