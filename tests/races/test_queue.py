"""Claiming, queueing and folding at the same moment; of keys and units one live work each."""

from collections import Counter, defaultdict

import pytest
from django.db import OperationalError, transaction

from django_ayework import Dedup, dependency, enqueue, enqueue_many, work
from django_ayework.flow.maintenance import prune_others
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Edge, Group, StoreEntry, Waiter, Work
from django_ayework.rules.conditions import Contribution
from django_ayework.rules.durations import later
from django_ayework.store import claims, transitions
from django_ayework.store.database import clock, is_contention
from django_ayework.testing.factories import WorkFactory
from tests.outputs.works import fetch, given
from tests.races import rivals
from tests.races.conftest import ROUNDS
from tests.races.holding import transaction_elsewhere
from tests.races.rivals import claim_all, each, race, succeed, succeeding
from tests.races.works import step, steps


@pytest.fixture
def claimed():
    """The ids that each worker has claimed."""
    return {"a": [], "b": []}


def assert_each_once(number, claimed):
    claimed["a"] += claim_all("a")
    everything = [id for ids in claimed.values() for id in ids]
    assert len(everything) == len(set(everything)) == number
    assert set(Work.objects.values_list("delivery", "attempt")) == {(1, 1)}
    for worker, ids in claimed.items():
        assert set(Work.objects.filter(worker=worker).values_list("id", flat=True)) == set(ids)


def claiming(claimed, worker, limit=4):
    def act(number):
        now = clock.now()
        claimed[worker] += [row.id for row in rivals.claim(limit, worker, now, later(now, 60))]

    return act


def claiming_by_id(claimed, worker, requests):
    def act(request):
        claimed[worker] += [row.id for row in claims.claim_new([request.id], claims.new_lease(worker))]

    return each(act, requests)


def test_two_claimers_never_get_the_same_work(claimed):
    enqueue_many(steps(ROUNDS * 6))
    race(ROUNDS, claiming(claimed, "a"), claiming(claimed, "b"))
    assert claimed["a"] and claimed["b"]
    assert_each_once(ROUNDS * 6, claimed)


@pytest.mark.parametrize("other", ["a worker", "the same way"])
def test_of_two_claims_one_gets_the_work_that_skips_the_queue(claimed, other):
    requests = steps(ROUNDS)
    enqueue_many(requests)
    rival = claiming(claimed, "a", 1) if other == "a worker" else claiming_by_id(claimed, "a", requests)
    race(ROUNDS, rival, claiming_by_id(claimed, "b", requests))
    assert_each_once(ROUNDS, claimed)


@pytest.mark.vendors("postgresql", "mysql")
@pytest.mark.parametrize("types", [["races.step"], ["races.step", "races.other"]], ids=["a lane", "lanes"])
def test_a_claim_passes_over_uncommitted_works_and_those_that_a_rival_holds(types):
    """Be it of the same type or of another one, which would leave the others no share."""
    behind = enqueue_many(steps(4))

    def hold():
        WorkFactory.create_batch(9, type=types[-1], priority=5)
        list(Work.objects.select_for_update().filter(id=behind[0].id))

    with transaction_elsewhere(hold):
        found = claims.claim("default", dict.fromkeys(types, 3), 3, claims.new_lease("w"))
    assert [row.id for row in found] == [handle.id for handle in behind[1:]]


@pytest.mark.vendors("postgresql", "mysql")
def test_a_claim_by_id_passes_over_works_that_others_hold():
    held, new, delivered = (handle.id for handle in enqueue_many(steps(3)))
    lease = claims.new_lease("w")
    with transaction_elsewhere(lambda: list(Work.objects.select_for_update().filter(id=held))):
        assert [row.id for row in claims.claim_new([held, new], lease)] == [new]
        rows = claims.claim_delivered([held, delivered], ["default"], ["races.step"], lease)
    assert [row.id for row in rows] == [delivered]


