"""Where works wait for their batch: on a clock of the test's own."""

from __future__ import annotations

import pytest

from django_ayework import enqueue
from django_ayework.define.registry import registry
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.dispatch import Gathering
from tests.batches.clocks import Ticks
from tests.batches.works import hundred, three
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def gathering(ticks: Ticks) -> Gathering:
    return Gathering(ticks)


def deliveries(number: int, kind=three) -> list[Delivery]:
    for index in range(number):
        enqueue(kind(index))
    return [Delivery(row, 30.0) for row in claim_all().values()]


def add(gathering: Gathering, delivery: Delivery):
    batch_type = registry.batch(delivery.type)
    assert batch_type is not None
    return gathering.add(delivery, batch_type)


def test_a_batch_is_full_with_its_size(gathering):
    works = deliveries(7)
    full = [batch for each in works if (batch := add(gathering, each))]
    assert [list(batch.deliveries) for batch in full] == [works[0:3], works[3:6]]
    assert gathering.room() == {three.name: 2}
    assert [list(batch.deliveries) for batch in gathering.all()] == [works[6:]]
    assert gathering.room() == {}


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


def test_a_batch_of_which_nothing_is_left_does_not_start(gathering):
    works = deliveries(3)
    for each in works:
        each.withdraw()
    [batch] = [batch for each in works if (batch := add(gathering, each))]
    assert not batch.start()


def test_only_types_of_batches_gather(gathering):
    assert registry.batch(WorkFactory.build().type) is None
    assert registry.batch(three.name) is three
