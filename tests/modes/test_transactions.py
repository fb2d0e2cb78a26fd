"""The transaction of an attempt: what its commit brings, and what is left when the work is lost."""

import asyncio
import threading
from contextlib import nullcontext, suppress
from datetime import timedelta

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework import Context, Retry, cancel, complete, enqueue, enqueue_many, signals, work
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Work
from django_ayework.testing import drain, now, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.attempts.conftest import connected, renew_soon
from tests.fixtures import quick_polls  # noqa: F401
from tests.marks import on_servers
from tests.modes import works
from tests.modes.works import TWICE, held_atomic, held_between, held_between_async, note, notes
from tests.processes import PATIENCE, ended, eventually, worker_process
from tests.races.holding import in_thread, somebody_waits
from tests.worker.conftest import proxy  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
ONCE = Retry(attempts=1)
MARKER = b"complete 1"
ACTS = [(cancel, "cancelled", "cancelled"), (complete, "already_completed", "success")]
#: On SQLite nothing else can write while an atomic handler runs.
each_staged = pytest.mark.parametrize("mode", [held_between, held_between_async], ids=lambda mode: mode.name)


@pytest.fixture(params=["atomic", "complete", "acomplete"])
def declare(request):
    """Declare a handler that acts in the transaction of its attempt."""
    forms = {"atomic": lambda act: act, "complete": works.completes, "acomplete": works.acompletes}

    def declare(act, retry=ONCE):
        options = {"retry": retry, "atomic": request.param == "atomic"}
        return work(name="modes.case", **options)(forms[request.param](act))

    return declare


@pytest.fixture
def received():
    """The signals that were received: name and id of the work."""
    kinds = {signals.work_succeeded: "succeeded", signals.work_failed: "failed"}
    received: list[tuple[str, str]] = []

    def receive(signal, sender, work, **kwargs):
        received.append((kinds[signal], work.id))

    with connected(receive, *kinds):
        yield received


def test_callbacks_that_raise_are_reported_and_stop_neither_others_nor_signals_nor_undo_anything(
    declare, reported, received
):
    called: list[str] = []

    def fails() -> None:
        raise RuntimeError("after the commit")

    def exits_and_goes_on() -> None:
        transaction.on_commit(lambda: called.append("behind it"))
        raise SystemExit("it exits")

    def act(ctx: Context) -> None:
        note(ctx, "complete")
        ctx.progress(2, 3)
        for callback in (fails, exits_and_goes_on, lambda: called.append("the next")):
            transaction.on_commit(callback)

    handle = enqueue(declare(act)())
    with running_worker(burst=True) as worker:
        worker._thread.join(20)
    assert (handle.state().status, Attempt.objects.count()) == ("success", 0)
    assert handle.state().progress == {"done": 2, "total": 3, "note": ""}
    assert (notes(), [text for text, _ in reported]) == (["complete 1"], ["after the commit", "it exits"])
    assert (called, received) == (["behind it", "the next"], [("succeeded", handle.id)])


@pytest.mark.parametrize("place", ["none", "block", "prepare"])
def test_a_callback_before_the_outcome_fails_the_attempt_and_undoes_nothing(place):
    def fails() -> None:
        raise RuntimeError("after the commit")

    @work(name="modes.callback", retry=ONCE)
    def handler(ctx: Context) -> None:
        with {"none": nullcontext, "block": transaction.atomic, "prepare": ctx.prepare}[place]():
            note(ctx, place)
            transaction.on_commit(fails)

    handle = enqueue(handler())
    drain(raises=False)
    assert (handle.state().status, handle.state().error) == ("dead", "RuntimeError: after the commit")
    assert notes() == [f"{place} 1"]