@pytest.mark.parametrize("gates", [0, 1], ids=["work", "gate"])
def test_of_one_request_queued_twice_at_once_one_is_the_first(gates):
    requests = [dependency(["a"], [step()]) if gates else step(number=number) for number in range(ROUNDS)]
    answers = []

    def queue(number):
        answers.append((number, enqueue(requests[number]).deduplicated))

    race(ROUNDS, queue, queue)
    counts = (Work.objects.count(), Waiter.objects.count(), Edge.objects.count())
    assert counts == (ROUNDS, ROUNDS * gates, ROUNDS * gates)
    assert Counter(answers) == {(number, late): 1 for number in range(ROUNDS) for late in (False, True)}


@pytest.mark.parametrize("together", [False, True])
def test_of_many_requests_queued_twice_at_once_each_is_queued_once(together):
    requests = [steps(3) for _ in range(ROUNDS)]
    fresh = []

    def queue(number, most=3):
        handles = enqueue_many(requests[number][:most], together=together)
        fresh.extend(handle.id for handle in handles if not handle.deduplicated)

    race(ROUNDS, queue, lambda number: queue(number, most=2))
    assert Work.objects.count() == 3 * ROUNDS
    assert sorted(fresh) == sorted(Work.objects.values_list("id", flat=True))
    assert Group.objects.count() == (ROUNDS if together else 0)


def test_folding_is_exact_when_two_settle_at_once():
    handles = enqueue_many(steps(2 * ROUNDS), together=True)
    claims = claim_all()
    contribution = Contribution(None, append=lambda total: str(int(total or "0") + 1))

    def add(handle):
        success = Success(contributions=(contribution,), needs_group=True)
        settle([Settlement(claims[handle.id], success)])

    race(ROUNDS, each(add, handles[::2]), each(add, handles[1::2]))
    group = Group.objects.get()
    assert (group.open, group.total, group.dead) == (0, 2 * ROUNDS, 0)
    assert group.value == str(2 * ROUNDS)


def test_the_last_two_of_a_group_settling_at_once_close_it():
    pairs = [enqueue_many(steps(2), together=True) for _ in range(ROUNDS)]
    claims, done = claim_all(), []

    def end(member):
        def act(pair):
            row = claims[pair[member].id]
            settle([Settlement(row, Success())])
            if Group.objects.get(id=row.group).done_at is not None:
                done.append(row.group)

        return each(act, pairs)

    race(ROUNDS, end(0), end(1))
    assert Group.objects.filter(open=0, done_at__isnull=False).count() == ROUNDS
    assert set(done) == {pair[0].group_id for pair in pairs}


def test_staging_and_claiming_at_once_start_each_work_once(claimed, time_travel):
    enqueue_many(steps(ROUNDS * 3), delay=60)
    time_travel(61)

    def stage(number):
        transitions.make_pending(clock.now(), 3)

    race(ROUNDS, stage, stage, claiming(claimed, "a", 5))
    while transitions.make_pending(clock.now(), 500):
        continue
    assert_each_once(ROUNDS * 3, claimed)


@work(name="races.keyed", options=lambda key: {"dedup": Dedup(key)})
def keyed(key: str) -> str:
    return key


def queue_once(number):
    return enqueue(step(number=number), dedup=Dedup(f"k{number}"))


class Answers:
    """What each round's rivals were answered: the ids, and how many were new."""

    def __init__(self):
        self.ids = defaultdict(set)
        self.new = Counter()

    def add(self, key, handle):
        self.ids[key].add(handle.id)
        self.new[key] += not handle.deduplicated

    def queue(self, number):
        self.add(number, queue_once(number))

    def assert_one_each(self, keys):
        assert Work.objects.count() == len(self.ids) == keys
        assert {len(ids) for ids in self.ids.values()} == {1}
        assert self.new == dict.fromkeys(self.ids, 1)


@pytest.fixture
def answers():
    return Answers()


def test_rivals_in_transactions_of_their_own_queue_one_work(answers):
    def queue(number):
        with transaction.atomic():
            answers.add(number, enqueue(step(number=number), dedup=Dedup(f"k{number}", "any")))
            list(Work.objects.filter(dedup_key="none"))

    race(ROUNDS, queue, queue, queue)
    answers.assert_one_each(ROUNDS)


