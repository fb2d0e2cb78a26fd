"""While it runs: leases, time, cancelling; and how many run at all."""

import threading
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import OperationalError

from django_ayework import Context, WaitTimeout, cancel, enqueue, enqueue_many, explain, limit, work
from django_ayework.api import pause, resume
from django_ayework.define.context import AbortReason
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Work, WorkerProcess
from django_ayework.store import claims
from django_ayework.testing import now, running_worker
from django_ayework.worker import executor, leases, maintenance, skip_queue
from tests.direct.works import quick
from tests.marks import on_sqlite
from tests.processes import eventually
from tests.worker import works

WAIT = 20


def held(number: int = 0, **options):
    """Enqueue a work that holds on until the test lets it go, and wait until it runs here."""
    handle = enqueue(works.hold(number=number), skip_queue=True, **options)
    eventually(lambda: number in works.stage.started)
    return handle


def starts() -> bool:
    """Tell whether a new work finds room here; one that finds none stays in the queue."""
    handle = enqueue(works.quick(), skip_queue=True)
    with suppress(WaitTimeout):
        handle.result(0.5)
    return handle.state().status == "success"


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def counts() -> dict[str, int]:
    statuses = list(Work.objects.values_list("status", flat=True))
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def test_its_lease_is_renewed_so_nobody_takes_it(configure, stage):
    configure(LEASE=1)
    handle = held()
    first = Work.objects.get().leased_until
    with running_worker():
        eventually(lambda: Work.objects.get().leased_until > first + timedelta(seconds=1))
        reclaim()
        stage.go.set()
        handle.result(WAIT)
    assert stage.started == [0]
    assert handle.state().attempt == 1


@on_sqlite
def test_a_lease_of_its_own_is_written_at_once():
    held(lease=600)
    eventually(lambda: Work.objects.get().leased_until > now() + timedelta(seconds=500))


@on_sqlite
def test_a_handler_is_aborted_when_its_time_is_over(configure, stage):
    configure(BACKPRESSURE=lambda info: 60)  # which is about workers
    enqueue(works.until_aborted(), skip_queue=True, timeout=0.1).result(WAIT)
    assert stage.seen == [AbortReason.TIMEOUT]
    handle = enqueue(works.hold_async(), skip_queue=True, timeout=0.1)
    eventually(lambda: handle.state().last_error)
    assert "AttemptTimeout" in handle.state().last_error
    assert handle.state().attempt == 1


def test_one_past_its_deadline_never_starts(stage):
    handle = enqueue(quick(), deadline=now() - timedelta(seconds=1))
    eventually(lambda: handle.state().status == "dead")
    assert (handle.state().reason, handle.state().attempt) == ("expired", 0)
    assert not stage.started


@on_sqlite
@pytest.mark.parametrize("is_local", [True, False], ids=["this process", "another process"])
def test_a_handler_learns_of_its_cancellation(configure, stage, monkeypatch, is_local):
    if not is_local:
        monkeypatch.setattr(skip_queue.revoked_works, "subscribe", lambda listener: None)
    monkeypatch.setattr(maintenance, "NOTICED_AFTER", 3600.0 if is_local else 0.0)
    configure(LEASE=3600)  # whose renewal would notice it as well
    handle = enqueue(works.until_aborted(), skip_queue=True)
    eventually(lambda: stage.started)
    cancel(handle.id)
    eventually(lambda: stage.seen == [AbortReason.CANCELLED])
    assert handle.state().status == "cancelled"


def test_one_that_is_cancelled_before_its_thread_claims_it_does_not_run(monkeypatch, stage):
    claim, claimed = claims.claim_new, []

    def claim_late(ids, lease):
        cancel(ids[0])
        claimed.append(claim(ids, lease))
        return claimed[-1]

    monkeypatch.setattr(claims, "claim_new", claim_late)
    handle = enqueue(quick(), skip_queue=True)
    eventually(lambda: claimed)
    assert claimed == [[]]
    assert (handle.state().status, handle.state().attempt) == ("cancelled", 0)


def test_an_explanation_says_who_has_it():
    explanation = explain(held().id)
    assert [reason.code for reason in explanation.reasons] == ["running"]
    assert str(explanation).startswith("The process that enqueued it has held it since ")
    assert not WorkerProcess.objects.exists(), "it is no worker"


@pytest.mark.parametrize(
    ("kind", "count", "at_once"),
    [(works.hold, 20, True), (works.hold, 10, False), (works.hold_async, 5, True)],
    ids=["at once", "one by one", "async"],
)
def test_of_a_burst_some_run_here_and_the_rest_goes_through_the_queue(configure, stage, kind, count, at_once):
    configure(SKIP_QUEUE_CONCURRENCY=2)
    requests = [kind(number=number) for number in range(count)]
    if at_once:
        enqueue_many(requests, skip_queue=True)
    else:
        for request in requests:
            enqueue(request, skip_queue=True)
    eventually(lambda: len(stage.started) == 2)
    assert counts() == {"pending": count - 2, "running": 2}
    if kind is works.hold:
        assert len(threads("ayework-slot")) == 2
    stage.go.set()
    eventually(lambda: counts().get("success") == 2)
    assert enqueue(quick(number=-1)).result(WAIT)