@pytest.mark.parametrize(
    ("returns", "error"), [(False, "given up"), (True, "complete has given another outcome already")]
)
def test_a_handler_that_cancels_its_completion_and_goes_on_has_succeeded_once_that_commits(
    reported, received, returns, error
):
    """The work's thread is writing by then, and cannot be stopped."""

    def act(ctx: Context) -> str:
        note(ctx, "complete")
        works.stage.hold(ctx)
        return "completed"

    async def handler(ctx: Context) -> str:
        completion = asyncio.create_task(ctx.acomplete(lambda: act(ctx)))
        while not works.stage.arrived.is_set():
            await asyncio.sleep(0.01)
        completion.cancel()
        with suppress(asyncio.CancelledError):
            await completion
        asyncio.get_running_loop().call_soon(works.stage.go.set)  # once this handler has ended
        if not returns:
            raise RuntimeError("given up")
        return "another outcome"

    handle = enqueue(work(name="modes.case", retry=ONCE)(handler)())
    with running_worker(burst=True) as worker:
        worker._thread.join(20)
    assert (handle.result(), notes(), received) == ("completed", ["complete 1"], [("succeeded", handle.id)])
    assert [(error in text, phase) for text, phase in reported] == [(True, "commit")]


@pytest.mark.vendors("postgresql")
def test_a_constraint_that_fails_at_the_commit_fails_the_attempt(declare):
    def act(ctx: Context) -> None:
        note(ctx, "complete")
        note(ctx, "complete")

    table, name = Order._meta.db_table, "modes_once"
    with connection.cursor() as cursor:
        cursor.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE (reference) DEFERRABLE INITIALLY DEFERRED"
        )
        try:
            handle = enqueue(declare(act)())
            with running_worker(burst=True) as worker:
                worker._thread.join(20)
        finally:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    state = handle.state()
    assert (state.status, state.reason, notes()) == ("dead", "exhausted", [])
    assert state.error.startswith(IntegrityError.__name__)


def test_a_commit_that_loses_to_another_transaction_fails_the_attempt(declare, monkeypatch):
    """As on SQLite, or of a serializable transaction. The database has said that nothing was committed."""
    refused: list[int] = []
    commit = BaseDatabaseWrapper.commit

    def act(ctx: Context) -> None:
        note(ctx, "complete")
        if ctx.attempt == 1:
            refused.append(threading.get_ident())

    def refuse_once(self) -> None:
        if refused == [threading.get_ident()]:
            refused.append(0)
            raise OperationalError("database is locked")
        commit(self)

    monkeypatch.setattr(BaseDatabaseWrapper, "commit", refuse_once)
    handle = enqueue(declare(act, TWICE)())
    with running_worker():
        eventually(lambda: handle.state().ended_at)
    assert (handle.state().status, notes(), len(refused)) == ("success", ["complete 2"], 2)
    assert Attempt.objects.get().error.startswith("OperationalError")


@pytest.mark.vendors("mysql")
def test_a_transaction_that_the_database_rolls_back_at_a_deadlock_is_not_settled(declare):
    ours, theirs = (Order.objects.create(reference=name).pk for name in ("ours", "theirs"))
    locked, held = threading.Event(), threading.Event()

    def update(pk: int) -> None:
        with connection.cursor() as cursor:  # the ORM marks the transaction as broken, a cursor does not
            cursor.execute(f"UPDATE {Order._meta.db_table} SET reference = 'updated' WHERE id = %s", [pk])

    def act(ctx: Context) -> None:
        note(ctx, "before the deadlock")
        update(ours)
        locked.set()
        assert held.wait(PATIENCE)
        eventually(somebody_waits)
        with suppress(OperationalError):
            update(theirs)

    def other() -> None:
        """Lock the rows the other way round, and write more than the handler, which is then the victim."""
        assert locked.wait(PATIENCE)
        with transaction.atomic():
            Order.objects.bulk_create(Order(reference="many") for _ in range(20))
            update(theirs)
            held.set()
            update(ours)
            transaction.set_rollback(True)

    handle = enqueue(declare(act)())
    with in_thread(other), running_worker(burst=True) as worker:
        worker._thread.join(20)
    assert (handle.state().status, notes()) == ("dead", ["ours", "theirs"])
    assert "expected the handler not to catch an error of the database" in handle.state().error


def test_a_handler_that_closes_the_connection_of_its_transaction_is_told_so(declare):
    """Django marks the transaction as it does after an error, and its rows are lost."""

    def act(ctx: Context):
        Order.objects.create(reference="lost")
        connection.close()

    handle = enqueue(declare(act)())
    with running_worker(burst=True) as worker:
        worker._thread.join(20)
    assert (handle.state().status, Order.objects.count()) == ("dead", 0)
    assert "and not to close the connection." in handle.state().error


