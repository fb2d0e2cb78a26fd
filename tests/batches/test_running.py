"""Batches in real workers, and works that leave them or are lost before they end."""

import time
from collections import Counter
from pathlib import Path

import pytest
from django.db import OperationalError, transaction

from django_ayework import Defer, cancel, enqueue, enqueue_many
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Attempt, Work
from django_ayework.store import claims, transitions
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import dispatch, maintenance, settler
from django_ayework.worker import in_flight as delivery
from django_ayework.worker.worker import Worker
from tests.batches.works import (
    at,
    hold,
    hold_async,
    hold_single,
    hundred,
    patient,
    patient_at,
    single,
    three,
    three_async,
)
from tests.marks import on_sqlite
from tests.processes import ended, eventually, stopped, worker_process
from tests.races.rivals import claim_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_polls")]

KINDS = pytest.mark.parametrize("kind", [three, three_async], ids=["plain", "async"])


def statuses() -> list[str]:
    return sorted(Work.objects.values_list("status", flat=True))


def test_a_batch_that_is_not_full_runs_when_its_time_has_come(stage, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 60}
    handles = enqueue_many([hundred(number) for number in range(4)])
    with running_worker():
        assert [handle.result(timeout=20) for handle in handles] == [0, 2, 4, 6]
    assert stage.runs == [[0, 1, 2, 3]]


def test_a_batch_takes_in_unpublished_works_just_before_it_runs(stage, settings):
    """As those of another process, which are not known before the next poll."""
    settings.AYEWORK = {"POLL_INTERVAL": 60}
    worker = Worker()
    gathering, is_over = worker._dispatcher.gathering, worker._is_over

    def before_a_turn_another_comes_and_the_time_is_over():
        if gathering.room() and Work.objects.count() == 1:
            WorkFactory(type=patient.name, input='{"input":1}')
            gathering._buffers[patient.name].due_at = 0.0
        return is_over()

    worker._is_over = before_a_turn_another_comes_and_the_time_is_over
    with worker:
        first = enqueue(patient(0))
        eventually(lambda: first.state().status != "pending")
        worker._wake.set()
        first.result(timeout=20)
    assert stage.runs == [[0, 1]]


@KINDS
@pytest.mark.parametrize(
    ("error", "attempt"),
    [(ConnectionError("no luck"), 2), (Defer(delay=0.1), 1)],
    ids=["failure", "deferral"],
)
def test_works_run_in_batches_and_those_of_a_failed_one_run_again(stage, kind, error, attempt):
    errors = [error]

    def act(items):
        if errors:
            raise errors.pop()
        return [2 * item.input for item in items]

    stage.act = act
    handles = enqueue_many([kind(number) for number in range(7)])
    with running_worker():
        assert [handle.result(timeout=20) for handle in handles] == [0, 2, 4, 6, 8, 10, 12]
    assert [0, 1, 2] in stage.runs
    assert sorted(Counter(number for run in stage.runs for number in run).values())[:4] == [1] * 4
    assert {handle.state().attempt for handle in handles} == {1, attempt}
    assert set(Work.objects.values_list("delivery", flat=True)) == {1, 2}


@pytest.mark.parametrize("kind", [hold, hold_async], ids=["plain", "async"])
def test_a_batch_takes_one_slot(stage, kind):
    handles = enqueue_many([kind(number) for number in range(8)])
    others = enqueue_many([hold_single() for _ in range(2)])
    with running_worker(concurrency=3):
        eventually(lambda: stage.inside == 3)
        stage.go.set()
        results = [handle.result(timeout=20) for handle in handles + others]
    assert results == [0, 2, 4, 6, 8, 10, 12, 14, None, None]
    assert stage.most_inside == 3


def test_works_that_come_one_by_one_gather_and_a_slot_is_left_for_them(stage):
    """Else it would wait for ever behind works that keep coming."""
    with running_worker(concurrency=1) as worker:
        enqueue(patient(0))
        eventually(lambda: Work.objects.filter(status="running").exists())
        enqueue(single(number=1))
        enqueue(patient(1))
        enqueue(patient(2))
        eventually(lambda: statuses() == ["success"] * 4)
        assert worker._in_flight.finished == 2
    assert stage.runs == [[0, 1, 2], []]


