"""Workers whose connections are cut or do not answer: for a moment, for longer than leases, or for good."""

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from django.db import Error, OperationalError, connection, connections, transaction
from django.db.backends.signals import connection_created

from django_ayework import Context, Dedup, Retry, enqueue, enqueue_many, work
from django_ayework.models import Attempt, Work, WorkerProcess
from django_ayework.signals import work_succeeded
from django_ayework.store import sessions
from django_ayework.testing import now, running_worker
from tests.app.models import Order
from tests.marks import own_session
from tests.processes import (
    PATIENCE,
    ended,
    ended_well,
    eventually,
    get,
    health_address,
    stopped,
    worker_process,
)
from tests.proxies import Proxy
from tests.worker.conftest import all_end
from tests.worker.works import at, counted, quick, started, until_aborted_at

pytestmark = pytest.mark.vendors("postgresql", "mysql")


def four_at(place):
    return enqueue_many([at(place=str(place), number=number) for number in range(4)])


def all_started(place) -> None:
    eventually(lambda: all(started(place, number) for number in range(4)))


def test_a_worker_cut_off_for_a_moment_carries_on_and_loses_nothing(cut_off_env, proxy, tmp_path):
    handles = four_at(tmp_path)
    with worker_process(cut_off_env, "--concurrency", "4", "--max-works", "10") as process:
        all_started(tmp_path)
        proxy.cut()
        (tmp_path / "go").touch()  # what they return waits for the database
        more = enqueue_many([quick(number=number) for number in range(6)])
        assert {handle.state().status for handle in handles} == {"running"}
        proxy.mend()
        assert [handle.result(timeout=30) for handle in handles] == ["attempt 1"] * 4
        all_end(more)
        ended_well(process)
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}
    assert not Attempt.objects.exists()


@pytest.mark.usefixtures("quick_polls")
def test_a_worker_cut_off_for_longer_than_its_leases_gives_up_what_another_has_taken(
    cut_off_env, proxy, tmp_path
):
    handle = enqueue(until_aborted_at(place=str(tmp_path)))
    with worker_process(cut_off_env | {"TEST_LEASE": "1"}, "--concurrency", "1") as lonely:
        eventually(lambda: started(tmp_path))
        proxy.cut()
        with running_worker():
            assert handle.result(timeout=30) == "attempt 2"
        before = list(Work.objects.values())
        proxy.mend()
        eventually(lambda: (tmp_path / "reason").exists() and (tmp_path / "reason").read_text())
        output = stopped(lonely)
    # Which one depends on whether it could ask again when it noticed.
    assert (tmp_path / "reason").read_text() in ("error", "taken_by_another_worker", "already_completed")
    assert f"The outcome of work {handle.id} came too late" in output
    assert list(Work.objects.values()) == before, "the late outcome changed something"


def test_workers_cut_off_together_take_nothing_from_one_another(cut_off_env, proxy, tmp_path):
    """The database was away for all of them, for longer than any lease: nobody was lost."""
    env = cut_off_env | {"TEST_LEASE": "1"}
    handles = four_at(tmp_path)
    with worker_process(env, "--concurrency", "2"), worker_process(env, "--concurrency", "2"):
        all_started(tmp_path)
        proxy.cut()
        lapsed = Work.objects.order_by("-leased_until").values_list("leased_until", flat=True)[0]
        eventually(lambda: now() > lapsed)
        proxy.mend()
        eventually(lambda: not Work.objects.filter(leased_until__lte=lapsed).exists())
        (tmp_path / "go").touch()
        assert [handle.result(timeout=30) for handle in handles] == ["attempt 1"] * 4


@pytest.mark.parametrize("loss", [Proxy.cut, Proxy.hush])
def test_a_worker_that_stops_does_not_wait_for_its_database_for_ever(cut_off_env, proxy, tmp_path, loss):
    handle = enqueue(at(place=str(tmp_path)))
    with worker_process(cut_off_env) as process:
        eventually(lambda: started(tmp_path))
        loss(proxy)
        (tmp_path / "go").touch()
        process.terminate()
        status, output = ended(process)
    assert status == 1
    assert "run again once" in output
    assert Work.objects.get(id=handle.id).status == "running"


def test_a_worker_without_anything_in_hand_stops_at_once_without_its_database(cut_off_env, proxy):
    with worker_process(cut_off_env, "--health-port", "0") as process:
        url = health_address(process)
        eventually(lambda: get(f"{url}/ready")[0] == 200)
        proxy.cut()
        output = stopped(process)
    assert "could not note that it stopped" in output


