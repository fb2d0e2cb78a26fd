"""An attempt is aborted when its work is taken, when its time is over, and when its worker stops."""

import asyncio
import threading

import pytest

from django_ayework import Aborted, Context, Retry, batch_work, cancel, complete, delete_chains, enqueue, work
from django_ayework.api import enqueue_many
from django_ayework.define.context import AbortReason
from django_ayework.flow.notify import revoked_works
from django_ayework.models import Attempt, Work
from django_ayework.store import transitions
from django_ayework.testing import now, perform, running_worker
from tests.attempts.conftest import ended, renew_soon, take_away, while_it_runs
from tests.attempts.works import NEVER_IN_A_TEST, ONCE, busy, looking, waiting
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("quick_watch"),
    pytest.mark.vendors("sqlite"),
]


def complete_by_hand(id: str) -> None:
    complete(id, "by hand")


def die_elsewhere(id: str) -> None:
    """End the work as another worker does that has had it since."""
    Work.objects.update(status="dead", reason="aborted", ended_at=now(), worker=None, leased_until=None)


#: What is done to a work, the reason its attempt is told, what is left of the work, and what is recorded.
CANCELLED = (cancel, "cancelled", ("cancelled", None), ["the work was cancelled"])
BY_HAND = (complete_by_hand, "already_completed", ("success", "by hand"))
TAKEN = [
    CANCELLED,
    (*BY_HAND, ["the work was completed without its worker"]),
    (die_elsewhere, "already_completed", ("dead", None), []),
    (delete_chains, "not_found", None, []),
    (take_away, "taken_by_another_worker", ("scheduled", None), []),
]


@pytest.mark.parametrize(
    ("type_", "is_told", "act", "reason", "after", "recorded"),
    [
        *[pytest.param(looking, False, *taken, marks=each_database) for taken in TAKEN],
        *[(type_, True, *CANCELLED) for type_ in (looking, busy, waiting)],
        *[(looking, True, *taken) for taken in TAKEN[1:]],
    ],
    ids=lambda value: (
        {True: "told", False: "noticed at the next renewal"}.get(value)
        if isinstance(value, bool)
        else getattr(value, "__name__", getattr(value, "name", ""))
    ),
)
def test_an_attempt_whose_work_is_taken_is_aborted_with_the_reason_and_changes_nothing(
    configure, stage, monkeypatch, type_, is_told, act, reason, after, recorded
):
    advice: list[object] = []
    configure(ON_FAILURE=lambda error, info: advice.append(error))
    with while_it_runs(type_(), retry=Retry(attempts=5)) as (handle, worker):
        if not is_told:
            monkeypatch.setattr(revoked_works, "_listeners", [])
        act(handle.id)
        before = list(Work.objects.values())
        renew_soon(worker)
        eventually(lambda: stage.seen)
        eventually(lambda: not worker._in_flight.all())
    assert stage.seen == [reason]
    state = handle.state()
    assert (state and (state.status, state.result)) == after
    assert list(Work.objects.values()) == before, "the late outcome changed something"
    attempts = Attempt.objects.filter(work_id=handle.id, outcome="revoked")
    expected = [(1, worker.id, error) for error in recorded]
    assert list(attempts.values_list("number", "worker", "error")) == expected
    if act is complete_by_hand:
        assert state.last_error is None
    assert not advice, "nobody is asked about a work that is lost"


@each_database
@pytest.mark.parametrize(("type_", "where"), [(busy, "in be_busy"), (waiting, "in awaited")])
def test_an_attempt_that_runs_out_of_time_is_aborted_and_retried(stage, type_, where):
    handle = enqueue(type_(), timeout=0.02, retry=Retry(attempts=2, base=0, jitter=0))
    with running_worker(concurrency=1):
        state = ended(handle)
    assert (state.reason, state.attempt) == ("exhausted", 2)
    assert state.error == "AttemptTimeout: the attempt ran longer than its timeout of 0.02 seconds."
    assert stage.seen == ["timeout"] * 2
    assert where in Attempt.objects.first().traceback


def test_an_attempt_that_is_performed_runs_out_of_time_as_well(stage):
    short = work(name="attempts.short", timeout=0.02)(waiting.handler)
    assert type(perform(short()).error).__name__ == "AttemptTimeout"
    assert stage.seen == ["timeout"]


