"""Code of the project's in threads of a worker: what receivers and hooks leave behind harms nothing."""

import inspect
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework import Retry, enqueue, work
from django_ayework.models import Attempt, Work
from django_ayework.signals import work_started, work_succeeded, worker_started
from django_ayework.testing import running_worker
from tests.app.models import Order
from tests.attempts.conftest import connected
from tests.fixtures import kept_blocks, leave_a_block_open, nothing_kept  # noqa: F401
from tests.marks import on_servers, on_sqlite, own_session
from tests.processes import eventually

pytestmark = pytest.mark.usefixtures("quick_polls")


def leave_a_transaction_open(*given, **more) -> dict[str, str]:
    leave_a_block_open("of the receiver")
    return {}


def switch_autocommit_off(*given, **more) -> dict[str, str]:
    transaction.set_autocommit(False)
    Order.objects.create(reference="of the receiver")
    return {}


def close_without_django(*given, **more) -> dict[str, str]:
    connection.ensure_connection()
    connection.connection.close()
    return {}


def references():
    return list(Order.objects.order_by("pk").values_list("reference", flat=True))


@work(name="worker.writes", retry=Retry(attempts=1))
def writes(number: int = 0) -> None:
    Order.objects.create(reference=f"order {number}")


closes_the_drivers_connection = work(name="worker.closes", retry=Retry(attempts=1))(
    lambda: close_without_django() and None
)


@work(name="worker.writes_in_async", retry=Retry(attempts=1))
async def writes_in_async(number: int = 0) -> None:
    await Order.objects.acreate(reference=f"order {number}")


@work(name="worker.writes_atomically", atomic=True, retry=Retry(attempts=1))
def writes_atomically(number: int = 0) -> None:
    Order.objects.create(reference=f"order {number}")


@pytest.mark.parametrize("declared", [writes, writes_in_async, writes_atomically], ids=lambda one: one.name)
@pytest.mark.parametrize("leave", [leave_a_transaction_open, switch_autocommit_off])
def test_what_a_handler_writes_is_committed_after_a_receiver_has_left_a_transaction_open(
    declared, leave, caplog
):
    with connected(leave, work_started), running_worker(concurrency=1):
        for number in range(2):
            enqueue(declared(number=number)).result(timeout=20)
    assert references() == ["order 0", "order 1"]
    assert caplog.text.count("has left a transaction open") == 2
    assert "The handler of" not in caplog.text


@pytest.mark.parametrize("signal", [work_started, work_succeeded, worker_started])
@pytest.mark.parametrize("declared", [writes, writes_in_async, writes_atomically], ids=lambda one: one.name)
def test_works_succeed_after_a_receiver_has_closed_the_connection_of_the_driver(declared, signal):
    with connected(close_without_django, signal), running_worker(concurrency=1):
        for number in range(3):
            enqueue(declared(number=number)).result(timeout=20)
    assert references() == ["order 0", "order 1", "order 2"]
    assert not Attempt.objects.exists()


def test_a_handler_that_has_closed_the_connection_of_the_driver_disturbs_no_other():
    with running_worker(concurrency=1):
        for number in range(3):
            enqueue(closes_the_drivers_connection()).result(timeout=20)
            enqueue(writes(number=number)).result(timeout=20)
    assert references() == ["order 0", "order 1", "order 2"]


@pytest.mark.parametrize("declared", [writes, writes_in_async], ids=lambda one: one.name)
def test_what_a_handler_writes_is_committed_after_a_hook_of_the_log_has_left_a_transaction_open(
    settings, declared
):
    settings.AYEWORK = {**settings.AYEWORK, "LOG_CONTEXT": leave_a_transaction_open}
    with running_worker(concurrency=1):
        enqueue(declared(number=1)).result(timeout=20)
    assert references() == ["order 1"]


@pytest.fixture(params=[RuntimeError, GeneratorExit])
def raising_log(request) -> Iterator[list[logging.LogRecord]]:
    """A handler of the log that raises for each record; the records."""
    records: list[logging.LogRecord] = []

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)
            raise request.param("no log")

    handler, logger = Raising(), logging.getLogger("django_ayework")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


