"""A database that answers and refuses or delays what is written: successes wait, and stay successes."""

import threading
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
    doers,
    enqueue,
    trigger,
    work,
)
from django_ayework.api import enqueue_many
from django_ayework.models import Attempt, Waiter, Work
from django_ayework.store import leases, sessions
from django_ayework.store.sessions import engine_session
from django_ayework.testing import now, running_worker
from django_ayework.worker import handlers
from django_ayework.worker import settler as settler_module
from django_ayework.worker import worker as worker_module
from django_ayework.worker.worker import Worker
from tests.attempts.conftest import renew_soon
from tests.marks import on_servers, own_session
from tests.processes import PATIENCE, eventually
from tests.races.holding import in_thread, transaction_elsewhere
from tests.worker import works
from tests.worker.conftest import all_end, while_it_runs
from tests.worker.works import hold, long_lease, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


@work(name="worker.returns_much", retry=Retry(attempts=1))
def returns_much(number: int, waits: bool = False) -> str:
    works.stage.started.append(number)
    if waits:
        works.stage.go.wait(PATIENCE)
    return "x" * number


@work(name="worker.counts_works", retry=Retry(attempts=1))
def counts_works() -> int:
    return Work.objects.count()


@work(name="worker.limited", retry=Retry(attempts=1), doer=doers.rate_limited(9, 60, shared=True))
def limited() -> int:
    return 1


gathers = work(name="worker.gathers")(lambda: None)


@work(name="worker.outputs", then="worker.gathers")
def outputs(ctx: Context, unit: str = "hot") -> None:
    ctx.output([unit])


@work(name="worker.continues")
def continues(ctx: Context):
    return ctx.continue_with(hold())


def status(handle) -> str:
    return Work.objects.get(id=handle.id).status


def leased_until(handle):
    return Work.objects.get(id=handle.id).leased_until


def others_end() -> None:
    """Twice, queue works that have nothing to do with anything, and wait for them."""
    for _ in range(2):
        all_end(enqueue_many([quick(number=100 + each) for each in range(8)]))


@contextmanager
def all_sessions(setting: str, value: str):
    """Let all sessions have a setting of PostgreSQL; those that are open end."""

    def administer(sql: str) -> None:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {name} {sql}")
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    administer(f"SET {setting} = {value}")
    try:
        yield
    finally:
        administer(f"RESET {setting}")


def read_only():
    """Let all sessions be such that cannot write, as on a standby that was not promoted yet."""
    return all_sessions("default_transaction_read_only", "on")


@contextmanager
def full_disk():
    """Let SQLite files not grow in sessions of the engine that are opened meanwhile."""

    def limit(sender: object, connection: object, **kwargs: object) -> None:
        if getattr(connection, sessions.BOUNDS, None) is not None:
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA page_count")
                cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")

    connection_created.connect(limit)
    try:
        yield
    finally:
        connection_created.disconnect(limit)


@own_session
@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(read_only, marks=pytest.mark.vendors("postgresql")),
        pytest.param(full_disk, marks=pytest.mark.vendors("sqlite")),
    ],
)
def test_a_success_waits_for_a_database_that_cannot_be_written(stage, trouble):
    if trouble is full_disk:
        with connections["default"].cursor() as cursor:
            cursor.execute("VACUUM")  # or the result finds room in pages that other tests have freed
    handle = enqueue(returns_much(number=500_000, waits=True))
    with running_worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        with trouble():
            stage.go.set()
            eventually(lambda: handle.id in worker._settler._waiting)
            assert status(handle) == "running"
        assert len(handle.result(timeout=PATIENCE)) == 500_000
    assert Work.objects.get().attempt == 1
    assert not Attempt.objects.exists()


@pytest.mark.vendors("postgresql")
def test_sessions_of_a_worker_that_waits_are_idle_for_longer_than_the_project_allows_others(settings, caplog):
    settings.AYEWORK = {"POLL_INTERVAL": 0.3}
    with all_sessions("idle_session_timeout", "50"), running_worker() as worker:
        for number in range(3):
            assert enqueue(quick(number=number)).result(timeout=PATIENCE) == number
            polled = worker._claimer._polled_at
            eventually(lambda polled=polled: worker._claimer._polled_at > polled)
    assert "idle-session timeout" not in caplog.text
    assert "cut off" not in caplog.text


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("refusal", [OperationalError("too many users"), OSError(24, "too many open files")])
def test_a_handler_that_gets_no_connection_spends_no_attempt(monkeypatch, attempts, refusal):
    """A last attempt needs the connection already to be noted as begun."""
    monkeypatch.setattr(handlers, "PUT_OFF_FOR", 0.01)
    wrapper = type(connections["default"])
    connect = wrapper.get_new_connection
    refused: list[str] = []

    def refuse_twice(self, params):
        name = threading.current_thread().name
        if name.startswith("ayework-slot") and len(refused) < 2:
            refused.append(name)
            raise refusal
        return connect(self, params)

    monkeypatch.setattr(wrapper, "get_new_connection", refuse_twice)
    handle = enqueue(counts_works(), retry=Retry(attempts=attempts))
    with running_worker(concurrency=1):
        assert handle.result(timeout=PATIENCE) == 1
    assert len(refused) == 2
    assert Work.objects.get(id=handle.id).attempt == 1
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"deferred"}


