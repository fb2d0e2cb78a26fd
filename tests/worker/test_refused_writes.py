"""A database that answers and refuses or delays what is written: successes wait, and stay successes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.backends.signals import connection_created

from django_ayework import (
    Context,
    Retry,
    WorkFailed,
    cancel,
    completing,
    dependency,
    enqueue,
    enqueue_many,
    trigger,
    work,
)
from django_ayework.models import Attempt, Work
from django_ayework.store import sessions
from django_ayework.store.sessions import engine_session
from django_ayework.testing import now, running_worker
from django_ayework.worker import attempt
from django_ayework.worker import worker as worker_module
from django_ayework.worker.worker import Worker
from tests.processes import PATIENCE, eventually
from tests.races.holding import in_thread, transaction_elsewhere
from tests.worker import works
from tests.worker.works import hold, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


@work(name="worker.returns_much", retry=Retry(attempts=1))
def returns_much() -> str:
    works.stage.go.wait(PATIENCE)
    return "x" * 500_000


@work(name="worker.returns_characters", retry=Retry(attempts=1))
def returns_characters(number: int) -> str:
    return "x" * number


@work(name="worker.counts_works", retry=Retry(attempts=1))
def counts_works() -> int:
    return Work.objects.count()


@work(name="worker.gathers")
def gathers() -> None: ...


@work(name="worker.outputs", then="worker.gathers")
def outputs(ctx: Context, unit: str = "hot") -> None:
    ctx.output([unit])


def administer(sql: str) -> None:
    """Change the test database, and end all other sessions, so that later ones have the change."""
    with connection.cursor() as cursor:
        cursor.execute(sql.format(name=connection.ops.quote_name(connection.settings_dict["NAME"])))
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.vendors("postgresql")
def test_a_success_waits_for_a_database_that_is_read_only(stage):
    """As during a failover, to a standby that was not promoted yet."""
    handle = enqueue(hold(number=4), retry=Retry(attempts=1))
    with running_worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        try:
            administer("ALTER DATABASE {name} SET default_transaction_read_only = on")
            stage.go.set()
            eventually(lambda: handle.id in worker._settler._waiting)
        finally:
            administer("ALTER DATABASE {name} RESET default_transaction_read_only")
        assert handle.result(timeout=PATIENCE) == 4
    assert stage.started == [4]
    assert not Attempt.objects.exists()


@contextmanager
def full_disk() -> Iterator[None]:
    """Let SQLite files not grow in sessions of the engine that are opened meanwhile."""

    def limit(sender: object, connection: object, **kwargs: object) -> None:
        if getattr(connection, sessions.ATTRIBUTE, None) is not None:
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA page_count")
                cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")

    connection_created.connect(limit)
    try:
        yield
    finally:
        connection_created.disconnect(limit)


@pytest.mark.vendors("sqlite")
def test_a_success_waits_for_a_disk_that_is_full(stage):
    with connections["default"].cursor() as cursor:
        cursor.execute("VACUUM")  # or the result finds room in pages that other tests have freed
    handle = enqueue(returns_much())
    with running_worker(concurrency=1) as worker:
        eventually(lambda: Work.objects.get(id=handle.id).status == "running")
        with full_disk():
            stage.go.set()
            eventually(lambda: handle.id in worker._settler._waiting)
            assert Work.objects.get(id=handle.id).status == "running"
        assert len(handle.result(timeout=PATIENCE)) == 500_000
    assert not Attempt.objects.exists()


def test_a_handler_that_gets_no_connection_spends_no_attempt(monkeypatch):
    monkeypatch.setattr(attempt, "UNCONNECTED_FOR", 0.01)
    wrapper = type(connections["default"])
    connect = wrapper.get_new_connection
    refused: list[str] = []

    def refuse_twice(self, params):
        name = threading.current_thread().name
        if name.startswith("ayework-slot") and len(refused) < 2:
            refused.append(name)
            raise OperationalError("FATAL: sorry, too many clients already")
        return connect(self, params)

    monkeypatch.setattr(wrapper, "get_new_connection", refuse_twice)
    handle = enqueue(counts_works())
    with running_worker(concurrency=1):
        assert handle.result(timeout=PATIENCE) == 1
    assert len(refused) == 2
    assert Work.objects.get(id=handle.id).attempt == 1
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"deferred"}


def test_an_error_of_a_connection_that_was_open_is_a_failure(monkeypatch):
    def fail() -> int:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(Work.objects, "count", fail)
    handle = enqueue(counts_works())
    with running_worker(concurrency=1):
        eventually(lambda: Work.objects.get(id=handle.id).status == "dead")


def test_a_worker_takes_no_more_works_at_a_time_than_its_pool_has_connections(monkeypatch, caplog):
    monkeypatch.setattr(worker_module, "pool_size", lambda: 3)
    assert Worker(concurrency=8).concurrency == 3
    assert "runs 3 works at a time instead of 8" in caplog.text
    assert Worker(concurrency=2).concurrency == 2


def test_a_hook_that_takes_longer_than_a_lease_costs_no_work_its_lease(stage, settings):
    called, over = threading.Event(), threading.Event()

    def hook(group) -> None:
        called.set()
        over.wait(PATIENCE)

    settings.AYEWORK = {"LEASE": 0.6, "POLL_INTERVAL": 0.05, "UNHANDLED_GROUP": hook}
    long = enqueue(hold(number=1))
    with running_worker(concurrency=2), running_worker(concurrency=2):
        eventually(lambda: stage.started)
        enqueue(counts_works())
        assert called.wait(PATIENCE)
        first = Work.objects.get(id=long.id).leased_until
        eventually(lambda: (Work.objects.get(id=long.id).leased_until - first).total_seconds() > 1.5)
        stage.go.set()
        assert long.result(timeout=PATIENCE) == 1
        over.set()
    assert stage.started == [1]


servers = pytest.mark.vendors("postgresql", "mysql")


def all_end(number: int = 20) -> None:
    """Queue works that have nothing to do with anything, and wait for them."""
    for handle in enqueue_many([quick(number=100 + each) for each in range(number)]):
        handle.result(timeout=PATIENCE)


@pytest.mark.vendors("mysql")
def test_a_result_that_is_larger_than_a_packet_fails_its_attempt(settings):
    """The server ends the session, and the driver reports error 2006, as for a server that is away."""
    settings.AYEWORK = {"MAX_PAYLOAD": 10**9, "POLL_INTERVAL": 0.05}
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        [most] = cursor.fetchone()
    handle = enqueue(returns_characters(number=3 * most))
    with running_worker(), pytest.raises(WorkFailed, match="max_allowed_packet"):
        handle.result(timeout=PATIENCE)


#: By vendor: a trigger that refuses the success of a type, and what removes it.
TRIGGERS = {
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'refused by a trigger'; END $$; "
        "CREATE TRIGGER refuses BEFORE UPDATE ON {table} FOR EACH ROW "
        "WHEN (NEW.status = 'success' AND NEW.type = '{type}') EXECUTE FUNCTION refuse()",
        "DROP FUNCTION refuse CASCADE",
    ),
    "mysql": (
        "CREATE TRIGGER refuses BEFORE UPDATE ON {table} FOR EACH ROW "
        "IF NEW.status = 'success' AND NEW.type = '{type}' THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by a trigger'; END IF",
        "DROP TRIGGER refuses",
    ),
}


@contextmanager
def trigger_against(type: str) -> Iterator[None]:
    """Let a trigger of the project refuse the successes of a type."""
    create, drop = TRIGGERS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(create.format(table=Work._meta.db_table, type=type))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(drop)


@servers
def test_outcomes_that_the_database_refuses_delay_no_others():
    with running_worker(concurrency=3) as worker:
        with trigger_against(gathers.name):
            refused = enqueue_many([gathers() for _ in range(5)])
            eventually(lambda: len(worker._settler._waiting) == len(refused))
            all_end()
            all_end()
        for handle in refused:
            handle.result(timeout=PATIENCE)
    assert not Attempt.objects.exists()


@servers
@pytest.mark.parametrize("kind", ["cancelled", "rolled back", "gate"])
def test_a_caller_that_holds_a_row_delays_the_outcome_of_its_work_alone(stage, kind):
    handle = enqueue(hold(number=7))
    gate = enqueue(dependency(on=[handle.id, enqueue(quick(), delay=3600).id], queue=[quick(number=5)]))

    def act() -> None:
        if kind == "gate":
            with completing(gate.id):
                return
        cancel(handle.id)
        transaction.set_rollback(kind == "rolled back")

    with running_worker(concurrency=3):
        eventually(lambda: stage.started)
        with transaction_elsewhere(act):
            stage.go.set()
            eventually(lambda: not stage.inside)
            all_end()
            all_end()
            assert kind == "gate" or Work.objects.get(id=handle.id).status == "running"
        if kind == "cancelled":
            eventually(lambda: handle.state().status == "cancelled")
        else:
            assert handle.result(timeout=PATIENCE) == 7
    assert Work.objects.get(id=handle.id).attempt == 1
    outcomes = [*Attempt.objects.values_list("outcome", flat=True)]
    assert outcomes == (["revoked"] if kind == "cancelled" else [])


@servers
def test_a_caller_that_holds_a_group_delays_the_outcomes_of_its_members_alone(stage):
    ours, other = enqueue_many([quick(number=1), quick(number=2)], delay=3600, together=True)
    with running_worker(concurrency=3), transaction_elsewhere(lambda: cancel(ours.id)):
        trigger(other.id)
        eventually(lambda: 2 in stage.started)
        all_end()
        all_end()
        assert Work.objects.get(id=other.id).status == "running"
    with running_worker():
        assert other.result(timeout=PATIENCE) == 2


@servers
def test_a_caller_that_holds_a_unit_delays_the_outcomes_that_output_it_alone(stage):
    """The lock of a new unit is a row that nobody else can see yet."""
    with running_worker(concurrency=3):
        with transaction_elsewhere(lambda: enqueue(gathers(), unit="hot", delay=3600)):
            held = enqueue_many([outputs() for _ in range(200)])
            free = enqueue_many([outputs(unit="cold") for _ in range(3)])
            for handle in free:
                handle.result(timeout=PATIENCE)
            all_end()
            all_end()
            assert not Work.objects.filter(id__in=[handle.id for handle in held], status="success").exists()
        for handle in held:
            handle.result(timeout=PATIENCE)
    assert Work.objects.filter(type=gathers.name, unit="hot").count() == 1
    assert set(Work.objects.filter(type=outputs.name).values_list("delivery", flat=True)) == {1}


@servers
def test_a_row_that_was_locked_for_longer_than_a_lease_is_renewed_and_not_taken(stage, settings):
    settings.AYEWORK = {"LEASE": 1.5, "POLL_INTERVAL": 0.05}  # renewed twice before a lapse is confirmed
    handle = enqueue(hold(number=3))
    with running_worker(concurrency=1), running_worker(concurrency=1):
        eventually(lambda: stage.started)
        with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=handle.id)):
            until = Work.objects.get(id=handle.id).leased_until
            eventually(lambda: now() > until + timedelta(seconds=0.5))
        eventually(lambda: Work.objects.get(id=handle.id).leased_until > until)
        stage.go.set()
        assert handle.result(timeout=PATIENCE) == 3
    assert stage.started == [3]
    assert Work.objects.get(id=handle.id).delivery == 1


@servers
def test_a_transaction_that_the_engine_leaves_open_ends_by_itself(settings):
    """Its host was frozen, or has vanished: the locks are given back to the others."""
    settings.AYEWORK = {"STATEMENT_TIMEOUT": 1}
    handle = enqueue(quick())
    is_locked, over = threading.Event(), threading.Event()

    def freeze() -> None:
        with engine_session():
            try:
                with transaction.atomic():
                    Work.objects.select_for_update().get(id=handle.id)
                    is_locked.set()
                    over.wait(PATIENCE)
            except Exception:
                pass

    with in_thread(freeze):
        assert is_locked.wait(PATIENCE)
        cancel(handle.id)
        assert connection.in_atomic_block is False
        assert not over.is_set()
        over.set()
    assert handle.state().status == "cancelled"