def test_batches_and_single_works_share_the_slots_and_the_queue(stage):
    enqueue_many([three(number) for number in range(60)])
    enqueue_many([single(number=number) for number in range(30)])
    with running_worker(concurrency=2):
        eventually(lambda: statuses() == ["success"] * 90)
    kinds = [bool(run) for run in stage.runs]
    assert kinds.count(True) == 20, "every batch was full"
    assert kinds.index(True) < kinds.count(False), "batches do not wait for the end of the single works"
    assert kinds.index(False) < kinds.count(True), "single works do not wait for the end of the batches"


def test_works_that_gather_for_long_are_not_given_back_and_their_leases_are_renewed(
    stage, settings, monkeypatch
):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "LEASE": 0.9}
    released, leases, release = [], set(), transitions.release
    monkeypatch.setattr(transitions, "release", lambda *args: released.append(args) or release(*args))
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    handle = enqueue(patient(0))

    def renewed() -> bool:
        leases.add(Work.objects.get(id=handle.id).leased_until)
        return len(leases) > 3

    with running_worker() as worker, running_worker() as other:
        [waits] = eventually(lambda: worker._in_flight.all() or other._in_flight.all())
        assert waits.ready_at == float("inf")
        seen_at = time.monotonic()
        eventually(renewed)
        eventually(lambda: time.monotonic() > seen_at + 0.6)  # two turns of maintenance
        assert released == []
    assert list(Work.objects.values_list("status", "delivery")) == [("success", 1)], "and stopping runs them"


def test_batches_that_wait_behind_a_slow_work_are_given_back_as_others_are(stage, monkeypatch):
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    slow = enqueue(hold_single())
    with running_worker(concurrency=1) as worker:
        eventually(lambda: stage.inside)
        worker._prefetch.rate = 20.0
        worker._prefetch.measure = lambda finished: None
        handles = enqueue_many([three(number) for number in range(3)])
        worker._wake.set()
        eventually(lambda: Work.objects.filter(delivery=1, status="pending").count() == 3)
        worker._prefetch.rate = 0.0
        stage.go.set()
        slow.result(timeout=20)
        assert [handle.result(timeout=20) for handle in handles] == [0, 2, 4]
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}


def test_what_has_gathered_goes_back_when_no_slot_is_free(stage):
    slow = enqueue(hold_single())
    worker = Worker(concurrency=1)
    worker._prefetch.measure = lambda finished: None
    worker._prefetch.rate = 20.0
    worker.start()
    eventually(lambda: stage.inside)
    handles = enqueue_many([patient(number) for number in range(2)])
    eventually(lambda: Work.objects.filter(status="running").count() == 3)
    worker.request_stop()
    eventually(lambda: Work.objects.filter(status="pending", attempt=0, worker=None).count() == 2)
    stage.go.set()
    worker.stop()
    assert slow.state().status == "success"
    assert {handle.state().status for handle in handles} == {"pending"}
    assert stage.runs == [[]]


@on_sqlite
def test_batches_that_outlast_the_grace_go_back_unharmed(stage, settings, caplog):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "SHUTDOWN_GRACE": 0.1}
    enqueue_many([kind(number) for kind in (hold, hold_async) for number in range(2)])
    with running_worker(concurrency=2):
        eventually(lambda: stage.inside == 2)
    assert set(Work.objects.values_list("status", "attempt", "error")) == {("pending", 0, "")}
    assert "came too late" not in caplog.text


@pytest.mark.parametrize("most", [2, 4])
def test_a_worker_makes_as_many_attempts_as_it_may(stage, most):
    enqueue_many([three(number) for number in range(9)])
    Worker(concurrency=4, max_works=most).run()
    assert statuses() == ["pending"] * (9 - most) + ["success"] * most
    Worker(burst=True).run()
    assert statuses() == ["success"] * 9


def test_a_flood_is_claimed_in_parts(stage, monkeypatch):
    """A worker holds for batches what it can run soon, however many wait."""
    numbers, claim = [], claims.claim

    def counted(*args):
        rows = claim(*args)
        numbers.append(len(rows))
        return rows

    monkeypatch.setattr(claims, "claim", counted)
    enqueue_many([hundred(number) for number in range(400)])
    with running_worker(concurrency=2):
        eventually(lambda: statuses() == ["success"] * 400)
    assert numbers[0] == 200
    assert {len(run) for run in stage.runs} == {100}


