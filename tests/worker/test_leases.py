"""Leases: kept while the worker lives, reclaimed once they have lapsed, lost for good with the work."""

import time
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.db.transaction import atomic

from django_ayework import BatchItem, batch_work, cancel, doers, enqueue_many, work
from django_ayework.define.context import AbortReason
from django_ayework.flow import isolation, maintenance
from django_ayework.flow.maintenance import reclaim
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Attempt, Group, Work
from django_ayework.store import database
from django_ayework.store.database import clock, in_transaction
from django_ayework.testing import now, running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import claimer
from django_ayework.worker import leases as leases_thread
from django_ayework.worker import maintenance as maintenance_module
from tests.attempts.conftest import renew_soon
from tests.marks import on_sqlite
from tests.processes import PATIENCE, eventually
from tests.races.rivals import claim_all
from tests.worker.conftest import Flaky, all_end, greedy, while_it_runs
from tests.worker.works import hold, hold_async, hold_atomic, long_lease, quick, short_lease, until_aborted

pytestmark = pytest.mark.usefixtures("quick_polls")
SECOND = timedelta(seconds=1)


def leased_until(handle):
    return Work.objects.get(id=handle.id).leased_until


def test_a_lease_longer_than_the_settings_is_written_at_once():
    with while_it_runs(long_lease()) as (handle, _):
        eventually(lambda: leased_until(handle) > now() + 500 * SECOND)


def test_a_lease_shorter_than_the_settings_is_renewed_in_time():
    leases = set()

    def renewed() -> bool:
        moment = leased_until(handle)
        if moment < now() + 4 * SECOND:
            assert moment > now() - SECOND, "it lapsed"
            leases.add(moment)
        return len(leases) > 2

    with while_it_runs(short_lease(), workers=2) as (handle, _):
        eventually(renewed)
    assert Work.objects.get(id=handle.id).delivery == 1


@pytest.mark.vendors("sqlite")
def test_quick_works_are_never_renewed_and_warn_of_nothing(monkeypatch, caplog):
    renewals = []
    monkeypatch.setattr(leases_thread.leases, "renew", lambda *args: renewals.append(args))
    with running_worker():
        all_end(enqueue_many([quick(number=number) for number in range(5)]))
    assert not renewals
    assert "lapsed" not in caplog.text


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_outcomes_of_one_work_that_are_settled_together_the_lost_one_is_refused(order):
    """One worker lost the work, got it again, and both of its attempts ended at once."""
    handles = enqueue_many([quick(number=number) for number in range(3)], together=True)
    stale = claim_all(lease=-1)[handles[0].id]
    assert len(reclaim()) == 3
    fresh = claim_all()[handles[0].id]
    report = settle([Settlement(stale, Success("1")), Settlement(fresh, Success("2"))][::order])
    assert (report.moved, report.refused) == ({fresh.id}, [stale.id])
    assert handles[0].result(timeout=0) == 2
    assert Group.objects.get().open == 2


def lapse(worker, in_database: bool = True) -> None:
    """Let every lease that the worker holds be over, as after a long pause of its host."""
    if in_database:
        Work.objects.filter(status="running").update(leased_until=now() - SECOND)
    for delivery in worker._in_flight.all():
        delivery.lapses_at = float("-inf")


@pytest.mark.parametrize(
    "kind",
    [hold, hold_atomic, pytest.param(hold_async, marks=pytest.mark.vendors("sqlite"))],
    ids=lambda kind: kind.name,
)
def test_a_late_outcome_counts_as_long_as_nobody_took_the_work(caplog, kind):
    with while_it_runs(kind()) as (handle, worker):
        lapse(worker, in_database=kind is not hold_atomic)  # which has locked all of SQLite
    assert (handle.state().status, Work.objects.get().delivery) == ("success", 1)
    assert caplog.text.count(f"The lease of work {handle.id} had lapsed when it was settled") == 1


def test_a_lease_that_lapsed_is_renewed_as_long_as_nobody_took_the_work(caplog):
    with while_it_runs(hold()) as (handle, worker):
        lapse(worker)
        renew_soon(worker)
        eventually(lambda: leased_until(handle) > now())
    assert f"The lease of work {handle.id} had lapsed when it was renewed" in caplog.text
    assert "when it was settled" not in caplog.text


def is_leased() -> bool:
    return Work.objects.filter(leased_until__gt=now()).exists()


