"""Queueing one key at the same moment."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from django.db import OperationalError, transaction

from django_ayework import Dedup, enqueue, enqueue_many, work
from django_ayework.flow.maintenance import prune
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import StoreEntry, Work
from django_ayework.store.clock import clock
from django_ayework.store.database import is_contention
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, race
from tests.races.works import step


@work(name="races.keyed", options=lambda key: {"dedup": Dedup(key)})
def keyed(key: str) -> str:
    return key


class Told:
    """What each round's rivals were told: the ids, and how many were new."""

    def __init__(self) -> None:
        self.ids: dict[object, set[str]] = defaultdict(set)
        self.new: Counter[object] = Counter()

    def note(self, key: object, handle) -> None:
        self.ids[key].add(handle.id)
        self.new[key] += not handle.deduplicated


def assert_one_each(told: Told, keys: int) -> None:
    assert Work.objects.count() == keys
    assert {len(ids) for ids in told.ids.values()} == {1}
    assert told.new == dict.fromkeys(told.ids, 1)
    assert len(told.ids) == keys


@pytest.mark.parametrize("rivals", [2, 4])
def test_rivals_with_one_key_queue_one_work(rivals: int):
    told = Told()

    def queue(number: int) -> None:
        told.note(number, enqueue(step(number=number), dedup=Dedup(f"k{number}")))

    race(ROUNDS, *[lambda number: queue(number)] * rivals)
    assert_one_each(told, ROUNDS)


def test_rivals_in_transactions_of_their_own_queue_one_work():
    told = Told()

    def queue(number: int) -> None:
        with transaction.atomic():
            told.note(number, enqueue(step(number=number), dedup=Dedup(f"k{number}", "any")))
            list(Work.objects.filter(dedup_key="none"))

    race(ROUNDS, queue, queue, queue)
    assert_one_each(told, ROUNDS)


def test_a_chain_is_there_at_every_moment_of_handing_over():
    firsts = [enqueue(step(number=number), dedup=Dedup(f"k{number}")) for number in range(ROUNDS)]
    rows = claim_all()
    told = Told()

    def hand_over(number: int) -> None:
        row = rows[firsts[number].id]
        following = build_new_work(step(number=number), {}, Lineage.continuing(row), clock.now())
        settle([Settlement(row, Success(new_works=(following,)))])

    def queue(number: int) -> None:
        told.note(number, enqueue(step(number=number), dedup=Dedup(f"k{number}")))

    race(ROUNDS, hand_over, queue, queue)
    assert dict(told.ids) == {number: {handle.id} for number, handle in enumerate(firsts)}
    assert told.new.total() == 0
    assert Work.objects.filter(ended_at=None).count() == ROUNDS


def test_a_rival_of_one_that_rolls_back_queues_the_work():
    told = Told()

    def queue(number: int) -> None:
        told.note(number, enqueue(step(number=number), dedup=Dedup(f"k{number}")))

    def think_better_of_it(number: int) -> None:
        with transaction.atomic():
            enqueue(step(number=number), dedup=Dedup(f"k{number}"))
            transaction.set_rollback(True)

    race(ROUNDS, queue, think_better_of_it, queue)
    assert_one_each(told, ROUNDS)


def test_batches_with_the_same_keys_in_different_orders_queue_each_once():
    rounds, keys = 60, 6
    told = Told()

    def queue(order: int):
        def act(number: int) -> None:
            names = [f"k{number}-{place}" for place in range(keys)][::order]
            with transaction.atomic():  # where a deadlock would be the caller's to repeat
                handles = enqueue_many([keyed(key=name) for name in names])
            for name, handle in zip(names, handles, strict=True):
                told.note(name, handle)

        return act

    race(rounds, queue(1), queue(-1), queue(1))
    assert_one_each(told, rounds * keys)


def test_pruning_locks_meanwhile_lets_nobody_through():
    told = Told()

    def queue(number: int) -> None:
        told.note(number, enqueue(step(number=number), dedup=Dedup(f"k{number}")))

    def expire(number: int) -> None:
        try:
            StoreEntry.objects.filter(key__startswith="dedup:").update(expires_at=clock.now())
            prune()
        except OperationalError as error:
            assert is_contention(error), error

    race(ROUNDS, queue, queue, expire)
    assert_one_each(told, ROUNDS)


def test_a_key_that_is_taken_over_and_over_is_held_by_one_work_at_a_time():
    told = Told()

    def queue(number: int) -> None:
        there = set(told.ids["all"])
        told.note("all", enqueue(step(number=number), dedup=Dedup("all", exclude=there)))

    race(60, queue)
    assert told.new["all"] == 60

    def same(number: int) -> None:
        told.note("same", enqueue(step(number=number), dedup=Dedup("same")))

    race(ROUNDS, same, same, same)
    assert told.new["same"] == 1
    assert len(told.ids["same"]) == 1