def test_a_chain_is_there_at_every_moment_of_handing_over(answers):
    firsts = [queue_once(number) for number in range(ROUNDS)]
    rows = claim_all()

    def hand_over(number):
        row = rows[firsts[number].id]
        following = build_new_work(step(number=number), {}, Lineage.continuing(row), clock.now())
        settle([Settlement(row, Success(new_works=(following,)))])

    race(ROUNDS, hand_over, answers.queue, answers.queue)
    assert dict(answers.ids) == {number: {handle.id} for number, handle in enumerate(firsts)}
    assert answers.new.total() == 0
    assert Work.objects.filter(ended_at=None).count() == ROUNDS


def roll_back(number):
    with transaction.atomic():
        queue_once(number)
        transaction.set_rollback(True)


def expire_locks(number):
    try:
        StoreEntry.objects.filter(key__startswith="dedup:").update(expires_at=clock.now())
        prune_others()
    except OperationalError as error:
        assert is_contention(error), error


@pytest.mark.parametrize("meanwhile", [roll_back, expire_locks])
def test_beside_one_that_rolls_back_and_while_locks_are_pruned_rivals_queue_one_work(answers, meanwhile):
    race(ROUNDS, answers.queue, meanwhile, answers.queue)
    answers.assert_one_each(ROUNDS)


def test_batches_with_the_same_keys_in_different_orders_queue_each_once(answers):
    keys = 6

    def queue(order):
        def act(number):
            names = [f"k{number}-{place}" for place in range(keys)][::order]
            with transaction.atomic():  # where a deadlock would be the caller's to repeat
                handles = enqueue_many([keyed(key=name) for name in names])
            for name, handle in zip(names, handles, strict=True):
                answers.add(name, handle)

        return act

    race(ROUNDS, queue(1), queue(-1), queue(1))
    answers.assert_one_each(ROUNDS * keys)


def test_a_key_that_is_taken_over_and_over_is_held_by_one_work_at_a_time(answers):
    for number in range(20):
        there = set(answers.ids["all"])
        answers.add("all", enqueue(step(number=number), dedup=Dedup("all", exclude=there)))
    assert answers.new["all"] == 20

    def same(number):
        answers.add("same", enqueue(step(number=number), dedup=Dedup("same")))

    race(ROUNDS, same, same, same)
    assert (answers.new["same"], len(answers.ids["same"])) == (1, 1)


def output(row, *units):
    """Settle a work that outputs these units."""
    new_works = [build_new_work(fetch(size=1), {"unit": unit}, Lineage(), clock.now()) for unit in units]
    settle([Settlement(row, Success(outputs=tuple(new_works)))])


def parents(number):
    enqueue_many([given() for _ in range(number)])
    return list(claim_all().values())


def live_per_unit():
    return Counter(Work.objects.filter(type="out.fetch", ended_at=None).values_list("unit", flat=True))


def test_two_settlements_that_output_the_same_units_make_one_work_of_each():
    rows = parents(2 * ROUNDS)
    race(
        ROUNDS,
        lambda n: output(rows[2 * n], f"{n}/c", f"{n}/b", f"{n}/a"),
        lambda n: output(rows[2 * n + 1], f"{n}/a", f"{n}/b", f"{n}/c"),
    )
    assert Counter(live_per_unit().values()) == {1: 3 * ROUNDS}


def test_an_enqueue_and_a_settlement_of_one_unit_make_one_work():
    rows = parents(ROUNDS)
    race(ROUNDS, lambda n: output(rows[n], str(n)), lambda n: enqueue(fetch(size=2), unit=str(n)))
    assert Counter(live_per_unit().values()) == {1: ROUNDS}


def test_a_unit_that_is_claimed_while_its_input_is_replaced_loses_neither_input():
    for n, handle in enumerate(enqueue_many([fetch(size=1) for _ in range(ROUNDS)])):
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
    again = []
    race(
        ROUNDS, succeeding(handles, claim_all()), lambda n: again.append(enqueue(fetch(size=2), unit=str(n)))
    )
    for handle, second in zip(handles, again, strict=True):
        assert second.deduplicated is (second.id == handle.id)
    assert set(live_per_unit().values()) <= {1}
    assert len(live_per_unit()) == sum(not handle.deduplicated for handle in again)