def test_a_work_whose_claim_was_answered_late_is_renewed_before_another_worker_takes_it(
    settings, monkeypatch
):
    """A claim waits for the lock of SQLite, or for a slow server, and its lease begins before."""
    settings.AYEWORK = {"LEASE": 4.0, "POLL_INTERVAL": 0.05}
    claim_of, late = claimer.claim_of, list[object]()

    def answered_late(*args):
        claimed = claim_of(*args)
        if claimed.rows and not late:
            late.append(args)
            eventually(lambda: not is_leased())
        return claimed

    monkeypatch.setattr(claimer, "claim_of", answered_late)
    with while_it_runs(hold(), workers=2):
        eventually(is_leased)
    assert Work.objects.get().delivery == 1


@pytest.mark.vendors("sqlite")
def test_a_renewal_that_waited_for_the_lock_of_sqlite_lasts_as_long_as_any_other(settings):
    settings.AYEWORK = {"LEASE": 1.0, "POLL_INTERVAL": 0.05}
    with while_it_runs(hold()) as (handle, _):
        with atomic():
            first = leased_until(handle)
            eventually(lambda: now() > first + SECOND)
        eventually(lambda: leased_until(handle) != first)
        assert is_leased()


@pytest.mark.vendors("sqlite")
def test_a_renewal_that_fails_is_tried_again_while_the_lease_lasts_and_aborts_the_attempt_after_it(
    stage, monkeypatch
):
    """Somebody else may have the work by then. If nobody does, its outcome counts."""
    failed: list[object] = []

    def cannot_renew(*args: object) -> None:
        failed.append(args)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(leases_thread.leases, "renew", cannot_renew)
    with while_it_runs(until_aborted()) as (handle, worker):
        renew_soon(worker)
        eventually(lambda: len(failed) > 2)
        [delivery] = worker._in_flight.all()
        assert not delivery.signal.aborted
        lapse(worker)
    assert handle.result(timeout=0) == "attempt 1"
    assert stage.seen == [AbortReason.ERROR]


@on_sqlite
def test_a_lock_that_keeps_a_lease_from_its_renewal_aborts_nothing(monkeypatch):
    """The database answers, and nobody could take the work."""
    renew = Flaky(leases_thread.leases.renew, 3, OperationalError("database is locked"))
    monkeypatch.setattr(leases_thread.leases, "renew", renew)
    with while_it_runs(hold()) as (_, worker):
        lapse(worker)
        renew_soon(worker)
        eventually(lambda: not renew.left)
        assert not any(delivery.signal.aborted for delivery in worker._in_flight.all())


@pytest.mark.parametrize("place", ["slots", "doer", "batch"])
def test_an_outage_longer_than_the_lease_costs_no_work_that_waits_an_attempt(stage, monkeypatch, place):
    renew, failed, is_away = leases_thread.leases.renew, list[object](), True

    def renew_unless_away(*args: object) -> set[str]:
        if is_away:
            failed.append(args)
            raise OperationalError("server closed the connection unexpectedly")
        return renew(*args)

    def held(number: int = 0) -> None:
        with stage.occupied(number):
            stage.go.wait(PATIENCE)

    def together(items: list[BatchItem[int]]) -> list[None]:
        return [held(item.input) for item in items]

    kinds = {
        "slots": lambda: work(name="worker.held")(held),
        "doer": lambda: work(name="worker.held", doer=doers.balanced(1, buffer=5))(held),
        "batch": lambda: batch_work(name="worker.held", size=2, max_wait=0.01)(together),
    }
    kind = kinds[place]()
    with greedy() as worker:
        monkeypatch.setattr(leases_thread.leases, "renew", renew_unless_away)
        monkeypatch.setattr(maintenance_module, "STALE_AFTER", 600.0)
        handles = enqueue_many([kind(number) for number in range(4)])
        eventually(lambda: stage.inside == 1 and Work.objects.filter(status="running").count() == 4)
        renew_soon(worker)
        lapse(worker)
        eventually(lambda: len(failed) > 2)
        is_away = False
        stage.go.set()
        all_end(handles)
    assert set(Work.objects.values_list("status", "attempt", "delivery")) == {("success", 1, 1)}


def test_a_work_that_is_cancelled_while_it_waits_for_a_slot_does_not_run(stage):
    first, second, third = enqueue_many([hold(number=number) for number in range(3)])
    with greedy() as worker:
        eventually(lambda: stage.inside == 1 and Work.objects.filter(status="running").count() == 3)
        cancel(second.id)
        eventually(lambda: any(each.signal.aborted for each in worker._in_flight.all()))
        stage.go.set()
        all_end([first, third])
    assert stage.started == [0, 2]


def looks_again(worker) -> None:
    looked = worker._claimer._polled_at
    eventually(lambda: worker._claimer._polled_at > looked + 0.2)


