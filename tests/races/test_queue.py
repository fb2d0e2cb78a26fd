"""Claiming, queueing and folding at the same moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from django_ayework import dependency, enqueue, enqueue_many
from django_ayework.flow import enqueue as queueing
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Attempt, Edge, Group, Waiter, Work
from django_ayework.rules.conditions import Contribution
from django_ayework.rules.durations import later
from django_ayework.store import claims, transitions
from django_ayework.store.database import clock
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import skip_queue as module
from tests.processes import eventually
from tests.races import rivals
from tests.races.conftest import ROUNDS
from tests.races.holding import transaction_elsewhere
from tests.races.rivals import claim_all, race
from tests.races.works import step


def claimed_once(number: int, claimed: dict[str, list[str]]) -> None:
    everything = [id for ids in claimed.values() for id in ids]
    assert len(everything) == len(set(everything)) == number
    assert set(Work.objects.values_list("delivery", "attempt")) == {(1, 1)}
    for worker, ids in claimed.items():
        assert set(Work.objects.filter(worker=worker).values_list("id", flat=True)) == set(ids)


def claiming(claimed: dict[str, list[str]], worker: str, limit: int = 4):
    def act(number: int) -> None:
        now = clock.now()
        claimed[worker] += [row.id for row in rivals.claim(limit, worker, now, later(now, 60))]

    return act


def claiming_by_id(claimed: dict[str, list[str]], worker: str, requests: list):
    def act(number: int) -> None:
        now = clock.now()
        rows = claims.claim_new([requests[number].id], worker, now, later(now, 60))
        claimed[worker] += [row.id for row in rows]

    return act


def test_two_claimers_never_get_the_same_work():
    enqueue_many([step(number=number) for number in range(ROUNDS * 6)])
    claimed: dict[str, list[str]] = {"a": [], "b": []}
    race(ROUNDS, claiming(claimed, "a"), claiming(claimed, "b"))
    claimed["a"] += claim_all("a")
    assert min(map(len, claimed.values())) > 0
    claimed_once(ROUNDS * 6, claimed)


@pytest.mark.parametrize("other", ["a worker", "the same way"])
def test_of_two_claims_one_gets_the_work_that_skips_the_queue(other):
    requests = [step(number=number) for number in range(ROUNDS)]
    enqueue_many(requests)
    claimed: dict[str, list[str]] = {"a": [], "b": []}
    rival = claiming(claimed, "a", 1) if other == "a worker" else claiming_by_id(claimed, "a", requests)
    race(ROUNDS, rival, claiming_by_id(claimed, "b", requests))
    claimed["a"] += claim_all("a")
    claimed_once(ROUNDS, claimed)


@pytest.mark.vendors("postgresql", "mysql")
@pytest.mark.parametrize("types", [["races.step"], ["races.step", "races.other"]], ids=["a lane", "lanes"])
def test_a_claim_passes_over_uncommitted_works_and_those_that_a_rival_holds(types: list[str]):
    """Be it of the same type or of another one, which would leave the others no share."""
    behind = enqueue_many([step(number=number) for number in range(4)])

    def hold() -> None:
        WorkFactory.create_batch(9, type=types[-1], priority=5)
        list(Work.objects.select_for_update().filter(id=behind[0].id))

    with transaction_elsewhere(hold):
        now = clock.now()
        found = claims.claim("default", dict.fromkeys(types, 3), 3, "w", now, later(now, 60))
    assert [row.id for row in found] == [handle.id for handle in behind[1:]]


@pytest.mark.parametrize(("rounds", "gates"), [(ROUNDS, 0), (60, 1)], ids=["work", "gate"])
def test_of_one_request_queued_twice_at_once_one_is_the_first(rounds, gates):
    requests = [dependency(["a"], [step()]) if gates else step(number=number) for number in range(rounds)]
    answers: list[tuple[int, bool]] = []

    def queue(number: int) -> None:
        answers.append((number, enqueue(requests[number]).deduplicated))

    race(rounds, queue, queue)
    counts = (Work.objects.count(), Waiter.objects.count(), Edge.objects.count())
    assert counts == (rounds, rounds * gates, rounds * gates)
    assert Counter(answers) == {(number, late): 1 for number in range(rounds) for late in (False, True)}


@pytest.mark.parametrize("together", [False, True])
def test_of_many_requests_queued_twice_at_once_each_is_queued_once(together: bool):
    rounds = 40
    requests = [[step() for _ in range(3)] for _ in range(rounds)]
    fresh: list[str] = []

    def queue(number: int) -> None:
        handles = enqueue_many(requests[number], together=together)
        fresh.extend(handle.id for handle in handles if not handle.deduplicated)

    race(rounds, queue, lambda number: queue(number))
    assert Work.objects.count() == 3 * rounds
    assert sorted(fresh) == sorted(Work.objects.values_list("id", flat=True))
    assert Group.objects.count() == (rounds if together else 0)


def test_folding_is_exact_when_two_settle_at_once():
    handles = enqueue_many([step() for _ in range(2 * ROUNDS)], together=True)
    claims = claim_all()

    def add(offset: int):
        def act(number: int) -> None:
            contribution = Contribution(None, append=lambda total: str(int(total or "0") + 1))
            row = claims[handles[2 * number + offset].id]
            settle([Settlement(row, Success(contributions=(contribution,), needs_group=True))])

        return act

    race(ROUNDS, add(0), add(1))
    group = Group.objects.get()
    assert (group.open, group.total, group.dead) == (0, 2 * ROUNDS, 0)
    assert group.value == str(2 * ROUNDS)


def test_the_last_two_of_a_group_settling_at_once_close_it():
    rounds = 60
    pairs = [enqueue_many([step(), step()], together=True) for _ in range(rounds)]
    claims = claim_all()
    done: list[str] = []

    def end(member: int):
        def act(number: int) -> None:
            row = claims[pairs[number][member].id]
            settle([Settlement(row, Success())])
            if Group.objects.get(id=row.group).done_at is not None:
                done.append(row.group)

        return act

    race(rounds, end(0), end(1))
    assert Group.objects.filter(open=0, done_at__isnull=False).count() == rounds
    assert set(done) == {pair[0].group_id for pair in pairs}


def test_staging_and_claiming_at_once_start_each_work_once(time_travel):
    enqueue_many([step() for _ in range(ROUNDS * 3)], delay=60)
    time_travel(61)
    claimed: dict[str, list[str]] = {"w": []}

    def stage(number: int) -> None:
        transitions.make_pending(clock.now(), 3)

    race(ROUNDS, stage, lambda number: stage(number), claiming(claimed, "w", 5))
    while transitions.make_pending(clock.now(), 500):
        continue
    claimed["w"] += claim_all()
    claimed_once(ROUNDS * 3, {"w": claimed["w"]})


@pytest.fixture
def intake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Let works skip the queue."""
    fresh = module.Intake()
    monkeypatch.setattr(module, "intake", fresh)
    monkeypatch.setattr(queueing.providers, "held_back", False)
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
