"""``ayework_status``: workers, queues, dead letters and schedules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ayework import dependency, enqueue, enqueue_many
from django_ayework.flow import overview
from django_ayework.testing import now
from django_ayework.testing.factories import (
    DeadLetterFactory,
    ScheduleFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.app.works import add, notify

pytestmark = pytest.mark.django_db
NO_WORKER = "  See https://django-ayework.readthedocs.io/en/stable/troubleshooting/doctor.html#no-worker"


def test_at_rest_it_says_what_to_do(call: Any) -> None:
    at_rest = [
        "No worker is running, but nothing waits for one.",
        "  Start one: manage.py ayework_worker",
        NO_WORKER,
        "Workers:",
        "  none",
        "Queues:",
        "  nothing is queued",
        "Types:",
        "  nothing is queued",
        "Dead letters: 0",
    ]
    assert call("ayework_status").splitlines() == at_rest
    assert call("ayework_status", "--schedules").splitlines() == [
        "Schedules:",
        "  none; declare them with @schedule, and start a worker",
    ]
    WorkerProcessFactory.create_batch(25, seen_at=now() - timedelta(minutes=1))
    lines = call("ayework_status").splitlines()
    assert sum("(stale)" in line for line in lines) == 20
    assert set(at_rest) - {"  none"} <= set(lines)


def test_it_shows_queues_with_their_depth_and_oldest_age(call: Any, time_travel: Any) -> None:
    enqueue_many([add(a=1, b=2), add(a=3, b=4)])
    time_travel(90)
    enqueue(add(a=5, b=6))
    enqueue(notify(order_id=1), delay=60)
    enqueue(dependency(["x"], [add(a=1, b=1)]))
    WorkFactory(status="running", queue="mail")
    DeadLetterFactory()
    lines = call("ayework_status").splitlines()
    assert lines[:3] == [
        "No worker is running, and 3 works wait.",
        "  Start one: manage.py ayework_worker",
        NO_WORKER,
    ]
    unserved = "  no live worker serves it"
    assert lines[6:8] == [
        f"  default  3 pending (oldest 90 s)  0 running  0 scheduled  1 blocked  0 per minute{unserved}",
        f"  mail  0 pending (oldest 0 s)  1 running  1 scheduled  0 blocked  0 per minute{unserved}",
    ]
    assert lines[9] == "  shop.add  3 pending (oldest 90 s)  1 running  0 scheduled  0 blocked  0 per minute"
    assert lines[-1] == "Dead letters: 1"


def test_it_shows_live_workers_then_those_that_fell_silent(call: Any) -> None:
    long_ago = now() - timedelta(hours=2)
    WorkerProcessFactory(host="gone", seen_at=now() - timedelta(minutes=2), started_at=long_ago)
    WorkerProcessFactory(host="forgotten", seen_at=long_ago)
    WorkerProcessFactory(name="mailer", host="web1", pid=77, queues="mail", running=3, concurrency=8)
    WorkerProcessFactory(host="stopped", stopped_at=now())
    lines = call("ayework_status").splitlines()
    first = lines.index("Workers:") + 1
    assert lines[first] == "  mailer  web1:77  3/8 running  queues: mail  seen 0 s ago"
    assert lines[first + 1].endswith("0/8 running  queues: all  seen 120 s ago (stale)")
    assert lines[first + 2] == "Queues:"


def test_what_is_due_and_not_noticed_counts_as_waiting(call_json: Any, time_travel: Any) -> None:
    """Without a worker, nobody makes scheduled works pending."""
    enqueue(add(a=1, b=2), delay=60)
    enqueue(add(a=1, b=2), delay=3600)
    [queue] = call_json("ayework_status")["queues"]
    assert queue["waiting"] == 0
    time_travel(90)
    [queue] = call_json("ayework_status")["queues"]
    assert (round(queue["waiting"]), queue["scheduled"], queue["pending"]) == (30, 2, 0)


def test_it_shows_lapsed_works_and_queues_that_no_live_worker_serves(call: Any, call_json: Any) -> None:
    for queue, seconds in (("mail", -5), ("mail", 30), ("fax", -5), ("fax", -5)):
        WorkFactory(status="running", queue=queue, leased_until=now() + timedelta(seconds=seconds))
    WorkerProcessFactory(queues="mail,images")
    WorkerProcessFactory(queues="fax", seen_at=now() - timedelta(minutes=2))
    lines = call("ayework_status").splitlines()
    assert lines[:2] == [
        "fax: works of lost workers wait to be reclaimed, and no live worker serves the queue.",
        "  Start one: manage.py ayework_worker --queues fax",
    ]
    first = lines.index("Queues:") + 1
    fax, mail = (line.split("  ") for line in lines[first : first + 2])
    assert fax[1:] == [
        "fax", "0 pending (oldest 0 s)", "2 running (2 lapsed)", "0 scheduled", "0 blocked",
        "0 per minute", "no live worker serves it",
    ]  # fmt: skip
    assert mail[1:] == [
        "mail", "0 pending (oldest 0 s)", "2 running (1 lapsed)", "0 scheduled", "0 blocked", "0 per minute",
    ]  # fmt: skip
    queues = call_json("ayework_status")["queues"]
    assert [(queue["lapsed"], queue["served"]) for queue in queues] == [(2, False), (1, True)]


def test_scheduled_works_are_counted_up_to_a_bound(call_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOST_COUNTED", 2)
    for delay, queue in ((30, "a"), (10, "b"), (20, "b")):
        enqueue(add(a=1, b=2), delay=delay, queue=queue)
    queues = call_json("ayework_status")["queues"]
    found = {queue["queue"]: (queue["scheduled"], queue["capped"]) for queue in queues}
    assert found == {"b": (2, ["scheduled"]), "a": (1, ["scheduled"])}


def test_it_answers_in_json(call_json: Any) -> None:
    worker = WorkerProcessFactory(host="web1", pid=77)
    enqueue(add(a=1, b=2))
    DeadLetterFactory()
    answer = call_json("ayework_status")
    assert set(answer) == {
        "at", "headline", "problems", "workers", "queues", "types", "more_queues", "more_types", "dead",
        "dead_capped", "schedules", "hour", "day",
    }  # fmt: skip
    assert (answer["dead"], answer["problems"], answer["headline"]["code"]) == (1, [], "all_well")
    assert (len(answer["hour"]), len(answer["day"])) == (60, 96)
    [seen] = answer["workers"]
    assert (seen["id"], seen["host"], seen["pid"], seen["queues"]) == (worker.id, "web1", 77, "")
    assert (seen["stale"], seen["running"], seen["concurrency"]) == (False, 0, 8)
    assert datetime.fromisoformat(seen["seen_at"]) <= now()
    [queue] = answer["queues"]
    assert queue.pop("waiting") < 60
    counts = {"pending": 1, "running": 0, "scheduled": 0, "blocked": 0, "lapsed": 0, "failed": 0, "died": 0}
    others = {"served": True, "paused": False, "capped": [], "rate": 0}
    assert queue == {"queue": "default", **others, **counts}
    [type] = answer["types"]
    assert (type["type"], type["pending"], type["share"]) == ("shop.add", 1, 1.0)


def test_it_shows_schedules_with_their_next_firings(call: Any) -> None:
    at = datetime(2026, 11, 21, 3, tzinfo=UTC)
    ScheduleFactory(name="poll", kind="every", every=60.0, paused=True, function="shop.poll", queued=2)
    ScheduleFactory(
        name="nightly", kind="cron", cron="0 3 * * *", function="shop.nightly", next_at=at, due_at=at
    )
    ScheduleFactory(
        name="odd", kind="next", function="shop.odd", due_at=at, failures=1, error="Oops: no\nmore"
    )
    ScheduleFactory(name="gone", kind="cron", cron="@daily", function="shop.gone", enabled=False)
    assert call("ayework_status", "--schedules").splitlines() == [
        "Schedules:",
        "  gone  not declared  @daily (UTC)  runs shop.gone",
        "  nightly  active  0 3 * * * (UTC)  runs shop.nightly",
        "    next: 2026-11-21 03:00:00 UTC, 2026-11-22 03:00:00 UTC, 2026-11-23 03:00:00 UTC",
        "  odd  failing  function (UTC)  runs shop.odd",
        "    error: Oops: no",
        "  poll  paused  every 60 s (UTC)  runs shop.poll  2 queued",
    ]
    answer = json.loads(call("ayework_status", "--schedules", "--json"))
    assert [one["state"] for one in answer] == ["not declared", "active", "failing", "paused"]
    assert answer[1]["next"][0] == "2026-11-21T03:00:00Z"
