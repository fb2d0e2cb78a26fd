"""Where works wait for their batch, and how many are claimed for the free slots."""

from collections import Counter

import pytest

from django_ayework import batch_work, enqueue_many
from django_ayework.define.types import registry
from django_ayework.rules.controls import Controls, TypeControl
from django_ayework.store.lanes import Lane
from django_ayework.worker import dispatch
from django_ayework.worker.dispatch import (
    Claim,
    ClaimGroup,
    Gathering,
    claim_groups_of,
    claim_of,
    slots_of,
    works_in,
)
from django_ayework.worker.in_flight import Delivery
from tests.batches.works import hundred, single, three
from tests.claiming import claimer_of
from tests.clocks import Clock, put_in_place
from tests.marks import on_sqlite
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db


@pytest.fixture
def ticks(monkeypatch):
    return put_in_place(Clock(), dispatch, monkeypatch)


@pytest.fixture
def gathering(ticks):
    return Gathering()


def deliveries(number: int, kind=three) -> list[Delivery]:
    enqueue_many([kind(index) for index in range(number)])
    return [Delivery(row, 30.0) for row in claim_all().values()]


def let_wait(number: int) -> None:
    """Let so many works of each type wait."""
    enqueue_many([three(number) for number in range(number)])
    enqueue_many([single(number=number) for number in range(number)])


def add(gathering: Gathering, delivery: Delivery):
    return gathering.add(delivery, registry.batch(delivery.type))


@on_sqlite
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


@on_sqlite
def test_each_type_gathers_by_itself(gathering, ticks):
    for kind in (three, hundred):
        add(gathering, *deliveries(1, kind))
    assert gathering.room() == {three.name: 2, hundred.name: 99}
    for kind in (hundred, three):
        ticks.now += 0.03
        assert [batch.type for batch in gathering.due()] == [kind.name]


@on_sqlite
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
    for each in (works := deliveries(3)):
        each.withdraw()
    assert not [add(gathering, each) for each in works][-1].start(), "nothing is left"


@on_sqlite
def test_a_type_of_batches_has_a_share_of_its_own():
    lanes = [Lane("a", three.name), Lane("a", single.name), Lane("a", "other"), Lane("b", three.name)]
    expected = [("a", (single.name, "other")), ("a", (three.name,)), ("b", (three.name,))]
    assert claim_groups_of(lanes, Controls()) == [ClaimGroup(*given) for given in expected]


@on_sqlite
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


@on_sqlite
def test_a_batch_is_claimed_as_a_whole_however_large():
    assert works_in(batch_work(name="t.batches.huge", size=2500)(lambda items: []).name, 3, {}) == 2500


@on_sqlite
@pytest.mark.parametrize(
    ("works", "room", "slots"),
    [(0, {}, 0), (1, {}, 1), (3, {}, 1), (4, {}, 2), (2, {three.name: 2}, 0), (3, {three.name: 2}, 1)],
)
def test_how_many_slots_so_many_works_take(works, room, slots):
    assert slots_of(three.name, works, room) == slots


@pytest.mark.parametrize("turn", [0, 1])
def test_a_claim_shares_the_slots_among_batches_and_others(turn):
    let_wait(9)
    claimer = claimer_of()
    claimer._turn = turn
    assert Counter(delivery.type for delivery in claimer.claim(2)) == {three.name: 3, single.name: 1}
    gathers = claimer.claim(0, {three.name: 2})
    assert [delivery.type for delivery in gathers] == [three.name] * 2, "without a slot only they are filled"


class TestWhereWeightsDecide:
    def claimed(self, slots: int, room: dict[str, int] | None = None, **controls: TypeControl):
        both = ClaimGroup("default", (three.name, single.name), ranked=True)
        given = {f"batches.{name}": control for name, control in controls.items()}
        return claim_of(Claim(both, slots, "w", room or {}), Controls(given))

    def types(self, *given, **controls) -> list[str]:
        return [row.type for row in self.claimed(*given, **controls).rows]

    def test_they_divide_slots(self):
        let_wait(60)
        for _ in range(5):
            works = Counter(self.types(4, three=TypeControl(weight=40)))
            assert sum(slots_of(type, works[type], {}) for type in works) == 4
        assert self.types(4, three=TypeControl(priority=1)) == [three.name] * 12

    def test_the_batch_that_gathers_is_filled_besides(self):
        let_wait(9)
        first = TypeControl(priority=1)
        assert Counter(self.types(2, {three.name: 2}, single=first)) == {single.name: 2, three.name: 2}
        assert self.types(0, {three.name: 1}, single=first) == [three.name]

    def test_a_limit_of_a_type_counts_works(self):
        enqueue_many([three(number) for number in range(9)])
        limited = TypeControl(max_running=4, priority=1)
        assert len(self.claimed(2, three=limited).rows) == 4
        assert self.claimed(2, three=limited).full == {three.name}
        assert self.claimed(0, three=limited).full == frozenset(), "nothing was wanted"
