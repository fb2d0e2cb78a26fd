"""What a worker does while something is wrong, and how its statements are bounded."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.utils.connection import ConnectionDoesNotExist

from django_ayework import Context, Retry, enqueue, enqueue_many, schedule, work
from django_ayework.define.schedules import schedules
from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.signals import work_succeeded
from django_ayework.store import claims, transitions
from django_ayework.store.database import has_timed_out, run
from django_ayework.store.dialects import PostgreSQL
from django_ayework.store.sessions import engine_session
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import executor, settler
from django_ayework.worker import leases as leases_module
from django_ayework.worker import worker as worker_module
from django_ayework.worker.worker import Worker
from tests.attempts.conftest import connected
from tests.marks import is_pooled, on_servers, own_session
from tests.processes import eventually
from tests.races.holding import transaction_elsewhere
from tests.worker.conftest import Flaky, all_end
from tests.worker.works import hold_async, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


def fail(*args, **kwargs):
    raise OperationalError("server closed the connection unexpectedly")


@pytest.fixture
def soon_again(monkeypatch) -> None:
    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)


@pytest.mark.usefixtures("soon_again")
def test_what_one_queue_gave_is_run_although_the_next_cannot_be_claimed_from(monkeypatch):
    claim = claims.claim
    monkeypatch.setattr(
        claims, "claim", lambda queue, *args: (fail if queue == "broken" else claim)(queue, *args)
    )
    enqueue_many([quick(number=number) for number in range(20)], queue="good")
    enqueue(quick(number=99), queue="broken")
    with running_worker(concurrency=4):
        eventually(lambda: Work.objects.filter(status="success").count() == 20)
    assert set(Work.objects.filter(queue="good").values_list("delivery", flat=True)) == {1}


@pytest.mark.usefixtures("soon_again")
def test_a_work_that_cannot_be_offered_to_others_holds_up_nothing(monkeypatch):
    monkeypatch.setattr(transitions, "release", fail)
    WorkFactory(type="other.app", priority=5)
    handles = enqueue_many([quick(number=number) for number in range(5)])
    with running_worker(concurrency=8):
        all_end(handles)
    assert set(Work.objects.filter(type="worker.quick").values_list("delivery", flat=True)) == {1}
    Work.objects.filter(type="other.app").delete()


#: Sessions of others wait for it. On SQLite each transaction locks the whole database.
LOCK = {
    "sqlite": "SELECT 1",
    "postgresql": "LOCK TABLE django_ayework_work",
    "mysql": "LOCK TABLES django_ayework_work WRITE",
}


@own_session
def test_a_lock_that_somebody_holds_for_long_is_named_in_the_log_without_a_traceback(monkeypatch, caplog):
    if connection.vendor == "sqlite":
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.05)
    with transaction_elsewhere(lambda: run(LOCK[connection.vendor])), running_worker():
        eventually(lambda: "(queue phase)" in caplog.text)
    [record, *_] = [each for each in caplog.records if "(queue phase)" in each.getMessage()]
    assert "(queue phase): another transaction holds a lock: " in record.getMessage()
    assert record.getMessage().endswith("log.html#lock-held)")
    assert record.exc_info is None


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("error", [AssertionError("a bug"), SystemExit(3)], ids=repr)
def test_an_error_of_the_engine_itself_fails_the_attempt_and_its_slot_goes_on(monkeypatch, caplog, error):
    run = Flaky(executor.run, 1, error)
    monkeypatch.setattr(executor, "run", run)
    handle = enqueue(quick(), retry=Retry(attempts=2, base=0))
    with running_worker(concurrency=1):
        handle.result(timeout=20)
    assert Attempt.objects.get(work_id=handle.id, number=1).error.startswith(type(error).__name__)
    assert "the engine failed on" in caplog.text


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize(("kind", "name"), [(quick, "ayework-slot"), (hold_async, "ayework-async")])
def test_a_worker_keeps_its_slots_while_the_system_starts_no_thread(stage, monkeypatch, caplog, kind, name):
    """In a container whose limit of processes is reached, say."""
    start = threading.Thread.start
    refused: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and len(refused) < 6:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    handles = enqueue_many([kind(number=number) for number in range(4)])
    stage.go.set()
    with running_worker(concurrency=2) as worker:
        all_end(handles)
        eventually(lambda: worker._executor.free == 2)
    assert len(refused) == 6
    assert caplog.text.count("waits for another: can't start new thread") == 1


@pytest.mark.vendors("sqlite")
def test_a_duty_that_fails_is_done_again():
    beats = []

    def beat() -> None:
        beats.append(1)
        fail()

    worker = Worker()
    duty = next(duty for duty in worker._maintenance._duties if duty.act == worker._maintenance.beat)
    duty.act, duty.every, duty.due_at = beat, 0.0, 0.0
    with worker:
        eventually(lambda: len(beats) > 1)


@pytest.mark.vendors("sqlite")
@pytest.mark.usefixtures("soon_again")
def test_a_database_that_stays_away_is_logged_with_a_traceback_once(monkeypatch, caplog):
    """By the claiming thread, and by the thread that renews leases."""
    monkeypatch.setattr(leases_module, "TICK", 0.01)
    with running_worker(concurrency=1) as worker:
        away = Flaky(worker._claimer.poll, 4)
        monkeypatch.setattr(worker._claimer, "poll", away)
        renew = worker._leases.turn = Flaky(worker._leases.turn, 4)
        eventually(lambda: not away.left and not renew.left)
    for line in ("the claiming loop failed", "the leases could not be renewed"):
        at_length = [bool(record.exc_info) for record in caplog.records if line in record.getMessage()]
        assert at_length == [True, False, False, False]


def test_a_worker_that_was_forgotten_is_back_with_its_next_heartbeat():
    with running_worker(name="back") as worker:
        eventually(lambda: WorkerProcess.objects.filter(id=worker.id).delete()[0])
        worker._maintenance.beat()
        assert WorkerProcess.objects.get().name == "back"


@pytest.mark.vendors("sqlite")
def test_the_last_progress_of_a_quick_work_is_kept():
    @work(name="worker.notes_progress")
    def notes_progress(ctx: Context) -> None:
        for done in range(4):
            ctx.progress(done, 3, note="all" if done == 3 else "some")

    handle = enqueue(notes_progress())
    with running_worker():
        handle.result(timeout=20)
    assert handle.state().progress == {"done": 3, "total": 3, "note": "all"}


KEPT = []


def in_a_block():
    with transaction.atomic():
        Work.objects.filter(type="never").delete()
        yield


def leave_a_block_open() -> None:
    KEPT.append(in_a_block())
    next(KEPT[-1])


def switch_autocommit_off() -> None:
    transaction.set_autocommit(False)
    Work.objects.count()


@contextmanager
def one_warning(caplog):
    """Check that it is logged once, and forget the block that is open: it ends no transaction, but fails."""
    try:
        yield
    finally:
        while KEPT:
            with pytest.raises(ConnectionDoesNotExist):
                KEPT.pop().close()
    assert caplog.text.count("has left a transaction open on the connection") == 1


@pytest.mark.parametrize("spoil", [leave_a_block_open, switch_autocommit_off])
def test_a_receiver_that_leaves_a_transaction_open_costs_no_outcome(caplog, spoil):
    once = iter([spoil])

    def receive(**more) -> None:
        next(once, lambda: None)()

    with connected(receive, work_succeeded), one_warning(caplog), running_worker(concurrency=2):
        for _ in range(3):
            all_end(enqueue_many([quick(number=number) for number in range(5)]))
    assert set(Work.objects.values_list("status", "delivery")) == {("success", 1)}


def test_a_function_that_leaves_a_transaction_open_stops_no_schedule(caplog):
    def run():
        if not KEPT:
            leave_a_block_open()
        return quick(number=1)

    schedule(name="spoils", every=1, run=run)
    try:
        with one_warning(caplog), running_worker():
            eventually(lambda: Work.objects.filter(status="success").count() >= 2)
    finally:
        schedules.unregister("spoils")


# --- the engine's own statements are bounded in time; those of handlers are the project's affair ---------

#: By vendor: the seconds that a statement of this session may take, and a statement that takes long. A SLEEP
#: alone that MySQL ends is no error there.
BOUND = {
    "postgresql": "SELECT setting::int / 1000.0 FROM pg_settings WHERE name = 'statement_timeout'",
    "mysql": "SELECT @@max_statement_time",
    "MySQL": "SELECT @@max_execution_time / 1000",
}
SLOW = {
    "postgresql": "SELECT pg_sleep(20)",
    "mysql": "SELECT SLEEP(20)",
    "MySQL": "SELECT SLEEP(2) FROM information_schema.tables",
}


def ask(statement: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def of_server(statements: dict[str, str]) -> str:
    """Return the statement for the server at hand; Django has one vendor for MariaDB and MySQL."""
    is_mysql = not getattr(connection, "mysql_is_mariadb", True)
    return statements["MySQL" if is_mysql else connection.vendor]


def bound() -> float:
    return float(ask(of_server(BOUND)))


def in_session(act):
    """Do something in a session of the engine, in a thread of its own."""

    def run() -> object:
        try:
            with engine_session():
                return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(30)


@work(name="worker.bound_of_handler")
def bound_of_handler() -> float:
    return bound()


@on_servers
@own_session
@pytest.mark.parametrize("timeout", [2.5, None])
def test_a_session_of_the_engine_is_bounded_and_a_handlers_is_left_alone(settings, timeout):
    settings.AYEWORK = {"STATEMENT_TIMEOUT": timeout, "POLL_INTERVAL": 0.05}
    before = bound()
    assert in_session(bound) == (timeout or before)
    with running_worker():
        assert enqueue(bound_of_handler()).result(timeout=20) == before


@on_servers
@own_session
def test_a_statement_that_takes_too_long_is_ended_and_known_for_what_it_is(settings):
    def wait() -> bool:
        with pytest.raises(OperationalError) as caught:
            ask(of_server(SLOW))
        return has_timed_out(caught.value)

    settings.AYEWORK = {"STATEMENT_TIMEOUT": 0.05}
    assert in_session(wait) is True


@pytest.mark.skipif(not is_pooled, reason="the engine has sessions of its own here")
def test_behind_a_pooler_no_session_is_touched():
    before = bound()
    assert in_session(bound) == before
    with running_worker():
        assert enqueue(bound_of_handler()).result(timeout=20) == before


@own_session
@pytest.mark.vendors("postgresql")
def test_a_session_that_a_pooler_lends_is_left_alone(monkeypatch):
    """A pooler names another process than the one that serves the statement."""
    session_setup = PostgreSQL.session_setup

    def for_another_process(*args):
        statement, [*bounds, server] = session_setup(*args)
        return statement, [*bounds, server + 1]

    monkeypatch.setattr(PostgreSQL, "session_setup", for_another_process)
    assert in_session(bound) == bound()


@own_session
@pytest.mark.vendors("postgresql")
def test_the_engine_compiles_no_statement():
    assert in_session(lambda: ask("SHOW jit")) == "off"


@on_servers
@own_session
def test_every_thread_of_the_engine_has_a_bounded_session(monkeypatch):
    found: dict[str, float] = {}

    def note(*args) -> None:
        found[threading.current_thread().name] = bound()

    settle = settler.settle
    monkeypatch.setattr(settler, "settle", lambda given: note() or settle(given))
    monkeypatch.setattr(leases_module.LeaseThread, "turn", lambda self: note() or 0.25)
    monkeypatch.setattr(Worker, "_is_drained", note)
    enqueue(bound_of_handler())
    worker = Worker(burst=True)
    worker.start()
    while len(found) < 3 and worker._thread is not None:
        worker._thread.join(0.01)
    worker.stop()
    assert found == {"ayework-claiming": 15.0, "ayework-settling": 15.0, "ayework-leases": 15.0}
