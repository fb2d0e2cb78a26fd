"""Blocking and unblocking at the same moment: nobody stays blocked."""

from __future__ import annotations

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Work
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, race, succeed
from tests.races.works import step


def statuses(handles) -> set[str]:
    ids = [handle.id for handle in handles]
    return set(Work.objects.filter(id__in=ids).values_list("status", flat=True))


def test_a_work_blocked_while_its_blocker_ends_is_not_left_behind():
    blockers = [step(number=number) for number in range(ROUNDS)]
    enqueue_many(blockers)
    rows = claim_all()

    race(
        ROUNDS,
        lambda number: succeed(rows[blockers[number].id]),
        lambda number: enqueue(step(number=number), blockers=[blockers[number].id]),
    )

    assert not Work.objects.filter(status="blocked").exists()
    assert Work.objects.filter(status="pending").count() == ROUNDS


def test_the_last_two_blockers_ending_at_once_unblock_once():
    pairs = [(step(number=number), step(number=number)) for number in range(ROUNDS)]
    enqueue_many([blocker for pair in pairs for blocker in pair])
    waiting = [enqueue(step(), blockers=list(pair)) for pair in pairs]
    rows = claim_all()

    race(
        ROUNDS,
        lambda number: succeed(rows[pairs[number][0].id]),
        lambda number: succeed(rows[pairs[number][1].id]),
    )

    assert set(Work.objects.filter(id__in=[w.id for w in waiting]).values_list("status", flat=True)) == {
        "pending"
    }


def test_joins_of_many_blockers_settled_by_rivals_in_batches_all_unblock():
    joins = 40
    members = [[step(number=number) for number in range(20)] for _ in range(joins)]
    enqueue_many([member for group in members for member in group])
    waiting = [enqueue(step(), blockers=group) for group in members]
    rows = claim_all()
    halves = [[group[:10] for group in members], [group[10:] for group in members]]

    def settle(half):
        return lambda number: succeed(*(rows[member.id] for member in half[number]))

    race(joins, settle(halves[0]), settle(halves[1]))

    assert set(Work.objects.filter(id__in=[w.id for w in waiting]).values_list("status", flat=True)) == {
        "pending"
    }