@on_servers
@pytest.mark.parametrize(("thread", "kind"), [("ayework-slot", counts_works), ("ayework-timer", limited)])
def test_a_connection_that_breaks_while_it_is_set_up_is_not_kept_in_its_thread(monkeypatch, thread, kind):
    """That of a slot, or of a doer that counts its starts in the database."""
    monkeypatch.setattr(handlers, "PUT_OFF_FOR", 0.01)
    wrapper = type(connections["default"])
    set_up = wrapper.init_connection_state
    broken: list[str] = []

    def break_once(self):
        name = threading.current_thread().name
        if name.startswith(thread) and not broken:
            broken.append(name)
            sessions.cut(sessions.number_of_socket(self.connection))
            with self.cursor() as cursor:
                cursor.execute("SELECT 1")
        set_up(self)

    monkeypatch.setattr(wrapper, "init_connection_state", break_once)
    handle = enqueue(kind())
    with running_worker(concurrency=1):
        assert handle.result(timeout=PATIENCE) == 1
    assert broken


def test_an_error_of_a_connection_that_was_open_is_a_failure(monkeypatch):
    def fail() -> int:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(Work.objects, "count", fail)
    handle = enqueue(counts_works())
    with running_worker(concurrency=1):
        eventually(lambda: status(handle) == "dead")


@pytest.mark.vendors("sqlite")
def test_a_worker_takes_no_more_works_at_a_time_than_its_pool_has_connections(monkeypatch, caplog):
    monkeypatch.setattr(worker_module, "pool_size", lambda: 3)
    assert Worker(concurrency=8).concurrency == 3
    assert "runs 3 works at a time instead of 8" in caplog.text
    assert Worker(concurrency=2).concurrency == 2


@pytest.mark.vendors("sqlite")
def test_a_hook_that_takes_longer_than_a_lease_costs_no_work_its_lease(stage, settings):
    called, over = threading.Event(), threading.Event()

    def hook(group) -> None:
        called.set()
        over.wait(PATIENCE)

    settings.AYEWORK = {"LEASE": 0.6, "POLL_INTERVAL": 0.05, "UNHANDLED_GROUP": hook}
    with while_it_runs(hold(number=1), workers=2, concurrency=2) as (long, _):
        enqueue(counts_works())
        assert called.wait(PATIENCE)
        first = leased_until(long)
        eventually(lambda: leased_until(long) > first + timedelta(seconds=1.5))
        stage.go.set()
        assert long.result(timeout=PATIENCE) == 1
        over.set()
    assert stage.started == [1]


@pytest.mark.vendors("mysql")
def test_a_result_that_is_larger_than_a_packet_fails_its_attempt(settings):
    """The server ends the session, and the driver reports error 2006, as for a server that is away."""
    settings.AYEWORK = {"MAX_PAYLOAD": 10**9, "POLL_INTERVAL": 0.05}
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        [most] = cursor.fetchone()
    handle = enqueue(returns_much(number=3 * most))
    with running_worker(), pytest.raises(WorkFailed, match="max_allowed_packet"):
        handle.result(timeout=PATIENCE)


#: By vendor: a trigger that refuses works of a type a status, and what removes it.
TRIGGERS = {
    "postgresql": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'refused by a trigger'; END $$; "
        "CREATE TRIGGER refuses BEFORE UPDATE ON {table} FOR EACH ROW "
        "WHEN (NEW.status = '{status}' AND NEW.type = '{type}') EXECUTE FUNCTION refuse()",
        "DROP FUNCTION refuse CASCADE",
    ),
    "mysql": (
        "CREATE TRIGGER refuses BEFORE UPDATE ON {table} FOR EACH ROW "
        "IF NEW.status = '{status}' AND NEW.type = '{type}' THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by a trigger'; END IF",
        "DROP TRIGGER refuses",
    ),
}


@contextmanager
def refusing(status: str):
    """Let a trigger refuse works of one type a status."""
    create, drop = TRIGGERS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(create.format(table=Work._meta.db_table, type=gathers.name, status=status))
        try:
            yield
        finally:
            cursor.execute(drop)


@on_servers
def test_outcomes_that_a_trigger_of_the_project_refuses_delay_no_others():
    with running_worker(concurrency=3) as worker:
        with refusing("success"):
            refused = enqueue_many([gathers() for _ in range(5)])
            eventually(lambda: len(worker._settler._waiting) == len(refused))
            others_end()
        all_end(refused)
    assert not Attempt.objects.exists()