def test_a_worker_does_not_reclaim_what_it_runs_itself():
    """Its own lease lapsed, perhaps because the host slept; it is still the one at work."""
    with while_it_runs(hold(), concurrency=2) as (handle, worker):
        Work.objects.update(leased_until=now() - SECOND)
        looks_again(worker)
    assert Work.objects.get(id=handle.id).delivery == 1


def lost(seconds: float, **fields: object) -> str:
    """A work whose lease lapsed this long ago."""
    lapsed = now() - seconds * SECOND
    work = WorkFactory(status="running", worker="gone", attempt=1, delivery=1, leased_until=lapsed, **fields)
    return str(work.id)


def is_lost(id: str) -> bool:
    return Attempt.objects.filter(work_id=id, outcome="lost").exists()


def pending() -> list[str]:
    return list(Work.objects.filter(status="pending").values_list("id", flat=True))


def test_works_are_reclaimed_in_batches_the_longest_lost_first_and_logged_without_a_transaction(monkeypatch):
    """A log may block: a pipe that nobody reads, a disk that is full."""
    transactions, taken = [], []
    monkeypatch.setattr(maintenance, "BATCH", 1)
    monkeypatch.setattr(
        maintenance.logger, "warning", lambda *args, **named: transactions.append(in_transaction())
    )
    ids = [lost(seconds) for seconds in (20, 60, 40)]
    for _ in ids:
        assert len(reclaim()) == 1
        taken += [id for id in pending() if id not in taken]
    assert taken == [ids[1], ids[2], ids[0]]
    assert transactions == [False] * 3


def test_works_in_flight_do_not_fill_a_batch_of_reclaiming(monkeypatch):
    """Its host slept, so its own leases have lapsed for longer than anybody's."""
    monkeypatch.setattr(maintenance, "BATCH", 2)
    own = [lost(600) for _ in range(5)]
    others = [lost(5) for _ in range(2)]
    assert len(reclaim(own)) == 2
    assert sorted(pending()) == sorted(others)


def failing_for(id):
    """Return a function that reads what a decision needs, and fails for one work."""
    input_of = maintenance.retry_input_of

    def fails_for_one(row, *args):
        if row.id == id:
            raise ValueError("this one cannot be decided")
        return input_of(row, *args)

    return fails_for_one


@pytest.mark.vendors("sqlite")
def test_a_work_that_cannot_be_reclaimed_keeps_no_other_from_it(monkeypatch, caplog):
    """The database accepts what it is given, so an error of one work is made here."""
    first, *others = [lost(seconds) for seconds in (600, 5, 5)]
    monkeypatch.setattr(maintenance, "retry_input_of", failing_for(first))
    assert len(reclaim()) == 2
    assert sorted(pending()) == sorted(others)
    assert f"work {first} could not be reclaimed" in caplog.text


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("is_away", [True, False], ids=["away", "refuses all"])
def test_an_error_that_is_of_no_one_work_is_raised_and_reclaims_none(monkeypatch, caplog, is_away):
    works = [lost(seconds) for seconds in (600, 5)]
    tried = []

    def fails(row, *args):
        tried.append(row.id)
        raise OperationalError("disk I/O error")

    with monkeypatch.context() as failing:
        failing.setattr(maintenance, "retry_input_of", fails)
        failing.setattr(isolation, "answers", lambda: not is_away)
        with pytest.raises(OperationalError, match="disk I/O error"):
            reclaim()
    assert len(tried) == (1 if is_away else 3), "each is tried alone if the database answers"
    assert "could not be reclaimed" not in caplog.text
    assert len(reclaim()) == len(works)


@pytest.mark.vendors("sqlite")
def test_works_that_are_reclaimed_one_by_one_take_a_bounded_time(monkeypatch, caplog):
    first, _ = [lost(seconds) for seconds in (600, 5)]
    with monkeypatch.context() as failing:
        failing.setattr(maintenance, "retry_input_of", failing_for(first))
        failing.setattr(isolation, "LONGEST_ISOLATION", 0)
        assert reclaim() == []
    assert pending() == []
    assert len(reclaim()) == 2


