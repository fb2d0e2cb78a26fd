"""Keys and units queued at the same moment: one live work each, and no input is lost."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from django.db import OperationalError, transaction

from django_ayework import Dedup, enqueue, enqueue_many, work
from django_ayework.flow.maintenance import prune_others
from django_ayework.flow.new_works import Lineage, NewWork, build_new_work
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import StoreEntry, Work
from django_ayework.store.database import clock, is_contention
from tests.outputs.works import fetch, given
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, race, succeed
from tests.races.works import step


@work(name="races.keyed", options=lambda key: {"dedup": Dedup(key)})
def keyed(key: str) -> str:
    return key


class Answers:
    """What each round's rivals were answered: the ids, and how many were new."""

    def __init__(self) -> None:
        self.ids: dict[object, set[str]] = defaultdict(set)
        self.new: Counter[object] = Counter()

    def add(self, key: object, handle) -> None:
        self.ids[key].add(handle.id)
        self.new[key] += not handle.deduplicated

    def queue(self, number: int) -> None:
        self.add(number, enqueue(step(number=number), dedup=Dedup(f"k{number}")))


def assert_one_each(answers: Answers, keys: int) -> None:
    assert Work.objects.count() == keys
    assert {len(ids) for ids in answers.ids.values()} == {1}
    assert answers.new == dict.fromkeys(answers.ids, 1)
    assert len(answers.ids) == keys


@pytest.mark.parametrize("number_of_rivals", [2, 4])
def test_rivals_with_one_key_queue_one_work(raced, number_of_rivals: int):
    keys = [("queue once", f"k{number}") for number in range(ROUNDS)]
    answers = raced(*[keys] * number_of_rivals)
    for number in range(ROUNDS):
        given = [answer[number] for answer in answers]
        assert len({id for id, _ in given}) == 1
        assert sum(not deduplicated for _, deduplicated in given) == 1
    assert Counter(Work.objects.values_list("dedup_key", flat=True)) == {key: 1 for _, key in keys}


def test_rivals_in_transactions_of_their_own_queue_one_work():
    answers = Answers()

    def queue(number: int) -> None:
        with transaction.atomic():
            answers.add(number, enqueue(step(number=number), dedup=Dedup(f"k{number}", "any")))
            list(Work.objects.filter(dedup_key="none"))

    race(ROUNDS, queue, queue, queue)
    assert_one_each(answers, ROUNDS)


def test_a_chain_is_there_at_every_moment_of_handing_over():
    firsts = [enqueue(step(number=number), dedup=Dedup(f"k{number}")) for number in range(ROUNDS)]
    rows = claim_all()
    answers = Answers()

    def hand_over(number: int) -> None:
        row = rows[firsts[number].id]
        following = build_new_work(step(number=number), {}, Lineage.continuing(row), clock.now())
        settle([Settlement(row, Success(new_works=(following,)))])

    race(ROUNDS, hand_over, answers.queue, answers.queue)
    assert dict(answers.ids) == {number: {handle.id} for number, handle in enumerate(firsts)}
    assert answers.new.total() == 0
    assert Work.objects.filter(ended_at=None).count() == ROUNDS


def test_a_rival_of_one_that_rolls_back_queues_the_work():
    answers = Answers()

    def roll_back(number: int) -> None:
        with transaction.atomic():
            enqueue(step(number=number), dedup=Dedup(f"k{number}"))
            transaction.set_rollback(True)

    race(ROUNDS, answers.queue, roll_back, answers.queue)
    assert_one_each(answers, ROUNDS)


def test_batches_with_the_same_keys_in_different_orders_queue_each_once():
    rounds, keys = 60, 6
    answers = Answers()

    def queue(order: int):
        def act(number: int) -> None:
            names = [f"k{number}-{place}" for place in range(keys)][::order]
            with transaction.atomic():  # where a deadlock would be the caller's to repeat
                handles = enqueue_many([keyed(key=name) for name in names])
            for name, handle in zip(names, handles, strict=True):
                answers.add(name, handle)

        return act

    race(rounds, queue(1), queue(-1), queue(1))
    assert_one_each(answers, rounds * keys)