@pytest.mark.parametrize("declared", [writes, writes_in_async, writes_atomically], ids=lambda one: one.name)
def test_a_handler_of_the_log_that_raises_fails_no_work(declared, raising_log, capsys):
    with connected(leave_a_transaction_open, work_started), running_worker(concurrency=1):
        for number in range(2):
            enqueue(declared(number=number)).result(timeout=20)
    assert references() == ["order 0", "order 1"]
    assert not Attempt.objects.exists()
    assert "no log" in capsys.readouterr().err
    assert "connections" in {record.module for record in raising_log}, "it names the caller"


@pytest.mark.parametrize("leave", [leave_a_transaction_open, switch_autocommit_off])
def test_a_worker_claims_after_a_receiver_of_its_start_has_left_a_transaction_open(leave):
    with connected(leave, worker_started), running_worker(concurrency=1):
        handle = enqueue(writes(number=1))
        handle.result(timeout=20)
        assert Work.objects.get(id=handle.id).delivery == 1
    assert references() == ["order 1"]


def test_an_error_of_a_receiver_of_the_start_is_reported(reported):
    def fails(**more) -> None:
        raise SystemExit("no luck")

    with connected(fails, worker_started), running_worker(concurrency=1):
        enqueue(writes(number=1)).result(timeout=20)
    assert reported == [("no luck", "hook")]


@pytest.fixture
def other(monkeypatch) -> str:
    """Another alias, which leads to the same database. A test may use the aliases of its class alone."""
    case = inspect.getclosurevars(BaseDatabaseWrapper.ensure_connection).nonlocals["cls"]
    monkeypatch.setattr(case, "databases", {"default", "other"})
    monkeypatch.setitem(connections.settings, "other", connection.settings_dict.copy())
    return "other"


@on_servers
def test_a_receiver_writes_to_another_database_after_one_has_left_a_transaction_open_there(other):
    def receive(work, **more) -> None:
        Order.objects.using(other).create(reference=work.id)
        if not kept_blocks:
            leave_a_block_open("of the receiver", other)

    with connected(receive, work_succeeded), running_worker(concurrency=1):
        handles = [enqueue(writes(number=number)) for number in range(3)]
        eventually(lambda: {handle.id for handle in handles} <= set(references()))
    assert "of the receiver" not in references()


SESSION = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
END = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL CONNECTION %s"}


def session_of(alias) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(SESSION[connection.vendor])
        return cursor.fetchone()[0]


@own_session
@on_servers
@pytest.mark.parametrize("max_age", [0, None])
def test_a_receiver_is_given_another_connection_to_another_database_after_its_own_has_ended(other, max_age):
    connections.settings[other]["CONN_MAX_AGE"] = max_age
    seen: list[tuple[str, int]] = []

    def receive(work, **more) -> None:
        seen.append((work.id, session_of(other)))

    with connected(receive, work_succeeded), running_worker(concurrency=1):
        enqueue(writes()).result(timeout=20)
        eventually(lambda: seen)
        if max_age is None:
            with connection.cursor() as cursor:
                cursor.execute(END[connection.vendor], [seen[0][1]])
            enqueue(writes()).result(timeout=20)
        last = enqueue(writes())
        eventually(lambda: last.id in dict(seen))
    assert dict(seen)[last.id] != seen[0][1]


@on_sqlite
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("signal", [work_started, work_succeeded])
def test_a_child_that_a_receiver_has_forked_and_that_comes_back_ends(tmp_path: Path, signal, caplog):
    children: list[int] = []

    @work(name="worker.notes_process")
    def notes_process() -> int:
        with (tmp_path / "processes").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return os.getpid()

    def forks(**more) -> None:
        child = os.fork()
        if not child:
            raise ValueError("as of a program that is not there")
        children.append(child)

    with connected(forks, signal), running_worker(concurrency=1):
        assert enqueue(notes_process()).result(timeout=20) == os.getpid()
        eventually(lambda: children)
        found = eventually(lambda: (ended := os.waitpid(children[0], os.WNOHANG))[0] and ended)
    assert os.waitstatus_to_exitcode(found[1]) == 1
    assert (tmp_path / "processes").read_text().split() == [str(os.getpid())]