def test_a_worker_that_starts_without_its_database_waits_for_it(cut_off_env, proxy):
    handle = enqueue(quick())
    proxy.cut()
    with worker_process(cut_off_env, "--burst") as process:
        eventually(lambda: proxy.refused)
        proxy.mend()
        handle.result(timeout=30)
        ended_well(process)


def test_a_worker_whose_registration_gets_no_answer_begins_all_the_same(cut_off_env, proxy):
    """Its row is there: a second one cannot be inserted."""
    handle = enqueue(quick(number=5))
    proxy.lose_answer(WorkerProcess._meta.db_table.encode())
    with worker_process(cut_off_env, "--concurrency", "1") as process:
        assert handle.result(timeout=30) == 5
        stopped(process)
    assert proxy.lost == 1
    assert WorkerProcess.objects.count() == 1


#: What the statement says that gets no answer, by the thread that sends it.
STATEMENTS = {
    "claiming": b"SKIP LOCKED",
    "settling": b"completed_by` = " if connection.vendor == "mysql" else b"completed_by",
}


def test_a_connection_that_does_not_answer_is_replaced_and_no_outcome_is_lost(cut_off_env, proxy):
    with worker_process(cut_off_env | {"TEST_STATEMENT_TIMEOUT": "1"}, "--concurrency", "2") as process:
        for thread in ("claiming", "settling"):
            before = proxy.hushed
            proxy.hush_one(STATEMENTS[thread])
            handles = enqueue_many([quick(number=number) for number in range(20)])
            eventually(lambda: proxy.hushed is not before)  # noqa: B023
            for handle in handles:
                handle.result(timeout=40)
        output = stopped(process)
    for thread in ("claiming", "settling"):
        assert f"The database has not answered the thread '{thread}'" in output
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}
    assert not Attempt.objects.exists()


def test_a_doer_goes_on_to_count_after_its_connection_has_not_answered(cut_off_env, proxy):
    with worker_process(cut_off_env | {"TEST_STATEMENT_TIMEOUT": "1"}) as process:
        proxy.hush_one(b"kv:rate:")
        handles = enqueue_many([counted(number=number) for number in range(5)])
        assert [handle.result(timeout=40) for handle in handles] == list(range(5))
        output = stopped(process)
    assert proxy.hushed is not None
    assert "The database has not answered the thread 'doer'" in output


@own_session
@pytest.mark.vendors("postgresql")
def test_health_names_the_thread_while_its_connection_does_not_answer(cut_off_env, proxy):
    """Here the server is given up after a minute, and health is asked with a bound of two seconds."""
    proxy.hush_one(STATEMENTS["settling"])
    env = cut_off_env | {"TEST_STATEMENT_TIMEOUT": "60", "TEST_STALL": "2"}
    with worker_process(env, "--health-port", "0") as process:
        url = health_address(process)
        enqueue(quick())
        eventually(lambda: get(f"{url}/live")[0] == 503)
        [reason] = get(f"{url}/live")[1]["reasons"]
        assert reason.startswith("the thread 'settling' has made no progress for")
        assert get(f"{url}/ready")[0] == 503


@pytest.mark.vendors("postgresql")
def test_a_worker_whose_thread_cannot_be_brought_back_ends_with_a_status_of_its_own(cut_off_env, proxy):
    """A service manager starts it again. Here nothing is cut, as if the driver did not return from that."""
    proxy.hush_one(STATEMENTS["settling"])
    env = cut_off_env | {"TEST_STATEMENT_TIMEOUT": "0.5", "TEST_STALL": "0.5", "TEST_NO_CUT": "1"}
    with worker_process(env) as process:
        handle = enqueue(quick())
        status, output = ended(process)
    assert status == 70, output
    assert "The thread 'settling' has not come back" in output
    assert handle.state().status == "running", "it is left to its lease"


READ_ONLY = {
    "postgresql": "SET default_transaction_read_only = on",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
}


@work(name="worker.demotes", retry=Retry(attempts=1))
def demotes() -> None:
    """Leave the connection as one is whose server has become a replica."""
    with connection.cursor() as cursor:
        cursor.execute(READ_ONLY[connection.vendor])


@work(name="worker.orders", retry=Retry(attempts=2, base=0.01))
def orders() -> None:
    Order.objects.create(reference="A1")


