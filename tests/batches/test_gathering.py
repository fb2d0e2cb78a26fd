"""Where works wait for their batch, and how many are claimed for the free slots."""

from __future__ import annotations

from collections import Counter

import pytest

from django_ayework import batch_work, enqueue, enqueue_many
from django_ayework.define.types import registry
from django_ayework.rules.controls import Controls, Scope, TypeControl
from django_ayework.store.lanes import Lane
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.dispatch import (
    Claim,
    Claimed,
    ClaimGroup,
    Gathering,
    claim_groups_of,
    claim_of,
    slots_for,
    slots_of,
    works_in,
)
from django_ayework.worker.in_flight import Delivery
from tests.batches.works import hundred, single, three
from tests.clocks import Clock
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db


@pytest.fixture
def ticks() -> Clock:
    return Clock()


@pytest.fixture
def gathering(ticks: Clock) -> Gathering:
    return Gathering(ticks.monotonic)


def deliveries(number: int, kind=three) -> list[Delivery]:
    for index in range(number):
        enqueue(kind(index))
    return [Delivery(row, 30.0) for row in claim_all().values()]


@pytest.fixture
def both() -> None:
    """Nine works of each type wait."""
    enqueue_many([three(number) for number in range(9)])
    enqueue_many([single(number=number) for number in range(9)])


def add(gathering: Gathering, delivery: Delivery):
    batch_type = registry.batch(delivery.type)
    assert batch_type is not None
    return gathering.add(delivery, batch_type)


def test_the_first_of_a_batch_waits_no_longer_than_it_may(gathering, ticks):
    first, second, third = deliveries(3, hundred)
    add(gathering, first)
    ticks.now += 0.02
    add(gathering, second)
    assert gathering.pause() == pytest.approx(0.005)
    assert gathering.due() == []
    ticks.now += 0.006
    assert gathering.pause() == 0.0
    assert [batch.deliveries for batch in gathering.due()] == [(first, second)]
    assert gathering.pause() == float("inf")
    add(gathering, third)
    assert gathering.due() == [], "the next batch waits anew"
    assert gathering.pause() == pytest.approx(0.025)


def test_each_type_gathers_by_itself(gathering, ticks):
    [one] = deliveries(1, three)
    [other] = deliveries(1, hundred)
    add(gathering, one)
    add(gathering, other)
    assert gathering.room() == {three.name: 2, hundred.name: 99}
    ticks.now += 0.03
    assert [batch.type for batch in gathering.due()] == [hundred.name]
    ticks.now += 0.03
    assert [batch.type for batch in gathering.due()] == [three.name]


def test_a_batch_starts_once_and_without_what_was_given_back_or_lost(gathering):
    given_back, lost, kept = deliveries(3)
    given_back.withdraw()
    lost.abort("cancelled")
    batch = [add(gathering, each) for each in (given_back, lost, kept)][-1]
    assert batch.start()
    started = kept.started_at
    assert started is not None
    assert batch.start()
    assert (kept.started_at, given_back.started_at, lost.started_at) == (started, None, None)
    works = deliveries(3)
    for each in works:
        each.withdraw()
    [batch] = [batch for each in works if (batch := add(gathering, each))]
    assert not batch.start(), "nothing is left"


def test_a_type_of_batches_has_a_share_of_its_own():
    lanes = [Lane("a", three.name), Lane("a", single.name), Lane("a", "other"), Lane("b", three.name)]
    assert claim_groups_of(lanes, Controls()) == [
        ClaimGroup("a", (single.name, "other")),
        ClaimGroup("a", (three.name,)),
        ClaimGroup("b", (three.name,)),
    ]


@pytest.mark.parametrize(
    ("kind", "slots", "room", "works"),
    [
        (single, 2, {}, 2),
        (single, 2, {three.name: 1}, 2),
        (three, 2, {}, 6),
        (three, 2, {three.name: 1}, 7),  # the batch that gathers has its slot
        (three, 0, {three.name: 2}, 2),
        (three, 0, {hundred.name: 2}, 0),
        (hundred, 8, {}, 800),
        (hundred, 50, {}, 1000),  # the next claim brings more
    ],
)
def test_how_many_works_go_into_so_many_slots(kind, slots, room, works):
    assert works_in(kind.name, slots, room) == works


def test_a_batch_is_claimed_as_a_whole_however_large():
    huge = batch_work(name="t.batches.huge", size=2500)(lambda items: [])
    assert works_in(huge.name, 3, {}) == 2500


@pytest.mark.parametrize(
    ("works", "room", "slots"),
    [(0, {}, 0), (1, {}, 1), (3, {}, 1), (4, {}, 2), (2, {three.name: 2}, 0), (3, {three.name: 2}, 1)],
)
def test_how_many_slots_so_many_works_take(works, room, slots):
    assert slots_of(three.name, works, room) == slots


@pytest.mark.parametrize("turn", [0, 1])
def test_a_claim_shares_the_slots_among_batches_and_others(turn, both):
    claimer = Claimer("w", Scope())
    claimer._turn = turn
    claimed = Counter(delivery.type for delivery in claimer.claim(2))
    assert claimed == {three.name: 3, single.name: 1}


def test_without_a_free_slot_only_the_batches_that_gather_are_filled(both):
    claimed = Claimer("w", Scope()).claim(0, {three.name: 2})
    assert [delivery.type for delivery in claimed] == [three.name] * 2


def claimed(controls: Controls, slots: int, room: dict[str, int] | None = None) -> Claimed:
    both = ClaimGroup("default", (three.name, single.name), ranked=True)
    return claim_of(Claim(both, slots, "w", room or {}), controls)


def test_where_weights_decide_they_divide_slots():
    enqueue_many([three(number) for number in range(60)])
    enqueue_many([single(number=number) for number in range(60)])
    for _ in range(5):
        rows = claimed(Controls({three.name: TypeControl(weight=40)}), slots=4).rows
        assert slots_for((row.type for row in rows), {}) == 4
    rows = claimed(Controls({three.name: TypeControl(priority=1)}), slots=4).rows
    assert [row.type for row in rows] == [three.name] * 12


def test_where_weights_decide_the_batch_that_gathers_is_filled_besides(both):
    controls = Controls({single.name: TypeControl(priority=1)})
    rows = claimed(controls, slots=2, room={three.name: 2}).rows
    assert Counter(row.type for row in rows) == {single.name: 2, three.name: 2}
    assert [row.type for row in claimed(controls, slots=0, room={three.name: 1}).rows] == [three.name]


def test_a_limit_of_a_type_counts_works():
    enqueue_many([three(number) for number in range(9)])
    controls = Controls({three.name: TypeControl(max_running=4, priority=1)})
    assert len(claimed(controls, slots=2).rows) == 4
    assert claimed(controls, slots=2).full == {three.name}
    assert claimed(controls, slots=0).full == frozenset(), "nothing was wanted"
