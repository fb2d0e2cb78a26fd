"""Works that skip the queue while workers look for works: one of them has each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from django_ayework import enqueue, enqueue_many
from django_ayework.flow import after_commit
from django_ayework.models import Attempt, Work
from django_ayework.rules.durations import later
from django_ayework.store import claims
from django_ayework.store.clock import clock
from django_ayework.testing import running_worker
from django_ayework.worker import direct as module
from tests.processes import eventually
from tests.races import rivals
from tests.races.conftest import ROUNDS
from tests.races.rivals import race
from tests.races.works import step


@pytest.fixture
def intake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Let works skip the queue."""
    fresh = module.Intake()
    monkeypatch.setattr(module, "intake", fresh)
    monkeypatch.setattr(after_commit.providers, "held_back", False)
    yield fresh
    assert fresh.stop()


def test_a_worker_that_looks_at_once_and_the_process_itself_run_each_work_once(intake, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "SKIP_QUEUE_CONCURRENCY": 4}
    with running_worker():
        handles = [enqueue(step(number=number), skip_queue=True) for number in range(ROUNDS)]
        assert [handle.result(30) for handle in handles] == list(range(ROUNDS))
        eventually(lambda: set(Work.objects.values_list("status", flat=True)) == {"success"})
    assert set(Work.objects.values_list("delivery", "attempt")) == {(1, 1)}
    assert not Attempt.objects.exists()
    by = Counter(name[:7] == "direct-" for name in Work.objects.values_list("completed_by", flat=True))
    print(f"by the process itself: {by[True]}, by the worker: {by[False]}")


def test_of_two_claims_one_gets_the_work():
    requests = [step(number=number) for number in range(ROUNDS)]
    enqueue_many(requests)
    claimed: dict[str, list[str]] = {"worker": [], "direct": []}

    def by_worker(number: int) -> None:
        now = clock.now()
        claimed["worker"] += [row.id for row in rivals.claim(1, "worker", now, later(now, 60))]

    def directly(number: int) -> None:
        now = clock.now()
        rows = claims.claim_new([requests[number].id], "direct", now, later(now, 60))
        claimed["direct"] += [row.id for row in rows]

    race(ROUNDS, by_worker, directly)
    claimed["worker"] += rivals.claim_all("worker")
    everything = Counter(claimed["worker"] + claimed["direct"])
    assert len(everything) == ROUNDS
    assert set(everything.values()) == {1}
    assert set(Work.objects.values_list("delivery", "attempt")) == {(1, 1)}
    for worker, ids in claimed.items():
        assert set(Work.objects.filter(worker=worker).values_list("id", flat=True)) == set(ids)


def test_of_two_processes_that_offer_one_work_one_runs_it():
    requests = [step(number=number) for number in range(ROUNDS)]
    enqueue_many(requests)
    claimed: list[str] = []

    def claim(worker: str):
        def act(number: int) -> None:
            now = clock.now()
            rows = claims.claim_new([requests[number].id], worker, now, later(now, 60))
            claimed.extend(row.id for row in rows)

        return act

    race(ROUNDS, claim("a"), claim("b"))
    assert sorted(claimed) == sorted(request.id for request in requests)