def test_pruning_locks_meanwhile_lets_no_second_work_through():
    answers = Answers()

    def expire(number: int) -> None:
        try:
            StoreEntry.objects.filter(key__startswith="dedup:").update(expires_at=clock.now())
            prune_others()
        except OperationalError as error:
            assert is_contention(error), error

    race(ROUNDS, answers.queue, answers.queue, expire)
    assert_one_each(answers, ROUNDS)


def test_a_key_that_is_taken_over_and_over_is_held_by_one_work_at_a_time():
    answers = Answers()

    def queue(number: int) -> None:
        there = set(answers.ids["all"])
        answers.add("all", enqueue(step(number=number), dedup=Dedup("all", exclude=there)))

    race(60, queue)
    assert answers.new["all"] == 60

    def same(number: int) -> None:
        answers.add("same", enqueue(step(number=number), dedup=Dedup("same")))

    race(ROUNDS, same, same, same)
    assert answers.new["same"] == 1
    assert len(answers.ids["same"]) == 1


def output(*units: str) -> tuple[NewWork, ...]:
    """The new works of these units, as a settled work outputs them."""
    return tuple(build_new_work(fetch(size=1), {"unit": unit}, Lineage(), clock.now()) for unit in units)


def parents(number: int) -> list:
    enqueue_many([given() for _ in range(number)])
    return list(claim_all().values())


def live_per_unit() -> Counter[str]:
    return Counter(Work.objects.filter(type="out.fetch", ended_at=None).values_list("unit", flat=True))


def test_two_settlements_that_output_the_same_units_make_one_work_of_each():
    rows = parents(2 * ROUNDS)

    def act(side: int):
        def settle_one(n: int) -> None:
            units = [f"{n}/a", f"{n}/b", f"{n}/c"]
            new_works = output(*(units if side else reversed(units)))
            settle([Settlement(rows[2 * n + side], Success(outputs=new_works))])

        return settle_one

    race(ROUNDS, act(0), act(1))
    assert Counter(live_per_unit().values()) == {1: 3 * ROUNDS}


def test_an_enqueue_and_a_settlement_of_one_unit_make_one_work():
    rows = parents(ROUNDS)
    race(
        ROUNDS,
        lambda n: settle([Settlement(rows[n], Success(outputs=output(str(n))))]),
        lambda n: enqueue(fetch(size=2), unit=str(n)),
    )
    assert Counter(live_per_unit().values()) == {1: ROUNDS}


def test_a_unit_that_is_claimed_while_its_input_is_replaced_loses_neither_input():
    handles = enqueue_many([fetch(size=1) for _ in range(ROUNDS)])
    for n, handle in enumerate(handles):
        Work.objects.filter(id=handle.id).update(unit=str(n))
    claimed = {}

    race(
        ROUNDS,
        lambda n: claimed.update(claim_all()) if n % 4 == 0 else None,
        lambda n: enqueue(fetch(size=2), unit=str(n)),
    )
    claimed.update(claim_all())
    assert len(claimed) == ROUNDS
    for row in claimed.values():
        assert Work.objects.get(id=row.id).input == row.input, "a running work kept what it began with"
    assert succeed(*claimed.values()).moved == set(claimed)


def test_a_unit_that_ends_while_it_is_queued_again_runs_anew():
    handles = [enqueue(fetch(size=1), unit=str(n)) for n in range(ROUNDS)]
    rows, again = claim_all(), {}

    def queue_again(n: int) -> None:
        again[n] = enqueue(fetch(size=2), unit=str(n))

    race(ROUNDS, lambda n: succeed(rows[handles[n].id]), queue_again)
    for n, handle in enumerate(handles):
        assert again[n].deduplicated is (again[n].id == handle.id)
    assert set(live_per_unit().values()) <= {1}
    assert len(live_per_unit()) == sum(not handle.deduplicated for handle in again.values())
