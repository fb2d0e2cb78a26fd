"""Worker processes that would not poll before the test is over are woken; without messages they poll."""

import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from django.conf import settings as django_settings
from django.db import connection, connections

from django_ayework import Status, WaitTimeout, cancel, dependency, enqueue, enqueue_many
from django_ayework.flow import handles
from django_ayework.flow.notify import sender
from django_ayework.models import Work, WorkerProcess
from django_ayework.ports.pubsub import get_pubsub
from tests.processes import PATIENCE, ROOT, ended_well, eventually, worker_process
from tests.wakeups.kit import Dropping, Raising, fresh_sender
from tests.wakeups.works import fan_out, hold, other, quick, until_aborted

#: Behind PgBouncer (see tests/pgbouncer.py) sessions are lent, and LISTEN hears nothing.
is_pooled = bool(django_settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS"))
unpooled = pytest.mark.skipif(is_pooled, reason="sessions are lent here")
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def plain_env(process_env):
    """The environment of processes that are woken by the database."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.wakeups.settings", "REDIS_URL": ""}


@pytest.fixture
def env(request, plain_env, settings):
    """The environment of processes that are woken by the database, or as the test's parameter says."""
    carrier = getattr(request, "param", "auto")
    url = request.getfixturevalue("redis_url") if carrier == "redis" else None
    settings.AYEWORK = {"POLL_INTERVAL": 600, "PUBSUB": carrier, "REDIS_URL": url}
    with fresh_sender():
        yield plain_env | {"TEST_PUBSUB": carrier, "REDIS_URL": url or ""}
    get_pubsub().close()


#: Redis does the same beside every database.
in_each_way = pytest.mark.parametrize(
    "env", ["auto", pytest.param("redis", marks=pytest.mark.vendors("sqlite"))], indirect=True
)


@pytest.fixture
def has_messages(env, database_vendor):
    """Whether more is published than that works have become due, which is all that is seen on MariaDB."""
    return database_vendor != "mysql" or env["TEST_PUBSUB"] != "auto"


def workers(count=1):
    """Wait until so many workers have started."""
    eventually(lambda: WorkerProcess.objects.count() == count)


def wait_until_listening():
    """Wait until a worker has started and runs a work that no poll would find."""
    eventually(WorkerProcess.objects.exists)
    handle = enqueue(quick())
    eventually(lambda: enqueue(quick()) and handle.state().status == "success")


def completers():
    return Work.objects.filter(status="success").values("completed_by").distinct().count()


def started(type, place):
    """Queue a work, and wait until it has started."""
    handle = enqueue(type(place=str(place)))
    eventually((place / "started").exists)
    return handle


def told_to_stop(place):
    """Wait until a work that was cancelled has learned of it; return the reason that it was given."""
    return eventually(lambda: (place / "reason").exists() and (place / "reason").read_text())


@unpooled
@in_each_way
def test_works_start_at_once_and_delayed_ones_on_time_and_a_handler_learns_at_once_of_a_cancellation(
    env, has_messages, settings, tmp_path
):
    """Also one of a type that a busy worker did not know of; whatever the poll interval of its producer."""
    held, aborted = tmp_path / "held", tmp_path / "aborted"
    held.mkdir(), aborted.mkdir()
    with worker_process(env, "--concurrency", "2"):
        wait_until_listening()
        assert enqueue(quick(number=1)).result(timeout=PATIENCE) == 1
        enqueue(fan_out(number=10)).group(timeout=PATIENCE)
        running = started(hold, held)
        assert enqueue(other(number=7), queue="another").result(timeout=PATIENCE) == 7
        (held / "go").touch()
        assert running.result(timeout=PATIENCE) == "went"
        eventually(lambda: set(Work.objects.values_list("status", flat=True)) == {"success"})
        if has_messages:
            assert enqueue(quick(number=3), delay=0.5).result(timeout=PATIENCE) == 3
            cancel(started(until_aborted, aborted).id)
            assert told_to_stop(aborted) == "cancelled"
            settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 0.01}
            assert enqueue(quick(number=3), delay=1).result(timeout=PATIENCE) == 3


