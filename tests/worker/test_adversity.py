"""What a worker does while something is wrong."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError

from django_ayework import Retry, enqueue, enqueue_many
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement, Success
from django_ayework.models import Attempt, Group, Work, WorkerProcess
from django_ayework.store import processes, transitions
from django_ayework.store.rows import WorkRow
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import keeper as keeper_module
from django_ayework.worker import settler as settler_module
from django_ayework.worker import worker as worker_module
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.settler import MAX_BATCH, Settler
from django_ayework.worker.worker import Worker
from tests.processes import eventually
from tests.races.rivals import claim_all
from tests.worker.works import append, cancels_itself, exits, exits_async, notes_progress, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


class Flaky:
    """Raises a few times, then does what it stands for."""

    def __init__(self, act, times: int, error: Exception | None = None) -> None:
        self.act = act
        self.left = times
        self.error = error or OperationalError("server closed the connection unexpectedly")

    def __call__(self, *args, **kwargs):
        if self.left:
            self.left -= 1
            raise self.error
        return self.act(*args, **kwargs)


def settlement_of(row: WorkRow) -> Settlement:
    return Settlement(row, Success())


def statuses() -> set[str]:
    return set(Work.objects.values_list("status", flat=True))


def test_a_worker_survives_a_database_that_goes_away_while_claiming(stage, monkeypatch):
    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    claim = Flaky(transitions.claim, 4)
    monkeypatch.setattr(transitions, "claim", claim)
    handle = enqueue(quick())
    with running_worker():
        handle.result(timeout=20)
    assert claim.left == 0


def test_outcomes_wait_for_a_database_that_goes_away_while_settling(stage, monkeypatch):
    monkeypatch.setattr(settler_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(settler_module, "answers", lambda: False)
    settle = Flaky(settler_module.settle, 4)
    monkeypatch.setattr(settler_module, "settle", settle)
    handles = enqueue_many([quick(number=number) for number in range(10)])
    with running_worker():
        for handle in handles:
            handle.result(timeout=20)
    assert sorted(stage.started) == list(range(10)), "nothing ran twice"


def test_what_one_queue_gave_is_run_although_the_next_cannot_be_claimed_from(stage, monkeypatch):
    claim = transitions.claim

    def claim_or_fail(queue: str, *args):
        if queue == "broken":
            raise OperationalError("canceling statement due to lock timeout")
        return claim(queue, *args)

    monkeypatch.setattr(transitions, "claim", claim_or_fail)
    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    enqueue_many([quick(number=number) for number in range(20)], queue="good")
    enqueue(quick(number=99), queue="broken")
    with running_worker(concurrency=4):
        eventually(lambda: Work.objects.filter(status="success").count() == 20)
    assert set(Work.objects.filter(queue="good").values_list("delivery", flat=True)) == {1}


def test_a_work_of_an_unknown_type_is_offered_to_others(stage):
    unknown = WorkFactory(type="other.app")
    enqueue_many([quick(number=number) for number in range(5)])
    with running_worker():
        eventually(lambda: Work.objects.filter(status="success").count() == 5)
        eventually(lambda: Work.objects.get(id=unknown.id).status == "scheduled")
    work = Work.objects.get(id=unknown.id)
    assert work.attempt == 0
    assert "no worker here knows this type" in work.error


def test_a_work_that_cannot_be_offered_to_others_holds_up_nothing(stage, monkeypatch):
    def fail(*args):
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    monkeypatch.setattr(transitions, "release", fail)
    WorkFactory(type="other.app", priority=5)
    handles = enqueue_many([quick(number=number) for number in range(5)])
    worker = Worker(concurrency=8)
    with worker:
        for handle in handles:
            handle.result(timeout=20)
    assert set(Work.objects.filter(type="worker.quick").values_list("delivery", flat=True)) == {1}
    Work.objects.filter(type="other.app").delete()


def test_one_outcome_that_cannot_be_written_spoils_no_other(stage, caplog):
    requests = [append(number=1, poison=number == 7) for number in range(20)]
    handles = enqueue_many(requests, together=True)
    with running_worker():
        assert handles[0].group(timeout=20) == 19
    dead = Work.objects.get(status="dead")
    assert dead.id == requests[7].id
    assert (dead.reason, dead.error) == ("exhausted", "ArithmeticError: poison")
    assert Attempt.objects.get().work_id == dead.id
    group = Group.objects.get()
    assert (group.open, group.total, group.dead) == (0, 20, 1)


def test_one_bad_outcome_among_many_is_found_by_halving(monkeypatch):
    enqueue_many([quick(number=number) for number in range(64)])
    rows = list(claim_all().values())
    tries: list[int] = []
    settle = settler_module.settle

    def settle_unless_bad(settlements):
        tries.append(len(settlements))
        if rows[40].id in {settlement.row.id for settlement in settlements if settlement.traceback == ""}:
            raise RuntimeError("a bug")
        return settle(settlements)

    monkeypatch.setattr(settler_module, "settle", settle_unless_bad)
    settled: list[Delivery] = []
    settler = Settler(EngineServices(), settled.extend)
    for row in rows:
        settler.submit(Delivery(row, 30.0), settlement_of(row))
    settler.start()
    eventually(lambda: len(settled) == 64)
    settler.stop(10)
    assert len(tries) <= 1 + 2 * 6 + 1
    left = Work.objects.exclude(status="success").get()
    assert (left.id, left.error) == (rows[40].id, "RuntimeError: a bug")


def test_a_settler_that_stops_settles_everything_in_hand():
    """Also when there is more than one batch of it."""
    enqueue_many([quick(number=number) for number in range(MAX_BATCH + 50)])
    settled: list[Delivery] = []
    settler = Settler(EngineServices(), settled.extend)
    for row in claim_all().values():
        delivery = Delivery(row, 30.0)
        settler.submit(delivery, settlement_of(row))
    settler._ends = True
    settler.start()
    settler.stop(30)
    assert len(settled) == MAX_BATCH + 50
    assert statuses() == {"success"}


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OperationalError("gone"), MemoryError()])
def test_a_settler_outlives_an_outcome_that_cannot_even_be_recorded_as_a_failure(monkeypatch, error):
    enqueue_many([quick(number=number) for number in range(3)])
    rows = list(claim_all().values())
    settle = settler_module.settle

    def settle_but_the_first(settlements):
        if rows[0].id in {settlement.row.id for settlement in settlements}:
            raise error
        return settle(settlements)

    monkeypatch.setattr(settler_module, "settle", settle_but_the_first)
    settled: list[Delivery] = []
    settler = Settler(EngineServices(), settled.extend)
    if isinstance(error, OperationalError):
        settler.gives_up.set()
    deliveries = [Delivery(row, 30.0) for row in rows]
    for delivery in deliveries:
        settler.submit(delivery, settlement_of(delivery.row))
    settler.start()
    eventually(lambda: len(settled) == 3)
    settler.stop(10)
    assert deliveries[0].signal.reason == "error"
    assert [Work.objects.get(id=row.id).status for row in rows] == ["running", "success", "success"]


@pytest.mark.parametrize("kind", [exits, exits_async, cancels_itself])
def test_a_handler_that_exits_fails_like_any_other(stage, kind):
    handle = enqueue(kind())
    after = enqueue(quick())
    with running_worker(concurrency=1):
        eventually(lambda: Work.objects.get(id=handle.id).status == "dead")
        after.result(timeout=10)
    assert Work.objects.get(id=handle.id).reason == "exhausted"


def test_a_work_the_engine_itself_fails_on_is_left_to_its_lease(stage, monkeypatch):
    """It is not renewed for ever: another delivery may go well."""
    from django_ayework.worker.slots import slots

    run = Flaky(slots.run_load, 1, error=AssertionError("a bug of the engine"))
    monkeypatch.setattr(slots, "run_load", run)
    handle = enqueue(quick(), retry=Retry(attempts=2))
    with running_worker(concurrency=1) as worker:
        eventually(lambda: run.left == 0 and not worker._holdings.all())
        Work.objects.filter(id=handle.id, status="running").update(leased_until="2020-01-01T00:00:00Z")
        handle.result(timeout=20)
    assert Work.objects.get(id=handle.id).attempt == 2


def test_a_duty_that_fails_is_done_again(stage, monkeypatch):
    beats = []

    def beat() -> None:
        beats.append(1)
        raise OperationalError("gone")

    worker = Worker()
    duty = next(duty for duty in worker._keeper.duties if duty.act == worker._keeper.beat)
    duty.act, duty.every, duty.due_at = beat, 0.0, 0.0
    with worker:
        eventually(lambda: len(beats) > 1)


def test_a_database_that_stays_away_is_told_at_length_once(stage, monkeypatch, caplog):
    """Claiming, and each duty that has something to ask, although others have nothing to ask and succeed."""
    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    monkeypatch.setattr(keeper_module, "TICK", 0.01)
    with running_worker(concurrency=1) as worker:
        away = Flaky(worker._claimer.look_around, 4)
        monkeypatch.setattr(worker._claimer, "look_around", away)
        duty = next(duty for duty in worker._keeper.duties if duty.act == worker._keeper.renew_leases)
        duty.act = Flaky(duty.act, 4)
        eventually(lambda: not away.left and not duty.act.left)
    for told in ("the claiming loop failed", "the duty"):
        at_length = [bool(record.exc_info) for record in caplog.records if told in record.getMessage()]
        assert at_length == [True, False, False, False]


def test_a_worker_that_was_forgotten_is_back_with_its_next_heartbeat(stage):
    with running_worker(name="back") as worker:
        eventually(lambda: WorkerProcess.objects.filter(id=worker.id).delete()[0])
        worker._keeper.beat()
        assert WorkerProcess.objects.get().name == "back"


def test_no_thread_outlives_its_worker(stage):
    before = set(threading.enumerate())
    with running_worker(concurrency=3):
        enqueue_many([quick(number=number) for number in range(30)])
        eventually(lambda: len(stage.started) == 30)
    eventually(lambda: set(threading.enumerate()) <= before, seconds=5)


def test_a_worker_that_cannot_reach_the_database_stops_when_told_to(monkeypatch):
    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    monkeypatch.setattr(processes, "register", Flaky(None, 10**9))
    worker = Worker()
    worker.start()
    worker.stop()
    assert not Work.objects.exists()


def test_an_outcome_that_a_database_refuses_again_and_again_holds_nobody_up(stage, monkeypatch):
    """The database answers, so waiting would not help: the outcome is recorded as a failed attempt."""
    monkeypatch.setattr(settler_module, "FIRST_PAUSE", 0.001)
    settle = settler_module.settle
    refused = enqueue(quick(number=1), retry=Retry(attempts=1))

    def settle_but_successes_of_one(settlements):
        for settlement in settlements:
            if settlement.row.id == refused.id and isinstance(settlement.ending, Success):
                raise OperationalError("this row is refused")
        return settle(settlements)

    monkeypatch.setattr(settler_module, "settle", settle_but_successes_of_one)
    others = enqueue_many([quick(number=number) for number in range(2, 6)])
    with running_worker():
        for handle in others:
            handle.result(timeout=20)
        eventually(lambda: Work.objects.get(id=refused.id).status == "dead")
    assert "this row is refused" in Work.objects.get(id=refused.id).error


class TookTooLong(Exception):
    """What a driver raises when the server ends a statement."""

    sqlstate = "57014"


def timed_out() -> OperationalError:
    error = OperationalError("canceling statement due to statement timeout")
    error.__cause__ = TookTooLong()
    return error


def test_an_outcome_whose_row_is_locked_for_long_waits_and_is_no_failure(stage, monkeypatch):
    monkeypatch.setattr(settler_module, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(settler_module, "LONGEST_PAUSE", 0.001)
    settle = Flaky(settler_module.settle, settler_module.MOST_REFUSALS + 5, timed_out())
    monkeypatch.setattr(settler_module, "settle", settle)
    handle = enqueue(quick(number=3))
    with running_worker():
        assert handle.result(timeout=20) == 3
    assert settle.left == 0
    assert not Attempt.objects.exists()


def test_outcomes_that_share_a_batch_with_one_whose_row_is_locked_do_not_wait_for_it(monkeypatch):
    monkeypatch.setattr(settler_module, "FIRST_PAUSE", 0.001)
    enqueue_many([quick(number=number) for number in range(3)])
    locked, *others = claim_all().values()
    settle, is_locked = settler_module.settle, threading.Event()
    is_locked.set()

    def settle_unless_locked(settlements):
        if is_locked.is_set() and locked.id in {settlement.row.id for settlement in settlements}:
            raise timed_out()
        return settle(settlements)

    monkeypatch.setattr(settler_module, "settle", settle_unless_locked)
    settler = Settler(EngineServices(), lambda deliveries: None)
    for row in (*others, locked):
        settler.submit(Delivery(row, 30.0), settlement_of(row))
    settler.start()
    eventually(lambda: Work.objects.filter(status="success").count() == 2)
    is_locked.clear()
    settler.stop(10)
    assert statuses() == {"success"}


def test_the_last_progress_of_a_quick_work_is_kept(stage):
    handle = enqueue(notes_progress())
    with running_worker():
        handle.result(timeout=20)
    assert handle.state().progress == {"done": 3, "total": 3, "note": "all"}