def broken(*args):
    raise OperationalError("server closed the connection unexpectedly")


@on_sqlite
def test_the_loop_that_fails_to_claim_still_runs_what_is_due(stage, monkeypatch):
    enqueue_many([three(number) for number in range(2)])
    claim = claims.claim

    def claim_once(*args):
        rows = claim(*args)
        patch.setattr(claims, "claim", broken)
        enqueue(three(2))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(claims, "claim", claim_once)
        with running_worker():
            eventually(lambda: stage.runs)
    assert stage.runs[0] == [0, 1]


@pytest.mark.parametrize("where", ["here", "elsewhere", "elsewhere, and the database does not answer"])
def test_a_work_that_is_cancelled_while_it_gathers_is_left_out(stage, monkeypatch, where, caplog):
    """The database is asked before the run; when it does not answer, the late outcome is refused."""
    first, second = enqueue(patient(0)), enqueue(patient(1))
    with running_worker() as worker:
        eventually(lambda: len(worker._in_flight.all()) == 2)
        if where == "here":
            cancel(second.id)
        else:
            before = time.monotonic()
            eventually(lambda: time.monotonic() > before + dispatch.TRUSTED_FOR)
            Work.objects.filter(id=second.id).update(
                status="cancelled", worker=None, leased_until=None, ended_at="2026-01-01T00:00:00Z"
            )
        if fails := "database" in where:
            monkeypatch.setattr(delivery, "holders_of", broken)
            monkeypatch.setattr(settler, "holders_of", broken)
        third = enqueue(patient(2))
        assert (first.result(timeout=20), third.result(timeout=20)) == (0, 4)
        eventually(lambda: not worker._in_flight.all())
    assert stage.runs == ([[0, 1, 2]] if fails else [[0, 2]])
    assert second.state().status == "cancelled"
    assert ("came too late" in caplog.text) is fails


def test_a_late_outcome_of_one_work_spoils_no_other(stage):
    """As when its lease lapsed and another worker ended it."""
    handles = enqueue_many([hold(number) for number in range(2)])
    with running_worker() as worker:
        eventually(lambda: stage.inside)
        with transaction.atomic():  # or else this worker might claim it again
            Work.objects.filter(id=handles[0].id).update(status="pending", worker=None, leased_until=None)
            [row] = claim_all("another").values()
        settle([Settlement(row, Success('"theirs"'))])
        stage.go.set()
        assert handles[1].result(timeout=20) == 2
        eventually(lambda: not worker._in_flight.all())
    assert handles[0].result() == "theirs"


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.batches.settings"}


def runs(place: Path) -> list[str]:
    path = place / "runs"
    return path.read_text().splitlines() if path.exists() else []


def test_a_worker_killed_in_the_middle_of_a_batch_loses_none_of_its_works(env, tmp_path):
    handles = enqueue_many([at({"place": str(tmp_path), "number": number}) for number in range(4)])
    with worker_process(env) as victim:
        eventually(lambda: runs(tmp_path) == ["0 1 2 3"])
        victim.kill()
        ended(victim)
    (tmp_path / "go").touch()
    assert set(Work.objects.values_list("status", "attempt")) == {("running", 1)}
    with running_worker():
        assert [handle.result(timeout=40) for handle in handles] == [f"{n} at attempt 2" for n in range(4)]
    assert set(Work.objects.values_list("delivery", "attempt")) == {(2, 2)}
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["lost"] * 4


@on_sqlite
def test_a_worker_that_stops_runs_gathered_works_at_once_without_those_cancelled_elsewhere(env, tmp_path):
    handles = enqueue_many([patient_at({"number": number}) for number in range(5)])
    with worker_process(env) as process:
        eventually(lambda: Work.objects.filter(status="running").count() == 5)
        cancel(handles[1].id)
        output = stopped(process)
    assert "came too late" not in output
    assert handles.pop(1).state().status == "cancelled"
    assert [handle.result(timeout=1) for handle in handles] == [0, 2, 3, 4]
