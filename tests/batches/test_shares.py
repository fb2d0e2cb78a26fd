"""What is claimed for batches: works for slots, not slot for work."""

from __future__ import annotations

from collections import Counter

import pytest

from django_ayework import batch_work, enqueue_many
from django_ayework.rules.controls import Controls, Scope, TypeControl
from django_ayework.rules.durations import later
from django_ayework.store.clock import clock
from django_ayework.store.lanes import Lane
from django_ayework.worker.allocation import (
    Claim,
    Claimed,
    ClaimGroup,
    claim_groups_of,
    claim_of,
    slots_for,
    slots_of,
    works_in,
)
from django_ayework.worker.claimer import Claimer
from tests.batches.works import hundred, single, three


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


@pytest.mark.django_db
@pytest.mark.parametrize("turn", [0, 1])
def test_a_claim_shares_the_slots_among_batches_and_others(turn):
    enqueue_many([three(number) for number in range(9)])
    enqueue_many([single(number=number) for number in range(9)])
    claimer = Claimer("w", Scope())
    claimer._turn = turn
    claimed = Counter(delivery.type for delivery in claimer.claim(2))
    assert claimed == {three.name: 3, single.name: 1}


@pytest.mark.django_db
def test_without_a_free_slot_only_the_batches_that_gather_are_filled():
    enqueue_many([three(number) for number in range(9)])
    enqueue_many([single(number=number) for number in range(9)])
    claimed = Claimer("w", Scope()).claim(0, {three.name: 2})
    assert [delivery.type for delivery in claimed] == [three.name] * 2


def claimed(controls: Controls, slots: int, room: dict[str, int] | None = None) -> Claimed:
    now = clock.now()
    both = ClaimGroup("default", (three.name, single.name), ranked=True)
    return claim_of(Claim(both, slots, "w", now, later(now, 60), room or {}), controls)


@pytest.mark.django_db
def test_where_weights_decide_they_divide_slots():
    enqueue_many([three(number) for number in range(60)])
    enqueue_many([single(number=number) for number in range(60)])
    for _ in range(5):
        rows = claimed(Controls({three.name: TypeControl(weight=40)}), slots=4).rows
        assert slots_for((row.type for row in rows), {}) == 4
    rows = claimed(Controls({three.name: TypeControl(priority=1)}), slots=4).rows
    assert [row.type for row in rows] == [three.name] * 12


@pytest.mark.django_db
def test_where_weights_decide_the_batch_that_gathers_is_filled_besides():
    enqueue_many([three(number) for number in range(9)])
    enqueue_many([single(number=number) for number in range(9)])
    controls = Controls({single.name: TypeControl(priority=1)})
    rows = claimed(controls, slots=2, room={three.name: 2}).rows
    assert Counter(row.type for row in rows) == {single.name: 2, three.name: 2}
    assert [row.type for row in claimed(controls, slots=0, room={three.name: 1}).rows] == [three.name]


@pytest.mark.django_db
def test_a_limit_of_a_type_counts_works():
    enqueue_many([three(number) for number in range(9)])
    controls = Controls({three.name: TypeControl(max_running=4, priority=1)})
    assert len(claimed(controls, slots=2).rows) == 4
    assert claimed(controls, slots=2).full == {three.name}
    assert claimed(controls, slots=0).full == frozenset(), "nothing was wanted"