@pytest.fixture
def network(proxy, monkeypatch):  # noqa: F811
    """Let every connection that a thread opens from now on go through the proxy."""
    connection.ensure_connection()  # the test's own does not
    config = connections.settings[connection.alias]
    if "pool" in config["OPTIONS"]:
        pytest.skip("a pool keeps the address that it was made for")
    monkeypatch.setitem(config, "HOST", "127.0.0.1")
    monkeypatch.setitem(config, "PORT", proxy.port)
    return proxy


@pytest.fixture
def called() -> list[str]:
    """The ids of the works whose callbacks were called."""
    return []


@pytest.fixture
def case(declare, called):
    def act(ctx: Context) -> str:
        note(ctx, "complete")
        transaction.on_commit(lambda: called.append(ctx.id))
        return f"attempt {ctx.attempt}"

    return declare(act, TWICE)


@on_servers
@pytest.mark.parametrize("is_cut", [False, True], ids=["answer lost", "database lost"])
def test_a_commit_whose_answer_is_lost_is_a_success(case, network, received, called, is_cut):
    network.lose_answer(MARKER, cut=is_cut)
    with running_worker(concurrency=1):
        handle = enqueue(case())
        if is_cut:
            eventually(lambda: network.refused >= 3)
            network.mend()
        assert handle.result(timeout=20) == "attempt 1"
        eventually(lambda: received)
    assert (network.lost, notes(), Attempt.objects.count()) == (1, ["complete 1"], 0)
    assert (received, called) == ([("succeeded", handle.id)], [handle.id])


@on_servers
def test_a_commit_that_never_arrived_is_a_failure(case, network, received, called):
    network.lose_commit(MARKER)
    with running_worker(concurrency=1):
        handle = enqueue(case())
        assert handle.result(timeout=20) == "attempt 2"
        eventually(lambda: len(received) == 2)
    assert (network.lost, notes()) == (1, ["complete 2"])
    assert Attempt.objects.get().error.startswith("OperationalError")
    assert (received, called) == ([("failed", handle.id), ("succeeded", handle.id)], [handle.id])


@on_servers
@pytest.mark.parametrize("declare", ["atomic"], indirect=True)
def test_a_slot_waits_for_the_answer_to_a_commit_no_longer_than_the_lease(case, network, settings):
    settings.AYEWORK = {"LEASE": 0.6, "POLL_INTERVAL": 0.05}
    network.lose_answer(MARKER, cut=True)
    with running_worker(concurrency=1) as worker:
        handle = enqueue(case())
        eventually(lambda: network.lost and not worker.active())
        network.mend()
        assert handle.result(timeout=20) == "attempt 1"


@on_servers
@pytest.mark.parametrize("lose", ["lose_answer", "lose_commit"])
@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_batch_of_settlements_sends_its_signals_once(lose, outcome, network, received, caplog):
    go = threading.Event()

    def ends(number: int) -> str:
        go.wait(20)
        if outcome == "failed":
            raise RuntimeError("complete 1")
        return "complete 1"

    type_ = work(name="modes.case", retry=ONCE)(ends)
    getattr(network, lose)(MARKER)
    with running_worker(concurrency=5):
        handles = enqueue_many([type_(number=number) for number in range(5)])
        go.set()
        eventually(lambda: len(received) >= 5)
        eventually(lambda: all(handle.state().ended_at for handle in handles))
    assert network.lost == 1
    assert sorted(received) == sorted((outcome, handle.id) for handle in handles)
    assert "came too late" not in caplog.text
    dead = 5 if outcome == "failed" else 0
    assert (Attempt.objects.count(), caplog.text.count(" is dead (")) == (dead, dead)


def outcomes() -> list[str]:
    return list(Attempt.objects.values_list("outcome", flat=True))


@on_servers
@pytest.mark.parametrize(("act", "reason", "status"), ACTS)
@pytest.mark.usefixtures("quick_polls")
def test_an_atomic_work_that_is_ended_by_hand_leaves_nothing(stage, caplog, act, reason, status):
    handle = enqueue(held_atomic())
    with running_worker():
        stage.arrive()
        act(handle.id)
        before = list(Work.objects.values())
        stage.go.set()
    assert notes() == []
    assert list(Work.objects.values()) == before
    assert (before[0]["status"], outcomes()) == (status, ["revoked"])
    assert f"Work {handle.id} was lost while it ran: {reason}" in caplog.text


