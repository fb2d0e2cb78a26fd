"""Wake-ups behind PgBouncer, which lends sessions (see tests/pgbouncer.py)."""

import pytest
from django.conf import settings as django_settings
from django.db import connection

from django_ayework import enqueue
from django_ayework.models import Work, WorkerProcess
from tests.conftest import database_url
from tests.databases import SERVICES
from tests.processes import PATIENCE, eventually, stopped, worker_process
from tests.settings import database
from tests.wakeups.works import quick

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        not django_settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS"), reason="no pooler here"
    ),
]


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.wakeups.settings"}


def test_a_worker_behind_a_pooler_says_once_what_to_do_and_polls(env):
    with worker_process(env | {"TEST_POLL": "0.2"}) as process:
        assert process.stdout
        for number in range(3):
            assert enqueue(quick(number=number)).result(timeout=PATIENCE) == number
        assert any("PUBSUB_DATABASE" in line for line in iter(process.stdout.readline, ""))
        output = stopped(process)
    assert "PUBSUB_DATABASE" not in output


def test_a_worker_that_listens_past_the_pooler_is_woken(env):
    server = {name: database(SERVICES["postgres"].url)[name] for name in ("HOST", "PORT", "USER", "PASSWORD")}
    with worker_process(env | {"TEST_DIRECT_URL": database_url({**connection.settings_dict, **server})}):
        eventually(WorkerProcess.objects.exists)
        eventually(lambda: enqueue(quick()) and Work.objects.filter(status="success").exists())
        assert enqueue(quick(number=5)).result(timeout=PATIENCE) == 5