@each_database
@pytest.mark.parametrize("type_", [busy, waiting], ids=["interrupted", "cancelled"])
def test_a_worker_that_stops_aborts_its_attempts_and_is_not_held_up(configure, stage, type_):
    configure(SHUTDOWN_GRACE=0.05)
    before = set(threading.enumerate())
    with while_it_runs(type_()) as (handle, _):
        pass
    eventually(lambda: stage.seen)
    assert stage.seen == ["shutdown"]
    assert (handle.state().status, handle.state().attempt) == ("pending", 0)
    eventually(lambda: set(threading.enumerate()) <= before, seconds=5)


def test_a_handler_that_stops_with_its_worker_has_not_failed(configure, stage, monkeypatch):
    """Even when the handler ends before the worker releases its work."""
    configure(SHUTDOWN_GRACE=0.05)

    @work(name="attempts.case", retry=ONCE)
    def stops(ctx: Context) -> None:
        stage.started.set()
        ctx.signal.wait(60)
        ctx.signal.raise_if_aborted()

    def release_late(*args, **options):
        eventually(lambda: worker._executor.free == worker.concurrency)
        return release(*args, **options)

    release = transitions.release
    with while_it_runs(stops()) as (handle, worker):
        monkeypatch.setattr(transitions, "release", release_late)
    assert (handle.state().status, handle.state().attempt) == ("pending", 0)
    assert not Attempt.objects.exists()


def test_a_handler_whose_work_may_still_be_its_own_goes_on(stage):
    """``error`` says that the lease could not be renewed: nobody has taken the work yet."""

    @work(name="attempts.goes_on")
    async def goes_on(ctx: Context) -> str:
        stage.started.set()
        while not stage.go.is_set():
            await asyncio.sleep(0.001)
        return str(ctx.signal.reason)

    with while_it_runs(goes_on()) as (handle, worker):
        worker._in_flight.abort({handle.id: AbortReason.ERROR})
        stage.go.set()
        assert handle.result(timeout=NEVER_IN_A_TEST) == "error"


def test_what_a_handler_returns_after_it_was_cancelled_counts_while_the_work_is_its_own():
    @work(name="attempts.acatches", timeout=0.02)
    async def catches(ctx: Context) -> str:
        try:
            await asyncio.sleep(NEVER_IN_A_TEST)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return f"cleaned up after {ctx.signal.reason}"

    handle = enqueue(catches())
    with running_worker(concurrency=1):
        assert handle.result(timeout=NEVER_IN_A_TEST) == "cleaned up after timeout"


def test_a_handler_that_looks_at_the_signal_is_not_cancelled_as_well(stage):
    @work(name="attempts.looks", retry=ONCE)
    async def looks(ctx: Context) -> None:
        stage.started.set()
        try:
            ctx.signal.wait(NEVER_IN_A_TEST)  # the loop does not come to cancel it
            ctx.signal.raise_if_aborted()
        except Aborted as error:
            for _ in range(10):
                await asyncio.sleep(0.001)
            stage.seen.append(error.reason)
            raise

    with while_it_runs(looks()) as (handle, _):
        cancel(handle.id)
        eventually(lambda: stage.seen)
    assert stage.seen == ["cancelled"]


def test_a_batch_is_cancelled_when_all_of_its_works_are(stage):
    @batch_work(name="attempts.abatch", size=2, max_wait=60, retry=ONCE)
    async def abatch(items) -> list[str]:
        stage.started.set()
        try:
            await asyncio.sleep(NEVER_IN_A_TEST)
        except asyncio.CancelledError:
            stage.seen.append("in time" if stage.go.is_set() else "too early")
            raise
        return ["it was never cancelled"] * len(items)

    first, second = enqueue_many([abatch(number) for number in range(2)])
    with running_worker(concurrency=1) as worker:
        eventually(stage.started.is_set)
        cancel(first.id)
        stage.go.set()
        cancel(second.id)
        eventually(lambda: stage.seen)
        eventually(lambda: not worker._in_flight.all())
    assert stage.seen == ["in time"]
    assert [handle.state().status for handle in (first, second)] == ["cancelled"] * 2
