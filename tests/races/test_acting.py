"""Cancelling, completing, retrying and deleting while a worker settles: one wins, and only it has effects."""

from collections import Counter
from contextlib import nullcontext, suppress
from functools import partial

import pytest
from django.db import OperationalError, transaction

from django_ayework import (
    AlreadyCompleted,
    BlockerReference,
    ChainNotFound,
    WorkNotFound,
    cancel,
    complete,
    completing,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    retry,
)
from django_ayework.errors import NotRetryable
from django_ayework.flow.maintenance import prune
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.rules.durations import later
from django_ayework.store import deletion
from django_ayework.store.database import clock, is_contention
from tests.races import rivals
from tests.races.conftest import ROUNDS
from tests.races.holding import at_once, transaction_elsewhere
from tests.races.rivals import claim_all, each, ids, kill, race, released, statuses, succeed, succeeding
from tests.races.works import step, steps


def are_only(ids, status):
    return set(Work.objects.filter(id__in=ids).values_list("status", flat=True)) <= {status}


def hand_over(chain):
    with completing(chain.id) as ctx:
        ctx.continue_with(step())


def test_completing_a_chain_that_hands_over_meets_the_step_or_the_next_one():
    """It never finds the chain at a step that has ended."""
    chains = enqueue_many(steps(ROUNDS))
    late = []

    def hand_over_unless_late(chain):
        try:
            hand_over(chain)
        except AlreadyCompleted:
            late.append(chain.id)

    race(
        ROUNDS, each(hand_over_unless_late, chains), each(lambda chain: complete(chain.id, "enough"), chains)
    )
    states = {handle.id: handle.chain_state() for handle in chains}
    assert {(state.status, state.output) for state in states.values() if state} == {("success", "enough")}
    assert sorted(id for id, state in states.items() if state and state.length == 1) == sorted(late)


def test_a_group_is_cancelled_while_a_worker_settles_it():
    groups = [enqueue_many(steps(6), together=True) for _ in range(ROUNDS)]
    gates = [enqueue(dependency(group, [step()], condition="all-done")) for group in groups]
    rows, settled, cancelled = claim_all(), [], []
    race(
        ROUNDS,
        each(lambda group: settled.extend(succeed(*(rows[id] for id in ids(group[1:4]))).moved), groups),
        each(lambda group: cancelled.extend(cancel(group=group[0])), groups),
    )
    assert sorted(settled + cancelled) == sorted(member.id for group in groups for member in group)
    assert are_only(settled, "success") and are_only(cancelled, "cancelled")
    counted = Group.objects.filter(id__in=[group[0].id for group in groups])
    assert set(counted.values_list("open", "total", "dead")) == {(0, 6, 0)}
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def assert_gone(handles):
    assert not Work.objects.filter(id__in=ids(handles)).exists()
    assert not Work.objects.filter(chain_id__in=ids(handles)).exists()


def deleting(handles, *, cascade=False):
    return each(partial(delete_chains, cascade=cascade), handles)


def test_a_settlement_moves_the_work_or_meets_nothing_and_its_gates_are_decided_once():
    """Every other work dies, every other is in a group with one that goes on."""
    members = [enqueue_many([step(), step()][: 1 + number % 2], together=True) for number in range(ROUNDS)]
    firsts = [handles[0] for handles in members]
    needs_success = enqueue_many([dependency([first], [step()]) for first in firsts])
    needs_an_end = enqueue_many([dependency([first], [step()], "all-done") for first in firsts])
    claims, refused = claim_all(), []

    def settle(number):
        end = kill if number % 4 < 2 else succeed
        refused.extend(end(claims[firsts[number].id]).refused)

    race(ROUNDS, settle, deleting(firsts))
    assert_gone(firsts)
    assert statuses(needs_an_end) == {"success": ROUNDS}
    opened = statuses(needs_success)["success"]
    assert opened <= ROUNDS // 2
    assert opened == sum(first.id not in refused for number, first in enumerate(firsts) if number % 4 >= 2)
    assert Group.objects.filter(total=1, open=1).count() >= ROUNDS // 2


def test_a_continuation_that_is_inserted_meanwhile_goes_with_its_chain():
    chains = enqueue_many(steps(ROUNDS))

    def hand_over_if_there(chain):
        with suppress(WorkNotFound, AlreadyCompleted):
            hand_over(chain)

    race(ROUNDS, each(hand_over_if_there, chains), deleting(chains))
    assert not Work.objects.exists()
    assert not Group.objects.exists()


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_work_blocked_by_a_chain_keeps_it_or_is_refused_or_dies(has_ended):
    """Half of those who queue hold their transaction open for a moment."""
    chains = enqueue_many(steps(ROUNDS))
    if has_ended:
        succeed(*claim_all().values())
    behind = steps(ROUNDS)
    answers = {}

    def queue(number):
        try:
            with transaction.atomic() if number % 2 else nullcontext():
                enqueue(behind[number], blockers=[chains[number]])
                Work.objects.filter(id=behind[number].id).exists()
        except ChainNotFound:
            answers[number] = "not found"

    def delete(number):
        try:
            delete_chains(chains[number])
        except BlockerReference:
            answers[number] = "referenced"

    race(ROUNDS, queue, delete)
    there = set(Work.objects.filter(id__in=ids(chains)).values_list("id", flat=True))
    stands = dict(Work.objects.filter(id__in=ids(behind)).values_list("id", "status"))
    expected = {
        "referenced": (True, "pending" if has_ended else "blocked"),
        "not found": (False, None),
        None: (False, "pending" if has_ended else "dead"),
    }
    for number, (chain, work) in enumerate(zip(chains, behind, strict=True)):
        assert (chain.id in there, stands.get(work.id)) == expected[answers.get(number)]