def test_works_of_unknown_types_are_left_to_workers_that_know_them(time_travel):
    known, unknown = lost(5), lost(600, type="other.app")
    assert len(reclaim()) == 1
    assert pending() == [known]
    assert len(reclaim()) == 0
    time_travel(3600)
    assert len(reclaim()) == 1, "nobody knows it; it may not run for ever"
    work = Work.objects.get(id=unknown)
    assert (work.status, work.attempt) == ("pending", 1)
    assert list(Attempt.objects.filter(work_id=unknown).values_list("outcome", flat=True)) == ["lost"]


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"queues": ["mail"]}, {"queue": "default"}),
        ({"types": ["worker.quick"]}, {"type": "shop.add"}),
        ({"exclude_types": ["shop.add"]}, {"type": "shop.add"}),
    ],
)
def test_a_worker_takes_back_only_works_that_it_serves(options, others):
    """Not even one of an unknown type that lapsed long ago, in a queue that it does not serve."""
    served = {"queue": "mail", "type": "worker.quick", "input": '{"number":1}'}
    mine, left = lost(5, **served), [lost(600, **served | others)]
    if "queues" in options:
        left.append(lost(7200, queue="default", type="other.app"))
    with running_worker(**options):
        eventually(lambda: is_lost(mine))
    assert set(Work.objects.filter(status="running").values_list("id", flat=True)) == set(left)


@pytest.fixture
def tried(monkeypatch) -> list[float]:
    """The moments when workers of this process tried to reclaim."""
    moments: list[float] = []
    monkeypatch.setattr(
        maintenance_module, "reclaim", lambda *args: moments.append(time.monotonic()) or reclaim(*args)
    )
    return moments


def test_a_lapsed_work_that_no_worker_serves_starts_no_reclaiming(tried):
    """Otherwise each worker would try to take it back at each of its looks."""
    lost(600, queue="fax")
    with running_worker(queues=["mail"]) as worker:
        looks_again(worker)
    assert tried == []


def test_a_lapsed_lease_whose_row_was_locked_since_is_confirmed_anew(settings, monkeypatch):
    """Its holder could not renew it, and gets a moment to do so."""
    settings.AYEWORK = {"LEASE": 1.8, "POLL_INTERVAL": 0.05}
    lapsed = lost(1)
    with running_worker() as worker:
        interval = worker._maintenance._lapsed.interval
        monkeypatch.setattr(maintenance_module, "REST", interval)
        eventually(lambda: worker._maintenance._lapsed.wait)
        with atomic():
            Work.objects.select_for_update().get(id=lapsed)
            locked_at = time.monotonic()
            eventually(lambda: time.monotonic() > locked_at + 3 * interval)
        free_at = time.monotonic()
        eventually(lambda: is_lost(lapsed))
    assert time.monotonic() - free_at > interval


def test_a_lease_that_lapses_again_long_after_its_renewal_is_confirmed_anew(settings, monkeypatch):
    settings.AYEWORK = {"LEASE": 1.5, "POLL_INTERVAL": 0.05}
    monkeypatch.setattr(maintenance_module, "SUSPECTED_FOR", 0.8)
    monkeypatch.setattr(maintenance_module, "LOCKED_FOR", 1.0)
    lapsed, checks = lost(1), list[bool]()

    def renewed_after_the_first(*given):
        checks.append(Work.objects.filter(leased_until__lt=now()).exists())
        return (reclaim(*given), len(checks) > 1 or Work.objects.update(leased_until=now() + 2 * SECOND))[0]

    monkeypatch.setattr(maintenance_module, "reclaim", renewed_after_the_first)
    with running_worker():
        eventually(lambda: is_lost(lapsed))
    assert sum(checks) > 2


def test_after_an_outage_holders_renew_their_leases_before_any_is_reclaimed(settings, monkeypatch, tried):
    """It was away for all of them, and each is about to renew its own."""

    def fail(*args) -> None:
        raise OperationalError("gone")

    settings.AYEWORK = {"LEASE": 0.5}
    lapsed = lost(1)
    monkeypatch.setattr(maintenance_module, "LONGEST_PATIENCE", 0.3)
    with running_worker() as worker:
        with monkeypatch.context() as away:
            away.setattr(claimer, "poll", fail)
            eventually(lambda: worker._claimer._was_cut_off)
            tried.clear()
        eventually(lambda: not worker._claimer._was_cut_off)
        back_at = time.monotonic()
        eventually(lambda: is_lost(lapsed))
    assert min(tried) > back_at


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(hours=-1)], ids=["ahead", "back"])
def test_after_the_clock_was_set_holders_renew_their_leases_before_any_is_reclaimed(
    settings, monkeypatch, tried, step
):
    """The other worker goes on by the former time until it asks the database, too."""
    settings.AYEWORK = {"LEASE": 0.5}
    clock.synchronise()
    former = database.database_now
    monkeypatch.setattr(database, "database_now", lambda: former() + step)
    monkeypatch.setattr(maintenance_module, "REFRESH_AFTER", 0.5)
    lapsed = lost(7200)
    began = time.monotonic()
    with running_worker():
        eventually(lambda: is_lost(lapsed))
    clock.reset()
    assert min(tried) > began + 1.0