def test_workers_take_what_there_was_no_room_for(configure, stage):
    configure(SKIP_QUEUE_CONCURRENCY=1)
    stage.go.set()
    handles = enqueue_many([works.hold(number=number) for number in range(10)], skip_queue=True)
    with running_worker():
        assert [handle.result(WAIT) for handle in handles] == list(range(10))
    assert sorted(stage.started) == list(range(10))


@on_sqlite
def test_a_process_may_let_none_skip(configure):
    configure(SKIP_QUEUE_CONCURRENCY=0)
    enqueue(quick())
    assert not threads("ayework-direct")
    assert counts() == {"pending": 1}


@on_sqlite
def test_threads_end_when_nothing_comes_and_others_start_when_something_does(monkeypatch):
    monkeypatch.setattr(skip_queue, "IDLE", 0.05)
    others = set(threads("ayework-"))  # of tests before this one, which linger
    for _ in range(2):
        enqueue(quick()).result(WAIT)
        eventually(lambda: others.issuperset(threads("ayework-")))


@pytest.mark.parametrize("what", [{"type": "direct.quick"}, {"queue": "default"}])
def test_what_is_paused_waits(stage, what):
    pause(**what)
    handle = enqueue(quick(number=1))
    assert enqueue(works.quick(number=2), queue="other", skip_queue=True).result(WAIT) == 2
    assert (handle.state().status, stage.started) == ("pending", [2])
    resume(**what)
    enqueue(quick(number=3)).result(WAIT)
    assert stage.started == [2, 3]


@on_sqlite
def test_what_is_left_to_workers_keeps_no_room(configure):
    configure(SKIP_QUEUE_CONCURRENCY=1)
    pause(type="direct.quick")
    enqueue(quick())
    eventually(starts, seconds=WAIT)


def test_a_limit_holds_here_too(stage):
    limit("worker.hold", max_running=1)
    first = held(1)
    enqueue_many([works.hold(number=2), works.hold(number=3)], skip_queue=True)
    assert enqueue(quick(number=4)).result(WAIT)
    assert counts() == {"pending": 2, "running": 1, "success": 1}
    stage.go.set()
    first.result(WAIT)
    assert held(5).result(WAIT) == 5
    assert counts() == {"pending": 2, "success": 3}


def test_what_is_declined_waits(configure, stage):
    configure(ACCEPT=lambda state: state.type != "direct.quick")
    handle = enqueue(quick(number=1))
    enqueue(works.quick(number=2), skip_queue=True).result(WAIT)
    eventually(lambda: handle.state().status == "scheduled")
    assert (handle.state().attempt, stage.started) == (0, [2])


@on_sqlite
def test_when_its_threads_cannot_be_started_the_next_works_have_others(reported, monkeypatch):
    start = leases.LeaseThread.start

    def fail(thread):
        monkeypatch.setattr(leases.LeaseThread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(leases.LeaseThread, "start", fail)
    lost = enqueue(quick(number=1))
    eventually(lambda: reported and not threads("ayework-direct"))
    assert reported == [("can't start new thread", "queue")]
    assert enqueue(quick(number=2)).result(WAIT)
    assert lost.state().status == "pending"


@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        (skip_queue.claims, "claim_new", OperationalError("gone away")),
        (executor.Executor, "submit", RuntimeError("can't start new thread")),
    ],
    ids=["it cannot be claimed", "no thread can be started"],
)
def test_when_it_cannot_be_started_workers_have_it(configure, reported, monkeypatch, place, name, error):
    def fail(*arguments):
        monkeypatch.setattr(place, name, works_well)
        raise error

    works_well = getattr(place, name)
    configure(SKIP_QUEUE_CONCURRENCY=1)
    monkeypatch.setattr(place, name, fail)
    lost = enqueue(quick(number=1))
    eventually(lambda: reported and lost.state().status == "pending")
    assert (reported[0][0], len(reported), lost.state().attempt) == (str(error), 1, 0)
    assert place is executor.Executor or reported == [("gone away", "queue")]
    eventually(starts, seconds=WAIT)  # the room is free a moment after the report
    with running_worker():
        assert lost.result(WAIT)


@on_sqlite
def test_what_does_not_end_in_time_is_given_back(configure, stage, intake):
    @work(name="direct.stops", skip_queue=True)
    def stops(ctx: Context) -> None:
        stage.started.append(ctx.attempt)
        ctx.signal.wait(works.NEVER_IN_A_TEST)
        stage.seen.append(ctx.signal.reason)
        ctx.signal.raise_if_aborted()

    configure(SHUTDOWN_GRACE=0)
    handle = enqueue(stops())
    eventually(lambda: stage.started)
    assert intake.stop()
    assert (handle.state().status, handle.state().attempt) == ("pending", 0)
    assert stage.seen == [AbortReason.SHUTDOWN]
    assert enqueue(quick()).state().status == "pending"
    assert not threads("ayework-direct")


def test_what_ends_in_time_is_settled(stage, intake):
    handle = held()
    intake.close()
    stage.go.set()
    assert intake.stop()
    assert handle.state().status == "success"
