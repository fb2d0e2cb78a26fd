"""What a worker does while all is well."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_ayework import Defer, dependency, enqueue, enqueue_many, work
from django_ayework.flow.settle import Report, Settlement
from django_ayework.models import Work
from django_ayework.store import transitions
from django_ayework.testing import running_worker
from django_ayework.worker import maintenance, settler
from django_ayework.worker.worker import Worker
from tests.processes import eventually
from tests.worker.works import exits, hold, hold_async, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


def counts() -> dict[str, int]:
    statuses = list(Work.objects.values_list("status", flat=True))
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def test_plain_and_async_works_share_the_slots_and_async_ones_run_at_the_same_time_on_one_loop(stage):
    kinds = [hold, hold_async, hold_async] * 4
    handles = enqueue_many([kind(number=number) for number, kind in enumerate(kinds)])
    with running_worker(concurrency=3):
        eventually(lambda: stage.inside == 3)
        stage.go.set()
        results = [handle.result(timeout=10) for handle in handles]
    assert stage.most_inside == 3
    assert sorted(stage.started) == list(range(12))
    assert len(set(results[1::3] + results[2::3])) == 1


def test_a_burst_runs_what_its_works_release_and_ends_once_nothing_is_due_and_nothing_runs(stage):
    members = [quick(number=number) for number in range(40)]
    enqueue_many([dependency(members, [quick(number=99)]), dependency(["never"], [quick()])])
    enqueue(quick(), delay=3600)
    enqueue_many(members)
    Worker(concurrency=4, burst=True).run()
    assert stage.started[-1] == 99
    assert counts() == {"success": 42, "blocked": 1, "scheduled": 1}


@pytest.mark.parametrize("most", [1, 7])
def test_a_worker_makes_as_many_attempts_as_it_may(stage, most: int):
    enqueue_many([quick(number=number) for number in range(30)])
    Worker(concurrency=4, max_works=most).run()
    assert counts() == {"pending": 30 - most, "success": most}


def greedy(worker: Worker, ready: int) -> None:
    """Let the worker hold more works than it has slots, as it does while works are quick."""
    worker._prefetch.measure = lambda finished: None  # type: ignore[method-assign]
    worker._prefetch.rate = ready / 0.1


@pytest.fixture
def given_back(monkeypatch) -> list[int]:
    """How many works a worker of this process gave back, each time; it does so soon."""
    released: list[int] = []

    def release(deliveries: dict[str, int], *args) -> int:
        released.append(len(deliveries))
        return really_release(deliveries, *args)

    really_release = transitions.release
    monkeypatch.setattr(transitions, "release", release)
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    return released


def test_works_that_wait_behind_a_slow_one_are_given_back(stage, given_back):
    handles = enqueue_many([hold(number=number) for number in range(4)])
    worker = Worker(concurrency=1)
    greedy(worker, ready=5)
    with worker:
        eventually(lambda: given_back)
        stage.go.set()
        for handle in handles:
            handle.result(timeout=20)
    assert given_back[0] == 3
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}
    assert sorted(stage.started) == [0, 1, 2, 3]


def test_works_given_back_do_not_count_as_attempts_made(stage, given_back):
    enqueue_many([hold(number=number) for number in range(6)])
    worker = Worker(concurrency=1, max_works=4)
    greedy(worker, ready=5)
    worker.start()
    eventually(lambda: given_back)
    stage.go.set()
    assert worker._thread is not None
    worker._thread.join(30)
    assert counts() == {"pending": 2, "success": 4}


def test_a_worker_that_stops_gives_back_what_has_not_started(stage, caplog):
    enqueue_many([hold(number=number) for number in range(4)])
    worker = Worker(concurrency=1)
    greedy(worker, ready=5)
    worker.start()
    eventually(lambda: stage.started and Work.objects.filter(status="running").count() == 4)
    caplog.set_level("INFO", "django_ayework")
    worker.request_stop()
    eventually(lambda: Work.objects.filter(status="pending", attempt=0, worker=None).count() == 3)
    stage.go.set()
    worker.stop()
    assert counts() == {"pending": 3, "success": 1}
    assert stage.started == [0]
    assert f"Worker {worker.id} released 3 works." in caplog.messages


def test_attempts_that_ended_within_the_grace_are_settled_after_it(stage, given_back, monkeypatch):
    """The settler is slow; it settles only once the works that outlast the grace were given back."""
    settle = settler.settle

    def settle_late(settlements: list[Settlement]) -> Report:
        eventually(lambda: given_back)
        return settle(settlements)

    monkeypatch.setattr(settler, "settle", settle_late)
    with override_settings(AYEWORK={"SHUTDOWN_GRACE": 0.1}):
        handles = enqueue_many([hold(number=0), *(quick(number=number) for number in range(1, 8))])
        worker = Worker(concurrency=10)
        worker.start()
        eventually(lambda: len(stage.started) == 8)
        worker.stop()
    assert given_back == [1]
    assert Work.objects.get(id=handles[0].id).status == "pending"
    assert counts() == {"pending": 1, "success": 7}


def test_gates_expire_although_every_slot_is_busy(stage):
    enqueue(hold())
    with running_worker(concurrency=1):
        eventually(lambda: stage.started)
        gate = enqueue(dependency(["never"], [], timeout=0.01))
        eventually(lambda: gate.state().status == "dead")
        stage.go.set()


def test_a_worker_keeps_to_its_types(stage):
    handles = [enqueue(quick(number=1)), enqueue(hold_async(number=2)), enqueue(hold(number=3))]
    stage.go.set()
    Worker(types=["worker.quick", "worker.hold"], exclude_types="worker.hold", burst=True).run()
    assert [handle.state().status for handle in handles] == ["success", "pending", "pending"]
    Worker(exclude_types=["worker.hold"], burst=True).run()
    assert [handle.state().status for handle in handles] == ["success", "success", "pending"]


@pytest.mark.parametrize("kind", ["prune", "prune_others"])
def test_pruning_a_lot_takes_turns_with_other_maintenance(monkeypatch, kind):
    """A million rows to prune may not keep the thread from its other duties."""
    calls = []
    monkeypatch.setattr(maintenance, kind, lambda: calls.append(1) or 1000)
    worker = Worker()
    worker._maintenance._pruning.due_at = 99.0
    worker._maintenance.prune()
    assert len(calls) == 1
    assert worker._maintenance._pruning.due_at == 0.0


def test_a_worker_forgets_nothing_it_was_given_while_the_clock_jumps(stage, time_travel):
    """Time of the database's host goes back an hour, then forth two, while works run."""
    handles = enqueue_many([hold(number=number) for number in range(2)])
    with running_worker(concurrency=2):
        eventually(lambda: stage.inside == 2)
        time_travel(timedelta(hours=-1))
        later = enqueue(quick())
        time_travel(timedelta(hours=2))
        stage.go.set()
        for handle in [*handles, later]:
            handle.result(timeout=10)
    assert set(Work.objects.values_list("status", "delivery")) == {("success", 1)}


def test_a_worker_lists_what_it_has_claimed_and_not_ended(stage):
    held = enqueue_many([hold(number=number) for number in range(3)])
    with running_worker(concurrency=2, types=["worker.hold", "worker.quick"]) as worker:
        assert worker.known_types == ["worker.hold", "worker.quick"]
        eventually(lambda: stage.inside == 2)
        running = [each for each in worker.active() if each.running_for is not None]
        assert {each.id for each in running} < {handle.id for handle in held}
        assert [(each.type, each.queue, each.attempt) for each in running] == [
            ("worker.hold", "default", 1)
        ] * 2
        assert all(each.claimed_for >= each.running_for >= 0 for each in running)
        stage.go.set()
        for handle in held:
            handle.result(timeout=10)
        eventually(lambda: worker.active() == [])


@work(name="running.defers")
def defers() -> None:
    raise Defer(delay=60)


@pytest.mark.parametrize("kind", [exits, defers], ids=lambda kind: kind.name)
def test_a_work_is_no_longer_listed_however_its_attempt_ended(kind):
    handle = enqueue(kind())
    with running_worker() as worker:
        eventually(lambda: handle.state().started_at is not None and handle.state().status != "running")
        eventually(lambda: worker.active() == [])
