"""Worker processes beside others of their fleet."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest
from django.conf import settings as django_settings
from django.db import connection, connections

from django_ayework import enqueue, enqueue_many
from django_ayework.flow.notify import sender
from django_ayework.models import Work, WorkerProcess
from django_ayework.ports.pubsub import get_pubsub
from tests.processes import PATIENCE, eventually, worker_process
from tests.wakeups.works import quick

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.skipif(
    bool(django_settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS")),
    reason="sessions are lent here",
)
def test_works_start_beside_workers_that_are_frozen(process_env, settings):
    """They would not poll before the test is over: whichever of three is to look first, the last one does."""
    settings.AYEWORK = {"POLL_INTERVAL": 600}
    sender.stop()
    sender.reset()
    env = process_env | {
        "DJANGO_SETTINGS_MODULE": "tests.wakeups.settings",
        "TEST_POLL": "600",
        "REDIS_URL": "",
    }
    with ExitStack() as processes:
        frozen = [processes.enter_context(worker_process(env)) for _ in range(2)]
        eventually(lambda: WorkerProcess.objects.count() == 2)
        processes.enter_context(worker_process(env))
        eventually(lambda: WorkerProcess.objects.count() == 3)
        eventually(
            lambda: (
                enqueue(quick())
                and Work.objects.filter(status="success").values("completed_by").distinct().count() == 3
            )
        )
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        for _ in range(2):  # for claims that were under way
            enqueue(quick())
        results = [enqueue(quick(number=number)).result(timeout=PATIENCE) for number in range(8)]
        assert results == list(range(8))


#: How many sessions others have with the database, by vendor.
HELD = {
    "postgresql": (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ),
    "mysql": (
        "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    ),
}


@pytest.mark.vendors(*HELD)
def test_a_process_at_rest_holds_three_connections(process_env):
    """One claims, one listens or watches, and one settles."""

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute(HELD[connection.vendor])
            return int(cursor.fetchone()[0])

    connections.close_all()
    before = count()
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.wakeups.settings", "REDIS_URL": ""}
    with worker_process(env):
        handles = enqueue_many([quick(number=number) for number in range(100)])
        assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(100))
        sender.stop()
        get_pubsub().close()
        eventually(lambda: count() - before <= 3)