@on_servers
@pytest.mark.parametrize("refused", ["pending", "dead"])
def test_a_work_that_a_trigger_refuses_keeps_no_lost_work_from_being_reclaimed(settings, refused):
    """It is lost itself, and is tried again and again; or its end is overdue, which another duty tries."""
    settings.AYEWORK = {"LEASE": 1.5, "POLL_INTERVAL": 0.05}
    past = now() - timedelta(minutes=1)
    lapsed = {"status": "running", "worker": "gone", "attempt": 1, "delivery": 1, "leased_until": past}
    later = enqueue(quick(number=0), delay=3600)
    held = enqueue(gathers(), retry=Retry(attempts=9), blockers=[later] if refused == "dead" else [])
    handles = enqueue_many([quick(number=number) for number in (1, 2)], retry=Retry(attempts=9))
    Work.objects.filter(id=held.id).update(**{"deadline": past} if refused == "dead" else lapsed)
    Work.objects.filter(id__in=[handle.id for handle in handles]).update(**lapsed)
    with refusing(refused), running_worker(concurrency=3):
        all_end(handles)
    assert status(held) == ("blocked" if refused == "dead" else "running")


@on_servers
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
            others_end()
            assert kind == "gate" or status(handle) == "running"
        if kind == "cancelled":
            eventually(lambda: handle.state().status == "cancelled")
        else:
            assert handle.result(timeout=PATIENCE) == 7
    assert Work.objects.get(id=handle.id).attempt == 1
    outcomes = [*Attempt.objects.values_list("outcome", flat=True)]
    assert outcomes == (["revoked"] if kind == "cancelled" else [])


@on_servers
@pytest.mark.parametrize("blocker", [hold, continues])
def test_an_outcome_whose_waiter_somebody_holds_is_not_tried_before_that_is_free(stage, monkeypatch, blocker):
    """Each try would wait as long for the lock, and hold up other outcomes."""
    tried, asked = list[object](), list[object]()
    settle, locked_for = settler_module.settle, settler_module.locked_for
    monkeypatch.setattr(settler_module, "settle", lambda given: tried.append(given) or settle(given))
    monkeypatch.setattr(settler_module, "locked_for", lambda given: asked.append(given) or locked_for(given))
    first = enqueue(blocker())
    waiter = enqueue(quick(number=1), blockers=[first])
    with running_worker(concurrency=1):
        eventually(lambda: stage.started)
        tried.clear()
        with transaction_elsewhere(lambda: Waiter.objects.select_for_update().get(work_id=waiter.id)):
            stage.go.set()
            eventually(lambda: len(asked) > 2)
            assert len(tried) == 1
        assert waiter.result(timeout=PATIENCE) == 1


@on_servers
def test_a_caller_that_holds_a_group_delays_the_outcomes_of_its_members_alone(stage):
    ours, other = enqueue_many([quick(number=1), quick(number=2)], delay=3600, together=True)
    with running_worker(concurrency=3), transaction_elsewhere(lambda: cancel(ours.id)):
        trigger(other.id)
        eventually(lambda: 2 in stage.started)
        others_end()
        assert status(other) == "running"
    with running_worker():
        assert other.result(timeout=PATIENCE) == 2


@on_servers
def test_a_caller_that_holds_a_unit_delays_the_outcomes_that_output_it_alone():
    """The lock of a new unit is a row that nobody else can see yet."""
    with running_worker(concurrency=3):
        with transaction_elsewhere(lambda: enqueue(gathers(), unit="hot", delay=3600)):
            held = enqueue_many([outputs() for _ in range(60)])
            all_end(enqueue_many([outputs(unit="cold") for _ in range(3)]))
            others_end()
            assert not Work.objects.filter(id__in=[handle.id for handle in held], status="success").exists()
        all_end(held)
    assert Work.objects.filter(type=gathers.name, unit="hot").count() == 1
    assert set(Work.objects.filter(type=outputs.name).values_list("delivery", flat=True)) == {1}


@on_servers
def test_a_row_that_was_locked_for_longer_than_a_lease_is_renewed_and_not_taken(stage, settings):
    settings.AYEWORK = {"LEASE": 1.5, "POLL_INTERVAL": 0.05}  # renewed twice before a lapse is confirmed
    with while_it_runs(hold(number=3), workers=2, concurrency=1) as (handle, _):
        with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=handle.id)):
            until = leased_until(handle)
            eventually(lambda: now() > until + timedelta(seconds=0.5))
        eventually(lambda: leased_until(handle) > until)
    assert stage.started == [3]
    assert Work.objects.get(id=handle.id).delivery == 1


@on_servers
def test_a_lease_whose_row_is_locked_is_tried_again_until_it_is_renewed(monkeypatch):
    renew, renewed = leases.renew, list[set[str]]()
    note = renewed.append
    monkeypatch.setattr(leases, "renew", lambda *given: note(renew(*given)) or renewed[-1])
    with while_it_runs(long_lease()) as (handle, worker):
        with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=handle.id)):
            renew_soon(worker)
            eventually(lambda: len(renewed) > 2)
        eventually(lambda: renewed[-1] == {handle.id})
    assert renewed[:3] == [set()] * 3


@on_servers
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
