"""Cancelling and completing while a worker settles: one of the two wins, and only it has followers."""

from __future__ import annotations

import pytest

from django_ayework import (
    AlreadyCompleted,
    cancel,
    complete,
    completing,
    dependency,
    enqueue,
    enqueue_many,
)
from django_ayework.models import Group, Work
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, race, succeed
from tests.races.works import step


@pytest.mark.parametrize("act", [cancel, complete])
def test_a_settlement_and_an_act_by_hand_agree_on_one_winner(act):
    members = [step(number=number) for number in range(ROUNDS)]
    enqueue_many(members)
    gates = [enqueue(dependency([member], [step()], condition="all-done")) for member in members]
    rows = claim_all()
    settled: list[str] = []
    acted: list[str] = []

    def settle(number: int) -> None:
        settled.extend(succeed(rows[members[number].id]).moved)

    def take(number: int) -> None:
        try:
            act(members[number].id)
        except AlreadyCompleted:
            return
        acted.append(members[number].id)

    race(ROUNDS, settle, take)

    assert sorted(settled + acted) == sorted(member.id for member in members)
    won = dict(Work.objects.filter(id__in=acted).values_list("id", "completed_by"))
    assert set(won.values()) <= {None}
    assert set(Work.objects.filter(id__in=settled).values_list("status", flat=True)) <= {"success"}
    fired = Work.objects.filter(id__in=[gate.id for gate in gates]).values_list("status", flat=True)
    assert set(fired) == {"success"}
    assert Work.objects.filter(type=step.name, parent_id__isnull=False).count() == ROUNDS


def test_completing_a_chain_that_hands_over_meets_the_step_or_the_next_one():
    """It never finds the chain at a step that has ended."""
    chains = enqueue_many([step(number=number) for number in range(ROUNDS)])
    late: list[str] = []

    def hand_over(number: int) -> None:
        try:
            with completing(chains[number].id) as ctx:
                ctx.continue_with(step())
        except AlreadyCompleted:
            late.append(chains[number].id)

    race(ROUNDS, hand_over, lambda number: complete(chains[number].id, "enough"))

    states = {handle.id: handle.chain_state() for handle in chains}
    assert {(state.status, state.output) for state in states.values() if state} == {("success", "enough")}
    assert sorted(id for id, state in states.items() if state and state.length == 1) == sorted(late)


def test_a_group_is_cancelled_while_a_worker_settles_it():
    groups = [enqueue_many([step(number=n) for n in range(6)], together=True) for _ in range(ROUNDS)]
    gates = [enqueue(dependency(group, [step()], condition="all-done")) for group in groups]
    rows = claim_all()
    settled: list[str] = []
    cancelled: list[str] = []

    def settle(number: int) -> None:
        settled.extend(succeed(*(rows[member.id] for member in groups[number][1:4])).moved)

    def take(number: int) -> None:
        cancelled.extend(cancel(group=groups[number][0]))

    race(ROUNDS, settle, take)

    assert sorted(settled + cancelled) == sorted(member.id for group in groups for member in group)
    assert set(Work.objects.filter(id__in=settled).values_list("status", flat=True)) <= {"success"}
    assert set(Work.objects.filter(id__in=cancelled).values_list("status", flat=True)) <= {"cancelled"}
    counted = Group.objects.filter(id__in=[group[0].id for group in groups])
    assert set(counted.values_list("open", "total", "dead")) == {(0, 6, 0)}
    fired = Work.objects.filter(id__in=[gate.id for gate in gates]).values_list("status", flat=True)
    assert set(fired) == {"success"}
    assert Work.objects.filter(type=step.name, parent_id__isnull=False).count() == ROUNDS
