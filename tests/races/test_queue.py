"""Claiming, queueing and folding at the same moment."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from django_ayework import dependency, enqueue, enqueue_many
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.rules.conditions import Contribution
from django_ayework.rules.durations import later
from django_ayework.store import claims, transitions
from django_ayework.store.clock import clock
from django_ayework.testing.factories import WorkFactory
from tests.races import rivals
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, race
from tests.races.works import step

#: A type of which rivals have works, and this test none.
OTHER = "races.other"


def test_two_claimers_never_get_the_same_work():
    enqueue_many([step(number=number) for number in range(ROUNDS * 6)])
    claimed: dict[str, list[str]] = {"a": [], "b": []}

    def claim(worker: str):
        def act(number: int) -> None:
            now = clock.now()
            claimed[worker] += [row.id for row in rivals.claim(4, worker, now, later(now, 60))]

        return act

    race(ROUNDS, claim("a"), claim("b"))
    claimed["a"] += claim_all("a")
    everything = Counter(claimed["a"] + claimed["b"])
    assert len(everything) == ROUNDS * 6
    assert set(everything.values()) == {1}
    assert min(map(len, claimed.values())) > 0
    assert set(Work.objects.values_list("delivery", "attempt")) == {(1, 1)}
    for worker, ids in claimed.items():
        assert set(Work.objects.filter(worker=worker).values_list("id", flat=True)) == set(ids)


@pytest.mark.vendors("postgresql", "mysql")
@pytest.mark.parametrize("types", [["races.step"], ["races.step", OTHER]], ids=["a lane", "lanes"])
def test_a_claim_passes_over_what_is_not_committed_yet_and_what_a_rival_holds(types: list[str]):
    """Be it of the same type or of another one, which would leave the others no share."""
    behind = enqueue_many([step(number=number) for number in range(4)])

    def hold() -> None:
        WorkFactory.create_batch(9, type=types[-1], priority=5)
        list(Work.objects.select_for_update().filter(id=behind[0].id))

    with uncommitted(hold):
        now = clock.now()
        found = claims.claim("default", dict.fromkeys(types, 3), 3, "w", now, later(now, 60))
    assert [row.id for row in found] == [handle.id for handle in behind[1:]]


@contextlib.contextmanager
def uncommitted(act: Callable[[], object]) -> Iterator[None]:
    """Let somebody else have done this in a transaction that is open meanwhile, and rolled back then."""
    begun, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.closing(connection), transaction.atomic():
            act()
            begun.set()
            assert ended.wait(60)
            transaction.set_rollback(True)

    with ThreadPoolExecutor() as pool:
        rival = pool.submit(hold)
        try:
            assert begun.wait(60)
            yield
        finally:
            ended.set()
        rival.result()


def test_of_one_request_queued_twice_at_once_one_is_the_first():
    requests = [step(number=number) for number in range(ROUNDS)]
    told: list[tuple[int, bool]] = []

    def queue(number: int) -> None:
        told.append((number, enqueue(requests[number]).deduplicated))

    race(ROUNDS, queue, queue)
    assert Work.objects.count() == ROUNDS
    assert Counter(told) == {(number, late): 1 for number in range(ROUNDS) for late in (False, True)}


def test_of_one_gate_queued_twice_at_once_one_is_the_first():
    rounds = 60
    gates = [dependency(["a"], [step()]) for _ in range(rounds)]
    told: list[tuple[int, bool]] = []

    def queue(number: int) -> None:
        told.append((number, enqueue(gates[number]).deduplicated))

    race(rounds, queue, queue)
    assert (Work.objects.count(), Waiter.objects.count(), Edge.objects.count()) == (rounds,) * 3
    assert Counter(told) == {(number, late): 1 for number in range(rounds) for late in (False, True)}


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
    claimed: list[str] = []

    def claim(number: int) -> None:
        now = clock.now()
        claimed.extend(row.id for row in rivals.claim(5, "w", now, later(now, 60)))

    race(
        ROUNDS,
        lambda number: transitions.stage(clock.now(), 3),
        lambda n: transitions.stage(clock.now(), 3),
        claim,
    )
    while transitions.stage(clock.now(), 500):
        continue
    claimed += claim_all()
    assert len(claimed) == len(set(claimed)) == ROUNDS * 3
