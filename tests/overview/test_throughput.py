"""Workers count the attempts that end, and add them to spans of time in a table."""

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connection

from django_ayework import Abort, Context, Defer, Retry, enqueue, enqueue_many, work
from django_ayework.flow import enqueue as queueing
from django_ayework.flow.maintenance import prune_others
from django_ayework.flow.settle import Settlement, Success
from django_ayework.models import Throughput, WorkerProcess
from django_ayework.rules.states import TERMINAL
from django_ayework.store import throughput
from django_ayework.store.throughput import MINUTE, QUARTER, Bucket, Ended, span_start
from django_ayework.testing import drain, now, running_worker
from django_ayework.worker import maintenance, skip_queue
from django_ayework.worker import settler as reporting
from tests.app.works import add
from tests.marks import each_database
from tests.processes import ROOT, eventually

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
of_workers = pytest.mark.django_db(transaction=True)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COUNTS = ("succeeded", "failed", "dead")


@work(name="overview.fail_once", retry=Retry(attempts=2, base=0.01, jitter=0), queue="odd")
def fail_once(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise RuntimeError("once")


@work(name="overview.give_up")
def give_up() -> None:
    raise Abort("no use")


@work(name="overview.put_off", retry=Retry(attempts=2))
def put_off() -> None:
    raise Defer(delay=3600)


@work(name="overview.atomic", atomic=True)
def atomic() -> None: ...


@work(name="overview.hurry", skip_queue=True)
def hurry() -> None: ...


def counted(seconds=MINUTE):
    """What was counted by type, in all spans of a length together."""
    found = {}
    for span in Throughput.objects.filter(seconds=seconds):
        counts = tuple(getattr(span, name) for name in COUNTS)
        found[span.type] = tuple(map(sum, zip(found.get(span.type, (0, 0, 0)), counts, strict=True)))
    return found


def place(minute=0, type="shop.add", queue="default"):
    return Bucket(NOON + timedelta(minutes=minute), type, queue)


@each_database
def test_counts_are_added_to_a_minute_and_to_its_quarter_of_an_hour():
    throughput.add({place(1): Ended(2, 1, 0, 0.5), place(2): Ended(3, 0, 1, 1.5), place(16): Ended(1)})
    throughput.add({place(2): Ended(1, 1, 1, 1.0)})
    columns = ("seconds", "start", *COUNTS, "duration")
    spans = Throughput.objects.order_by("seconds", "start").values_list(*columns)
    assert [(seconds, (start - NOON) // timedelta(minutes=1), *rest) for seconds, start, *rest in spans] == [
        (MINUTE, 1, 2, 1, 0, 0.5),
        (MINUTE, 2, 4, 1, 2, 2.5),
        (MINUTE, 16, 1, 0, 0, 0.0),
        (QUARTER, 0, 6, 2, 2, 3.0),
        (QUARTER, 15, 1, 0, 0, 0.0),
    ]


@each_database
def test_names_are_told_apart_to_the_letter():
    hostile = ["a", "A", "ä", "'; DROP TABLE", "%s", "<b>"]
    for _ in range(2):
        throughput.add({place(0, type): Ended(1) for type in hostile})
    assert counted() == dict.fromkeys(hostile, (2, 0, 0))


@each_database
def test_spans_are_deleted_once_they_are_old_each_length_at_its_own_time():
    for seconds, hours in ((MINUTE, 1), (MINUTE, 3), (QUARTER, 47), (QUARTER, 49)):
        start = span_start(now() - timedelta(hours=hours), seconds)
        Throughput.objects.create(seconds=seconds, start=start, type="a", queue="b", succeeded=hours)
    prune_others()
    assert set(Throughput.objects.values_list("seconds", "succeeded")) == {(MINUTE, 1), (QUARTER, 47)}


def test_spans_are_named_in_the_order_of_their_keys_so_that_no_two_reports_deadlock():
    named = []

    def note(execute, sql, params, many, context):
        named.extend(zip(params[0::8], params[2::8], params[3::8], strict=True) if "INSERT" in sql else ())
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        throughput.add({place(0, type, queue): Ended(1) for type in "cab" for queue in "zx"})
    assert len(named) == 12
    assert named == sorted(named)


REPORTER = """
import sys
from datetime import UTC, datetime
import django
django.setup()
from django.db import connection
from django_ayework.store import throughput
# What the parent says has begun once both are ready.
connection.ensure_connection()
print("ready", flush=True)
sys.stdin.readline()
minute = datetime(2026, 1, 1, 12, tzinfo=UTC)
for _ in range(10):
    types = [f"t{number}" for number in range(100)][:: int(sys.argv[1])]
    throughput.add({throughput.Bucket(minute, type, "q"): throughput.Ended(1) for type in types})
"""


@each_database
@of_workers
def test_processes_that_report_at_once_lose_no_count(process_env):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    commands = [[sys.executable, "-c", REPORTER, step] for step in ("1", "-1")]
    one, two = (subprocess.Popen(command, **pipes, env=process_env, cwd=ROOT) for command in commands)
    with one, two:
        assert [process.stdout.readline() for process in (one, two)] == ["ready\n"] * 2
        for process in (one, two):
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait(60) for process in (one, two)] == [0, 0]
    assert counted() == {f"t{number}": (20, 0, 0) for number in range(100)}


@each_database
@of_workers
def test_a_worker_counts_each_end_of_an_attempt_and_reports_the_last_ones_when_it_stops(quick_polls):
    handles = enqueue_many([add(a=1, b=n) for n in range(5)])
    handles += [enqueue(fail_once()), enqueue(give_up()), enqueue(atomic())]
    deferred = enqueue(put_off())
    with running_worker():
        eventually(lambda: all(handle.state().status in TERMINAL for handle in handles))
        eventually(lambda: deferred.state().status == "scheduled")
        assert counted() == {}
    expected = {add.name: (5, 0, 0), fail_once.name: (1, 1, 0)}
    expected |= {give_up.name: (0, 0, 1), atomic.name: (1, 0, 0)}
    assert counted() == counted(QUARTER) == expected
    assert Throughput.objects.get(seconds=MINUTE, type=give_up.name).queue == "default"
    assert all(span.duration >= 0 for span in Throughput.objects.all())


def test_works_that_skip_the_queue_are_counted(transactional_db, monkeypatch):
    intake = skip_queue.Intake()
    monkeypatch.setattr(skip_queue, "intake", intake)
    monkeypatch.setattr(queueing.providers, "held_back", False)
    try:
        enqueue(hurry()).result(timeout=20)
    finally:
        assert intake.stop()
    assert counted() == {hurry.name: (1, 0, 0)}


@of_workers
def test_a_report_that_fails_harms_no_work_and_is_made_with_the_next(quick_polls, monkeypatch, caplog):
    add_spans, failed = throughput.add_spans, threading.Event()

    def fail_at_first(spans):
        if not failed.is_set():
            failed.set()
            raise OperationalError("server closed the connection unexpectedly")
        add_spans(spans)

    monkeypatch.setattr(throughput, "add_spans", fail_at_first)
    monkeypatch.setattr(maintenance, "REPORT_EVERY", 0.05)
    with running_worker():
        first = enqueue(add(a=1, b=2))
        eventually(failed.is_set)
        assert first.result(timeout=20) == 3
        assert enqueue(add(a=3, b=4)).result(timeout=20) == 7
        eventually(lambda: counted() == {add.name: (2, 0, 0)})
    assert "the maintenance duty report_throughput failed" in caplog.text


@of_workers
def test_a_database_that_is_away_in_the_end_keeps_no_worker_from_stopping(quick_polls, monkeypatch):
    def refuse(spans):
        raise OperationalError("away")

    monkeypatch.setattr(throughput, "add_spans", refuse)
    with running_worker() as worker:
        assert enqueue(add(a=1, b=2)).result(timeout=20) == 3
        assert worker.stop()
    assert counted() == {}
    assert WorkerProcess.objects.get(id=worker.id).stopped_at is not None


def test_one_report_tells_so_many_types_apart_and_counts_the_rest_without_a_name(monkeypatch):
    monkeypatch.setattr(reporting, "MOST_BUCKETS", 2)
    tally = reporting.AttemptCounts()
    for type in ("a", "b", "c", "d", "a"):
        tally.count([Settlement(SimpleNamespace(type=type, queue="q"), Success())])
    for _ in range(2):  # the second has nothing to report
        tally.report()
        assert counted() == counted(QUARTER) == {"a": (2, 0, 0), "b": (1, 0, 0), "": (2, 0, 0)}


def test_draining_in_a_test_counts_nothing():
    enqueue(add(a=1, b=2))
    drain()
    assert counted() == {}


@of_workers
@pytest.mark.parametrize(
    ("given", "shown", "is_reported"),
    [("1.2", "1.2", False), (lambda: "r7" * 40, ("r7" * 40)[:40], False), (lambda: 1 / 0, "", True)],
    ids=["text", "function", "broken function"],
)
def test_a_worker_stores_the_version_of_the_project_if_it_can_be_had(
    settings, caplog, given, shown, is_reported
):
    settings.AYEWORK = {"VERSION": given}
    with running_worker() as worker:
        assert eventually(lambda: WorkerProcess.objects.filter(id=worker.id).first()).version == shown
    assert ("VERSION failed" in caplog.text) is is_reported
