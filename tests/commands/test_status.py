"""``ayework_status``: workers, queues, dead letters and schedules."""

from datetime import UTC, datetime, timedelta

import pytest

from django_ayework import dependency, enqueue, enqueue_many
from django_ayework.flow import overview
from django_ayework.testing import now
from django_ayework.testing.factories import (
    DeadLetterFactory,
    ScheduleFactory,
    ThroughputFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.app.works import add, notify
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
NO_WORKER = "  See https://django-ayework.readthedocs.io/en/stable/troubleshooting/doctor.html#no-worker"
START = "  Start one: manage.py ayework_worker"
NOTHING = "  nothing is queued"


@pytest.fixture
def lines(call):
    """Print the status; return its lines."""
    return lambda *options: call("ayework_status", *options).splitlines()


def test_at_rest_it_says_what_to_do(lines):
    rest = ["No worker is running, but nothing waits for one.", START, NO_WORKER, "Workers:"]
    rest += ["  none", "Queues:", NOTHING, "Types:", NOTHING, "Dead letters: 0"]
    assert lines() == rest
    none = "  none; declare them with @schedule, and start a worker"
    assert lines("--schedules") == ["Schedules:", none]
    WorkerProcessFactory.create_batch(25, seen_at=now() - timedelta(minutes=1))
    assert sum("(stale)" in line for line in lines()) == 20
    assert set(rest) - {"  none"} <= set(lines())


@each_database
def test_it_shows_queues_with_their_depth_and_oldest_age(lines, time_travel):
    enqueue_many([add(a=1, b=2), add(a=3, b=4)])
    enqueue(notify(order_id=1), delay=60)
    enqueue(dependency(["x"], [add(a=1, b=1)]))
    WorkFactory(status="running", queue="mail")
    DeadLetterFactory()
    time_travel(90)
    enqueue(add(a=5, b=6))
    shown = lines()
    assert shown[:3] == ["No worker is running, and 3 works wait.", START, NO_WORKER]
    rest = "0 per minute  no live worker serves it"
    assert shown[6:8] == [
        f"  default  3 pending (oldest 90 s)  0 running  0 scheduled  1 blocked  {rest}",
        f"  mail  0 pending (oldest 30 s)  1 running  1 scheduled  0 blocked  {rest}",
    ]  # what is due and not noticed waits: without a worker, nobody makes it pending
    assert shown[9] == "  shop.add  3 pending (oldest 90 s)  1 running  0 scheduled  0 blocked  0 per minute"
    assert shown[-1] == "Dead letters: 1"


def test_it_counts_the_failures_of_the_last_hour(lines):
    ThroughputFactory(type="shop.add", failed=1)
    ThroughputFactory(type="shop.send", failed=2)
    shown = lines()
    assert [line.partition("per minute  ")[2] for line in shown if line.startswith("  shop.")] == [
        "1 failure in the last hour", "2 failures in the last hour",
    ]  # fmt: skip


def test_it_shows_live_workers_then_those_that_fell_silent(lines):
    long_ago = now() - timedelta(hours=2)
    WorkerProcessFactory(host="gone", seen_at=now() - timedelta(minutes=2), started_at=long_ago)
    WorkerProcessFactory(host="forgotten", seen_at=long_ago)
    WorkerProcessFactory(name="mailer", host="web1", pid=77, queues="mail", running=3, concurrency=8)
    WorkerProcessFactory(host="stopped", stopped_at=now())
    shown = lines()
    first = shown.index("Workers:") + 1
    assert shown[first] == "  mailer  web1:77  3 running, 8 at a time  queues: mail  seen 0 s ago"
    assert shown[first + 1].endswith("0 running, 8 at a time  queues: all  seen 120 s ago (stale)")
    assert shown[first + 2] == "Queues:"


@each_database
def test_it_shows_lapsed_works_and_queues_that_no_live_worker_serves(lines, call_json):
    for queue, seconds in (("mail", -5), ("mail", 30), ("fax", -5), ("fax", -5)):
        WorkFactory(status="running", queue=queue, leased_until=now() + timedelta(seconds=seconds))
    WorkerProcessFactory(queues="mail,images")
    WorkerProcessFactory(queues="fax", seen_at=now() - timedelta(minutes=2))
    shown = lines()
    assert shown[:2] == [
        "fax: works of lost workers wait to be reclaimed, and no live worker serves the queue.",
        f"{START} --queues fax",
    ]
    first = shown.index("Queues:") + 1
    none, rest = "0 pending (oldest 0 s)", "0 scheduled  0 blocked  0 per minute"
    assert shown[first : first + 2] == [
        f"  fax  {none}  2 running (2 lapsed)  {rest}  no live worker serves it",
        f"  mail  {none}  2 running (1 lapsed)  {rest}",
    ]
    queues = call_json("ayework_status")["queues"]
    assert [(queue["lapsed"], queue["served"]) for queue in queues] == [(2, False), (1, True)]


@each_database
def test_scheduled_works_are_counted_up_to_a_bound_and_do_not_wait(call_json, monkeypatch):
    monkeypatch.setattr(overview, "MOST_COUNTED", 2)
    for delay, queue in ((30, "a"), (10, "b"), (20, "b")):
        enqueue(add(a=1, b=2), delay=delay, queue=queue)
    queues = call_json("ayework_status")["queues"]
    found = {queue["queue"]: (queue["scheduled"], queue["capped"], queue["waiting"]) for queue in queues}
    assert found == {"b": (2, ["scheduled"], 0), "a": (1, ["scheduled"], 0)}


KEYS = "at headline problems workers queues types more_queues more_types dead dead_capped schedules hour day"


def test_it_answers_in_json(call_json):
    worker = WorkerProcessFactory(host="web1", pid=77)
    enqueue(add(a=1, b=2))
    DeadLetterFactory()
    answer = call_json("ayework_status")
    assert set(answer) == set(KEYS.split())
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


@each_database
def test_it_shows_schedules_with_their_next_firings(lines, call_json):
    at = datetime(2026, 11, 21, 3, tzinfo=UTC)
    ScheduleFactory(name="poll", kind="every", every=60.0, paused=True, function="shop.poll", queued=2)
    cron = {"kind": "cron", "cron": "0 3 * * *"}
    ScheduleFactory(name="nightly", function="shop.nightly", next_at=at, due_at=at, **cron)
    failed = {"failures": 1, "error": "Oops: no\nmore"}
    ScheduleFactory(name="odd", kind="next", function="shop.odd", due_at=at, **failed)
    ScheduleFactory(name="gone", kind="cron", cron="@daily", function="shop.gone", enabled=False)
    assert lines("--schedules") == [
        "Schedules:",
        "  gone  not declared  @daily (UTC)  runs shop.gone",
        "  nightly  active  0 3 * * * (UTC)  runs shop.nightly",
        "    next: 2026-11-21 03:00:00 UTC, 2026-11-22 03:00:00 UTC, 2026-11-23 03:00:00 UTC",
        "  odd  failing  function (UTC)  runs shop.odd",
        "    error: Oops: no",
        "  poll  paused  every 60 s (UTC)  runs shop.poll  2 queued",
    ]
    answer = call_json("ayework_status", "--schedules")
    assert [one["state"] for one in answer] == ["not declared", "active", "failing", "paused"]
    assert answer[1]["next"][0] == "2026-11-21T03:00:00Z"