@pytest.fixture(params=["kept", pytest.param("pooled", marks=pytest.mark.vendors("postgresql"))])
def lasting(request, monkeypatch):
    """Let connections of new threads outlast what they were opened for."""
    before = connections.settings["default"]
    pooled = {"OPTIONS": before["OPTIONS"] | {"pool": {"min_size": 0, "max_size": 4, "timeout": 5}}}
    config = before | ({"CONN_MAX_AGE": None} if request.param == "kept" else pooled)
    monkeypatch.setitem(connections.settings, "default", config)
    yield
    if request.param == "pooled":
        connections.create_connection("default").close_pool()


@own_session
@pytest.mark.usefixtures("quick_polls", "lasting")
def test_no_thread_gets_a_connection_again_whose_server_has_become_read_only():
    with running_worker(concurrency=1):
        enqueue(demotes()).result(timeout=20)
        handles = enqueue_many(orders() for _ in range(3))
        for handle in handles:
            handle.result(timeout=20)
    assert Order.objects.count() == 3
    assert Attempt.objects.count() == 1


@pytest.mark.vendors("postgresql")
@pytest.mark.usefixtures("quick_polls")
def test_an_idle_worker_comes_to_ask_the_server_to_which_new_connections_lead(monkeypatch):
    """The former one still answers, and nobody enqueues there. To a session, an empty table stands for it."""
    monkeypatch.setattr(sessions, "LONGEST_KEPT", 0.5)
    asked: list[object] = []

    def leads_elsewhere(sender: object, connection, **kwargs: object) -> None:
        if threading.current_thread().name == "ayework-claiming" and not asked:
            asked.append(connection)
            with connection.cursor() as cursor:
                cursor.execute("CREATE TEMPORARY TABLE django_ayework_work (LIKE django_ayework_work)")

    connection_created.connect(leads_elsewhere)
    try:
        with running_worker():
            assert enqueue(quick()).result(timeout=20) is not None
    finally:
        connection_created.disconnect(leads_elsewhere)
    assert asked


@work(name="worker.tells_progress")
def tells_progress(ctx: Context, number: int) -> int:
    ctx.progress(number)
    return number


def break_once(monkeypatch, is_time: Callable[[], bool]) -> list[object]:
    """Let the connection of the settling thread break once at that time, as it leaves a transaction.

    Django has set autocommit off then, and takes the next transaction for one of the caller's own.
    """
    broken: list[object] = []
    set_autocommit = type(connections["default"])._set_autocommit

    def breaks(session, autocommit: bool) -> None:
        is_settling = threading.current_thread().name == "ayework-settling"
        if autocommit and is_settling and not broken and is_time():
            broken.append(session)
            session.connection.close()
            raise OperationalError("the connection is gone")
        set_autocommit(session, autocommit)

    monkeypatch.setattr(type(connections["default"]), "_set_autocommit", breaks)
    return broken


def test_outcomes_are_written_after_a_connection_broke_as_it_left_a_transaction(monkeypatch):
    broken = break_once(monkeypatch, lambda: True)
    handles = enqueue_many([tells_progress(number=number) for number in range(3)])
    with running_worker():
        assert [handle.result(timeout=PATIENCE) for handle in handles] == [0, 1, 2]
    assert broken


def test_outcomes_are_written_after_a_connection_broke_in_a_receiver(monkeypatch):
    is_inside = threading.Event()
    broken = break_once(monkeypatch, is_inside.is_set)

    def count_twice(**facts) -> None:
        is_inside.set()
        for _ in range(2):
            with suppress(Error), transaction.atomic():
                Work.objects.count()
        is_inside.clear()

    work_succeeded.connect(count_twice)
    try:
        with running_worker():
            assert enqueue(quick(number=1)).result(timeout=PATIENCE) == 1
            eventually(lambda: broken and not is_inside.is_set())
            assert enqueue(quick(number=2)).result(timeout=PATIENCE) == 2
    finally:
        work_succeeded.disconnect(count_twice)


def test_a_transaction_of_the_callers_own_outlives_a_block_of_the_engine_that_could_not_begin(monkeypatch):
    def fails() -> None:
        raise OperationalError("no savepoint")

    transaction.set_autocommit(False)
    try:
        Order.objects.create()
        with monkeypatch.context() as failing, pytest.raises(OperationalError, match="no savepoint"):
            failing.setattr(connections["default"], "savepoint", fails)
            enqueue(quick(number=1), dedup=Dedup("one"))
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert Order.objects.count() == 1
