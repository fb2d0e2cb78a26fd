"""Workers on servers and sessions that are set up otherwise than the suite's."""

import threading
from contextlib import contextmanager

import pytest
from django.db import connection

from django_ayework import Retry, enqueue, enqueue_many, work
from django_ayework.store.database import run
from django_ayework.store.sessions import LONGEST_KEPT, engine_session
from django_ayework.testing import running_worker
from tests.processes import PATIENCE, eventually
from tests.worker.works import quick

pytestmark = [pytest.mark.vendors("mysql"), pytest.mark.usefixtures("transactional_db", "quick_polls")]


@work(name="worker.returns_emoji", retry=Retry(attempts=1))
def returns_emoji(number: int) -> str:
    return "😀" * number


@contextmanager
def new_connections(**options: object):
    """Give connections that are opened meanwhile other options; the test's own is opened anew afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.items():
            patch.setitem(connection.settings_dict["OPTIONS"], name, value)
        yield
    connection.close()


def test_a_worker_runs_works_where_sessions_begin_with_safe_updates_and_a_limit_of_rows():
    setup = "SET SESSION sql_safe_updates = 1, sql_select_limit = 2"
    handles = enqueue_many([quick(number=number) for number in range(6)])
    with new_connections(init_command=setup), running_worker(concurrency=6):
        for handle in handles:
            handle.result(timeout=PATIENCE)


def test_texts_that_a_connection_cannot_carry_fail_the_attempts_and_hold_nothing_up():
    handles = enqueue_many([returns_emoji(number=number) for number in (1, 2, 3)])
    with new_connections(charset="utf8mb3"), running_worker(concurrency=4):
        eventually(lambda: {str(handle.state().status) for handle in handles} == {"dead"})
        assert "Incorrect string value" in str(handles[0].state().error)
        enqueue(quick(number=7)).result(timeout=PATIENCE)


class Converter:
    """Reads values of one type, and cannot be copied, as an SSLContext cannot."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, value: bytes) -> str:
        return value.decode()


def test_a_worker_runs_works_with_an_option_of_the_driver_that_cannot_be_copied():
    from django.db.backends.mysql.base import FIELD_TYPE, django_conversions  # needs its driver

    handle = enqueue(quick(number=7))
    with new_connections(conv=django_conversions | {FIELD_TYPE.YEAR: Converter()}), running_worker():
        handle.result(timeout=PATIENCE)


def test_sessions_that_wait_for_works_outlast_the_servers_bound_for_idle_ones():
    """An outcome would meet a session that has ended, and so would the note that a last attempt begins."""
    with new_connections(init_command="SET SESSION wait_timeout = 1"), engine_session():
        assert run("SELECT @@SESSION.wait_timeout") > LONGEST_KEPT