@unpooled
@in_each_way
@pytest.mark.vendors("sqlite", "postgresql")  # on MariaDB ends are not published
def test_a_wait_ends_by_an_end_in_another_process(env, tmp_path, monkeypatch):
    """It reads so seldom that it would not see the end before its time is over."""
    go_on, publish = handles.Wait.go_on, handles.ended_works.publish

    def publish_and_go(ids):
        (tmp_path / "go").touch()  # the first message says that this process listens
        publish(ids)

    monkeypatch.setattr(handles, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(handles, "LONGEST_PAUSE", 600.0)
    monkeypatch.setattr(handles.Wait, "go_on", lambda self, row: (go_on(self, row), go_on(self, row)))
    handle = enqueue(hold(place=str(tmp_path)))
    source = f"""
import django; django.setup()
from pathlib import Path
from django_ayework import complete
from tests.processes import eventually
eventually(Path({str(tmp_path)!r}, "go").exists)
complete({handle.id!r}, "ended elsewhere")
"""
    with subprocess.Popen([sys.executable, "-c", source], env=env, cwd=ROOT) as process:
        monkeypatch.setattr(handles.ended_works, "publish", publish_and_go)
        assert handle.result(timeout=PATIENCE) == "ended elsewhere"
        assert process.wait(PATIENCE) == 0


@unpooled
def test_each_process_of_a_supervisor_listens(env):
    with worker_process(env, "--processes", "2", "--concurrency", "1"):
        workers(2)
        eventually(lambda: enqueue(quick()) and Work.objects.filter(status="success").exists())
        eventually(lambda: enqueue(quick()) and completers() == 2)


@unpooled
def test_a_worker_that_stops_leaves_its_works_to_others_at_once(env, tmp_path):
    with worker_process(env, "--concurrency", "1") as first:
        wait_until_listening()
        running = started(hold, tmp_path)
        with worker_process(env, "--concurrency", "1"):
            workers(2)
            assert enqueue(quick(number=9)).result(timeout=PATIENCE) == 9
            first.send_signal(signal.SIGTERM)
            (tmp_path / "go").touch()
            ended_well(first)
    assert running.state().status == "success"


def is_started():
    """Whether a new work is taken by a worker that goes on, and not by a claim that was under way."""
    try:
        return enqueue(quick(number=1)).result(timeout=1) == 1
    except WaitTimeout:
        return False


@unpooled
@pytest.mark.vendors("postgresql")  # elsewhere each process sees by itself that works are due
def test_works_start_beside_workers_that_are_frozen(plain_env, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 600}
    with fresh_sender(), ExitStack() as processes:
        frozen = [processes.enter_context(worker_process(plain_env)) for _ in range(2)]
        workers(2)
        processes.enter_context(worker_process(plain_env))
        workers(3)
        eventually(lambda: enqueue(quick()) and completers() == 3)
        eventually(lambda: not Work.objects.exclude(status="success").exists())
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        eventually(is_started)
        results = [enqueue(quick(number=number)).result(timeout=PATIENCE) for number in range(8)]
        assert results == list(range(8))


#: How many sessions others have with the database, by vendor.
HELD = {
    "postgresql": "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}


@pytest.mark.vendors(*HELD)
def test_a_process_at_rest_holds_three_connections(plain_env):
    """One claims, one listens or watches, and one settles."""

    def count():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {HELD[connection.vendor]}")
            return int(cursor.fetchone()[0])

    connections.close_all()
    before = count()
    with worker_process(plain_env):
        handles = enqueue_many([quick(number=number) for number in range(100)])
        assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(100))
        sender.stop()
        get_pubsub().close()
        eventually(lambda: count() - before <= 3)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Dropping, marks=pytest.mark.vendors("postgresql", "mysql")),
        pytest.param(Raising, marks=pytest.mark.vendors("sqlite")),
    ],
)
def test_works_run_gates_open_waits_end_and_cancellations_arrive_without_messages(
    plain_env, settings, tmp_path, kind
):
    settings.AYEWORK = {"PUBSUB": kind, "POLL_INTERVAL": 0.1}
    lossy = plain_env | {"TEST_PUBSUB": f"{kind.__module__}.{kind.__name__}", "TEST_POLL": "0.1"}
    with fresh_sender(), worker_process(lossy):
        handles = enqueue_many([quick(number=number) for number in range(50)])
        assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(50))
        assert enqueue(quick(number=5), delay=0.3).result(timeout=PATIENCE) == 5
        enqueue(fan_out(number=20)).group(timeout=PATIENCE)
        gate = enqueue(dependency(on=[enqueue(quick())], queue=[quick(number=8)]))
        gate.group(timeout=PATIENCE)
        assert set(Work.objects.values_list("status", flat=True)) == {"success"}
        handle = started(until_aborted, tmp_path)
        with pytest.raises(WaitTimeout):
            handle.result(timeout=0.3)
        cancel(handle.id)
        assert told_to_stop(tmp_path) == "cancelled"
    assert handle.state().status is Status.CANCELLED