@on_servers
@pytest.mark.usefixtures("quick_polls")
def test_an_atomic_work_that_was_reclaimed_has_its_effects_once(stage):
    handle = enqueue(held_atomic())
    with running_worker(concurrency=2):
        stage.arrive()
        with transaction.atomic():  # or its worker might reclaim it first
            Work.objects.filter(id=handle.id).update(leased_until=now() - timedelta(seconds=1))
            assert len(reclaim()) == 1
        with running_worker():
            handle.group(timeout=20)
        stage.go.set()
    assert notes() == ["handler 2"]
    assert Work.objects.filter(type=add.name).count() == 1
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "lost")]


def delete(id: str) -> None:
    Work.objects.filter(id=id).delete()


@each_staged
@pytest.mark.parametrize(("act", "reason", "status"), [*ACTS, (delete, "not_found", None)])
@pytest.mark.usefixtures("quick_polls")
def test_complete_refuses_a_work_that_was_ended_by_hand(stage, mode, act, reason, status):
    handle = enqueue(mode())
    with running_worker():
        stage.arrive()
        act(handle.id)
        before = list(Work.objects.values())
        stage.go.set()
    assert (stage.seen, stage.entered) == ([("Aborted", reason)], 0)
    assert notes() == ["prepare 1"]
    assert list(Work.objects.values()) == before
    assert [row["status"] for row in before] == ([status] if status else [])
    assert outcomes() == (["revoked"] if status else [])


@each_staged
@pytest.mark.parametrize("has_noticed", [True, False])
@pytest.mark.usefixtures("quick_polls")
def test_complete_refuses_a_work_that_another_worker_has(stage, mode, has_noticed):
    """The second attempt runs when the first one comes to its end."""
    handle = enqueue(mode())
    with running_worker(concurrency=1) as first:
        stage.arrive()
        lease = now() + timedelta(hours=1)
        Work.objects.update(worker="another", delivery=2, attempt=2, leased_until=lease)
        if has_noticed:
            renew_soon(first)
            eventually(lambda: first._in_flight.all()[0].signal.aborted)
        stage.go.set()
        eventually(lambda: stage.seen)
    assert (stage.seen, stage.entered) == ([("Aborted", "taken_by_another_worker")], 0)
    assert notes() == ["prepare 1"]
    assert handle.state().status == "running"


@each_staged
@pytest.mark.usefixtures("quick_polls")
def test_between_the_stages_a_lease_may_lapse_and_is_renewed(stage, mode):
    handle = enqueue(mode())
    with running_worker(concurrency=1) as worker:
        stage.arrive()
        before = Work.objects.get().leased_until
        renew_soon(worker)
        eventually(lambda: Work.objects.get().leased_until > before)
        Work.objects.update(leased_until=now() - timedelta(seconds=1))
        stage.go.set()
        assert handle.result(timeout=20) == "attempt 1"
    assert notes() == ["prepare 1", "complete 1"]


KILLED = [
    (works.killed_atomic, [], ["handler 2"]),
    (works.killed_staged, ["prepare 1"], ["prepare 2", "complete 2"]),
]


@pytest.mark.usefixtures("quick_polls")
@pytest.mark.parametrize(("mode", "left", "added"), KILLED, ids=["atomic", "staged"])
def test_a_worker_that_is_killed_before_the_commit_leaves_nothing_of_it(
    process_env, tmp_path, mode, left, added
):
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.modes.settings_short_lease"}
    handle = enqueue(mode(place=str(tmp_path)))
    with worker_process(env) as victim:
        eventually(lambda: (tmp_path / "wrote-1").exists())
        victim.kill()
        ended(victim)
    assert notes() == left
    assert Work.objects.count() == 1
    with running_worker():
        eventually(lambda: set(Work.objects.values_list("status", flat=True)) == {"success"})
    assert notes() == left + added
    assert Work.objects.filter(type=add.name).count() == 1
    assert handle.state().attempt == 2