def test_a_claim_takes_the_work_and_loses_it_or_finds_none():
    works, claimed = enqueue_many(steps(ROUNDS)), []

    def claim(number):
        now = clock.now()
        claimed.extend(rivals.claim(1, "w", now, later(now, 60)))

    race(ROUNDS, claim, deleting(works))
    assert not Work.objects.exists()
    assert sorted(succeed(*claimed).refused) == sorted(row.id for row in claimed)


def test_a_gate_opens_or_is_gone_and_the_gates_behind_its_works_are_decided():
    members, released = enqueue_many(steps(ROUNDS)), steps(ROUNDS)
    gates = enqueue_many([dependency([m], [r]) for m, r in zip(members, released, strict=True)])
    behind = enqueue_many([dependency([r], [step()], "all-done") for r in released])
    race(ROUNDS, succeeding(members, claim_all()), deleting(gates))
    assert_gone(gates)
    assert statuses(members) == {"success": ROUNDS}
    inserted = statuses(released)["pending"]
    assert statuses(behind) == Counter({"blocked": inserted, "success": ROUNDS - inserted})
    succeed(*(row for id, row in claim_all().items() if id in set(ids(released))))
    assert statuses(behind) == {"success": ROUNDS}


def test_a_gate_is_decided_once_when_one_of_its_works_is_deleted_and_the_other_ends():
    firsts, seconds = enqueue_many(steps(ROUNDS)), enqueue_many(steps(ROUNDS))
    pairs = zip(firsts, seconds, strict=True)
    gates = enqueue_many([dependency(pair, [step()], "all-done") for pair in pairs])
    race(ROUNDS, succeeding(firsts, claim_all()), deleting(seconds))
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_a_cascade_meets_the_end_of_the_blocker():
    blockers = enqueue_many(steps(ROUNDS))
    waiting = [enqueue(step(), blockers=[blocker]) for blocker in blockers]
    race(ROUNDS, succeeding(blockers, claim_all()), deleting(waiting, cascade=True))
    assert not Work.objects.exists()
    assert (Edge.objects.count(), Waiter.objects.count()) == (0, 0)


def test_a_retry_revives_the_work_or_finds_none():
    members = enqueue_many(steps(ROUNDS))
    gates = enqueue_many([dependency([member], [step()]) for member in members])
    kill(*claim_all().values())

    def again(id):
        with suppress(WorkNotFound, NotRetryable):
            retry(id)

    race(ROUNDS, each(again, ids(members)), deleting(members))
    assert_gone(members)
    assert statuses(gates) == {"dead": ROUNDS}


def test_of_rivals_who_delete_the_same_each_chain_is_deleted_by_one():
    """They come in opposite orders, one of them from below; the groups empty at the same moment."""
    quartets, deleted = [], []
    for _ in range(ROUNDS):
        a, b = enqueue_many(steps(2), together=True)
        quartets.append([a, b, *enqueue_many(steps(2), blockers=[a, b])])

    def delete(order):
        return each(lambda quartet: deleted.extend(delete_chains(*quartet[::order])), quartets)

    def delete_last(number):
        """Delete the last of four with its blockers, which the third keeps while it is there."""
        *_, third, fourth = quartets[number]
        try:
            deleted.extend(delete_chains(fourth, cascade=True))
        except BlockerReference as refusal:
            assert {work for _, work in refusal.references} == {third.id}

    race(ROUNDS, delete(1), delete(-1), delete_last)
    assert Counter(deleted) == {handle.id: 1 for quartet in quartets for handle in quartet}
    assert not Work.objects.exists()
    assert not Group.objects.exists()


def test_rivals_who_delete_the_last_two_of_a_group_delete_it():
    pairs = [enqueue_many(steps(2), together=True) for _ in range(ROUNDS)]
    race(ROUNDS, *(deleting([pair[place] for pair in pairs]) for place in (0, 1)))
    assert not Group.objects.exists()


def test_pruning_meanwhile_leaves_no_group_behind(time_travel):
    pairs = [enqueue_many(steps(2), together=True) for _ in range(ROUNDS)]
    succeed(*claim_all().values())
    time_travel(60)

    def prune_page(limit):
        page = deletion.page_of_ended("success", step.name, clock.now(), None, limit)
        return deletion.delete_unneeded("success", [work.id for work in page])

    def prune(number):
        try:
            prune_page(2)
        except OperationalError as error:
            assert is_contention(error), error

    race(ROUNDS, prune, deleting([first for first, _ in pairs]))
    while prune_page(500):
        continue
    assert not Work.objects.exists()
    assert not Group.objects.exists()


@pytest.mark.vendors("postgresql")
def test_pruning_does_not_wait_for_a_group_that_somebody_holds(time_travel):
    pairs = [enqueue_many(steps(2), together=True) for _ in range(2)]
    succeed(*claim_all().values())
    time_travel(2 * 86_400)
    held = Work.objects.get(id=pairs[0][0].id).group_id
    seen: list[int] = []
    with transaction_elsewhere(lambda: Group.objects.select_for_update().get(id=held)):
        at_once(lambda: seen.append(prune()))
        assert (seen, Work.objects.count()) == ([2], 2)
    assert prune() == 2
