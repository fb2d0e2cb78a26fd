"""Worker processes that would not look before the test is over: whatever they do, they were woken."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from django_ayework import cancel, enqueue
from django_ayework.flow import handles
from django_ayework.flow.notify import sender
from django_ayework.models import Work, WorkerProcess
from tests.processes import PATIENCE, ROOT, ended, eventually, worker_process
from tests.wakeups.works import fan_out, hold, other, quick, until_aborted

#: Behind PgBouncer (see tests/pgbouncer.py) sessions are lent, and LISTEN hears nothing.
is_pooled = bool(django_settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS"))
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(is_pooled, reason="sessions are lent here"),
]


@pytest.fixture(params=["auto", "redis"])
def env(request: Any, process_env: dict[str, str], settings: Any, database_vendor: str) -> Any:
    """The environment of processes that are woken in each way there is on this database."""
    url = request.getfixturevalue("redis_url") if request.param == "redis" else None
    settings.AYEWORK = {"POLL_INTERVAL": 600, "PUBSUB": request.param, "REDIS_URL": url}
    sender.stop()
    sender.reset()
    yield (
        process_env
        | {
            "DJANGO_SETTINGS_MODULE": "tests.wakeups.settings",
            "TEST_PUBSUB": request.param,
            "REDIS_URL": url or "",
        }
    )
    from django_ayework.ports.pubsub import get_pubsub

    sender.stop()
    get_pubsub().close()


@pytest.fixture
def env_of_messages(env: Any, database_vendor: str) -> Any:
    """The same, where there is more to be heard than that works have become due."""
    if database_vendor == "mysql" and env["TEST_PUBSUB"] == "auto":
        pytest.skip("works that become due are seen there, and nothing else")
    return env


@pytest.fixture
def resting() -> Any:
    """Wait until a worker has started, seen that there is nothing, and hears others."""

    def rests(*, busy: bool = False) -> None:
        eventually(lambda: WorkerProcess.objects.exists())
        if not busy:  # it hears once it has run a work that it was not to find by itself
            handle = enqueue(quick())
            eventually(lambda: enqueue(quick()) and handle.state().status == "success")

    return rests


def status_of(handle: Any) -> str:
    return str(Work.objects.get(id=handle.id).status)


def test_a_work_that_another_process_enqueues_starts(env, resting):
    with worker_process(env):
        resting()
        handle = enqueue(quick(number=1))
        assert handle.result(timeout=PATIENCE) == 1


def test_gates_open_and_what_they_release_runs(env, resting):
    with worker_process(env):
        resting()
        enqueue(fan_out(number=10)).group(timeout=PATIENCE)
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}


def test_a_worker_of_other_queues_takes_no_notice(env, resting):
    with worker_process(env, "--queues", "mail"):
        eventually(lambda: WorkerProcess.objects.exists())
        elsewhere = enqueue(quick())
        eventually(lambda: enqueue(quick(), queue="mail") and Work.objects.filter(status="success").exists())
    assert status_of(elsewhere) == "pending"


def test_a_busy_worker_starts_what_it_did_not_know_of(env, resting, tmp_path: Path):
    with worker_process(env, "--concurrency", "2"):
        resting()
        enqueue(hold(place=str(tmp_path)))
        eventually((tmp_path / "started").exists)
        assert enqueue(other(number=7), queue="another").result(timeout=PATIENCE) == 7
        (tmp_path / "go").touch()


def test_a_work_that_is_due_soon_starts_on_time(env_of_messages, resting):
    with worker_process(env_of_messages):
        resting()
        assert enqueue(quick(number=3), delay=0.5).result(timeout=PATIENCE) == 3


def test_a_work_starts_on_time_whatever_the_interval_of_who_enqueues_it(env_of_messages, resting, settings):
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 0.01}
    with worker_process(env_of_messages):
        resting()
        assert enqueue(quick(number=3), delay=1).result(timeout=PATIENCE) == 3


def test_a_handler_is_told_at_once_that_its_work_was_cancelled(
    env_of_messages, resting, tmp_path: Path, monkeypatch
):
    with worker_process(env_of_messages):
        resting()
        handle = enqueue(until_aborted(place=str(tmp_path)))
        eventually((tmp_path / "started").exists)
        cancel(handle.id)
        eventually(lambda: (tmp_path / "reason").exists() and (tmp_path / "reason").read_text())
    assert (tmp_path / "reason").read_text() == "cancelled"


def test_who_waits_in_another_process_is_told_of_the_end(
    env_of_messages, resting, tmp_path: Path, monkeypatch
):
    """It looks so seldom that it would not see the end before its time is over."""
    monkeypatch.setattr(handles, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(handles, "LONGEST_PAUSE", 600.0)
    monkeypatch.setattr(handles.Wait, "go_on", joined_at_once(handles.Wait.go_on))
    handle = enqueue(hold(place=str(tmp_path)))
    source = f"""
import django; django.setup()
from pathlib import Path
from django_ayework import complete
from tests.processes import eventually
eventually(Path({str(tmp_path)!r}, "go").exists)
complete({handle.id!r}, "ended elsewhere")
"""
    with subprocess.Popen([sys.executable, "-c", source], env=env_of_messages, cwd=ROOT) as process:
        wait_until_heard = [lambda: (tmp_path / "go").touch()]
        monkeypatch.setattr(
            handles.ended_works, "publish", telling(handles.ended_works.publish, wait_until_heard)
        )
        assert handle.result(timeout=PATIENCE) == "ended elsewhere"
        assert process.wait(PATIENCE) == 0


def joined_at_once(go_on: Any) -> Any:
    """Let a wait listen to others from its first look on."""

    def twice(self: Any, row: Any) -> None:
        go_on(self, row)
        go_on(self, row)

    return twice


def telling(tell: Any, first: list[Any]) -> Any:
    """Do something when the first message comes, which says that others are heard."""

    def told(ids: Any) -> None:
        while first:
            first.pop()()
        tell(ids)

    return told


def test_a_worker_whose_listener_was_cut_off_hears_again(env, resting, database_vendor):
    if database_vendor != "postgresql" or env["TEST_PUBSUB"] != "auto":
        pytest.skip("only sessions of PostgreSQL are ended here")
    with worker_process(env):
        resting()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' "
                "AND datname = current_database()"
            )
            assert cursor.rowcount >= 1
        resting()


def test_each_process_of_a_supervisor_listens(env):
    with worker_process(env, "--processes", "2", "--concurrency", "1"):
        eventually(lambda: WorkerProcess.objects.count() == 2)
        eventually(lambda: enqueue(quick()) and Work.objects.filter(status="success").exists())
        eventually(
            lambda: (
                enqueue(quick())
                and Work.objects.filter(status="success").values("completed_by").distinct().count() == 2
            )
        )


def test_a_worker_that_stops_leaves_its_works_to_others_at_once(env, resting, tmp_path: Path):
    with worker_process(env, "--concurrency", "1") as first:
        resting()
        running = enqueue(hold(place=str(tmp_path)))
        eventually((tmp_path / "started").exists)
        with worker_process(env, "--concurrency", "1"):
            eventually(lambda: WorkerProcess.objects.count() == 2)
            waiting_work = enqueue(quick(number=9))
            assert waiting_work.result(timeout=PATIENCE) == 9
            first.send_signal(signal.SIGTERM)
            (tmp_path / "go").touch()
            assert ended(first)[0] == 0
    assert status_of(running) == "success"
