"""The call itself, and a work that a worker has."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from django_ayework import Explanation, Status, WorkNotFound, aexplain, enqueue, explain
from django_ayework.testing import now
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.explain.kit import MOMENT, facts, one, why


def test_a_work_that_is_not_there():
    with pytest.raises(WorkNotFound, match=r"no work has the id 'nowhere'.*not committed") as caught:
        explain("nowhere")
    assert caught.value.id == "nowhere"


def test_it_is_data_and_a_sentence():
    explanation = explain(enqueue(one(number=1)).id)
    assert isinstance(explanation, Explanation)
    assert explanation.status is Status.PENDING
    assert str(explanation) == " ".join(reason.text for reason in explanation.reasons)
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.id = "other"  # type: ignore[misc]
    assert hash(explanation) == hash(explain(explanation.id))
    assert async_to_sync(aexplain)(explanation.id) == explanation


def test_moments_are_shown_in_the_current_time_zone():
    work = WorkFactory(status="scheduled", run_at=now() + timedelta(hours=1))
    with timezone.override("Asia/Tokyo"):
        assert " JST (in " in why(work.id, "not_due")


# --- running --------------------------------------------------------------------------------------------


def held(by: str, lease: int = 30, **fields: Any) -> Any:
    """A work held since ten seconds ago."""
    return WorkFactory(
        status="running",
        worker=by,
        attempt=fields.pop("attempt", 1),
        started_at=now() - timedelta(seconds=10),
        leased_until=now() + timedelta(seconds=lease),
        **fields,
    )


def test_by_a_worker_that_lives():
    worker = WorkerProcessFactory(host="web1", pid=77)
    work = held(worker.id)
    assert re.fullmatch(
        rf"Worker web1:77 has held it since {MOMENT} \(1\d s ago\), for attempt 1 of 3, "
        rf"leased until {MOMENT} \(in (29|30) s\)\.",
        why(work.id, "running"),
    )
    expected = {"worker": worker.id, "host": "web1", "pid": 77, "attempt": 1, "attempts": 3}
    expected |= {"started_at": work.started_at, "leased_until": work.leased_until}
    assert facts(work.id, "running") == expected


def test_a_worker_is_called_by_its_name():
    worker = WorkerProcessFactory(name="mailer", host="web1", pid=77)
    assert why(held(worker.id).id, "running").startswith("Worker mailer (web1:77) has held it since")


def test_by_a_worker_that_is_gone():
    silent = WorkerProcessFactory(seen_at=now() - timedelta(minutes=2))
    text = why(held(silent.id).id, "running", "worker_silent")
    assert re.search(rf"That worker was last seen at {MOMENT} \(2 min( \d s)? ago\)\.", text)
    stopped = WorkerProcessFactory(stopped_at=now() - timedelta(seconds=5))
    text = why(held(stopped.id).id, "running", "worker_stopped")
    assert re.search(rf"That worker stopped at {MOMENT} \(\d s ago\)\.", text)
    text = why(held("w-1").id, "running", "worker_unknown")
    assert text.startswith("Worker w-1 has held it")
    assert "no trace of that worker" in text


def test_its_lease_has_lapsed():
    worker = WorkerProcessFactory(seen_at=now() - timedelta(minutes=2))
    work = held(worker.id, lease=-5, queue="mail")
    why(work.id, "running", "worker_silent", "lease_lapsed", "no_worker")
    WorkerProcessFactory(queues="default,images")
    text = why(work.id, "running", "worker_silent", "lease_lapsed", "queue_not_served")
    assert text.endswith("No live worker serves its queue 'mail': 1 worker serves 'default', 'images'.")
    WorkerProcessFactory(queues="mail")
    assert why(work.id, "running", "worker_silent", "lease_lapsed").endswith(
        "Its lease has lapsed: the next worker that serves its queue and type takes it back to try it again."
    )


def test_the_lease_of_its_last_attempt_has_lapsed():
    worker = WorkerProcessFactory()
    text = why(held(worker.id, lease=-5, attempt=3).id, "running", "lease_lapsed")
    assert text.endswith("ends it as dead, for this was its last attempt.")
