"""Two rivals, in threads and in processes: what one of them settles while the other acts."""

from collections import Counter

import pytest

from django_ayework import Count, dependency, enqueue_many, retry
from django_ayework.models import Group, Work
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, enqueue_all, finish, ids, kill, released, statuses
from tests.races.works import pairs_of_steps, step, steps


def ending(handles, ends=("succeed", "kill")):
    """The acts that settle these works, each kind in turn."""
    return [(ends[number % len(ends)], handle.id) for number, handle in enumerate(handles)]


def facts(answers, *columns):
    """Columns of the works whose ids were answered."""
    found = Work.objects.in_bulk([id for id, _ in answers])
    return [tuple(getattr(found[id], column) for column in columns) for id, _ in answers]


def test_the_last_two_members_settling_at_once_open_or_close_the_gate_once(raced):
    pairs = pairs_of_steps(ROUNDS)
    conditions = ["all-success", "all-done", Count(1), "all-success"]
    gates = [dependency(pair, [step()], conditions[number % 4]) for number, pair in enumerate(pairs)]
    enqueue_all(pairs, gates)
    firsts, seconds = zip(*pairs, strict=True)
    raced(ending(firsts, ["succeed"]), ending(seconds, ["succeed", "kill", "succeed", "kill"]))
    assert statuses(gates[3::4]) == {"dead": ROUNDS // 4}
    assert statuses(gates) == {"success": ROUNDS - ROUNDS // 4, "dead": ROUNDS // 4}
    assert released() == {1: ROUNDS - ROUNDS // 4}


@pytest.mark.parametrize("act", ["queue a gate", "queue a gate slowly"])
def test_a_gate_made_while_its_member_settles_is_decided(raced, act):
    members = enqueue_many(steps(ROUNDS))
    claim_all()
    gates, _ = raced([(act, member.id) for member in members], ending(members))
    assert facts(gates, "status") == [("success",), ("dead",)] * (ROUNDS // 2)


def test_a_retry_of_the_dead_member_meets_the_settling_of_another(raced):
    """Half of the other members succeed: those gates wait for the retried work. The others stay dead."""
    pairs = pairs_of_steps(ROUNDS)
    gates = [dependency(pair, [step()]) for pair in pairs]
    claims = enqueue_all(pairs, gates)
    kill(*(claims[first.id] for first, _ in pairs))
    raced([("retry", first.id) for first, _ in pairs], ending([second for _, second in pairs]))
    assert statuses(gates[::2]) == {"blocked": ROUNDS // 2}
    assert statuses(gates[1::2]) == {"dead": ROUNDS // 2}
    finish()
    assert statuses(gates[::2]) == {"success": ROUNDS // 2}
    assert released() == {1: ROUNDS // 2}
    for _, second in pairs[1::2]:
        retry(second.id)
    finish()
    assert statuses(gates) == {"success": ROUNDS}
    assert Group.objects.filter(open=0, dead=0).count() == ROUNDS
    assert released() == {1: ROUNDS}


def test_a_work_blocked_while_its_blocker_ends_is_decided(raced):
    blockers = enqueue_many(steps(ROUNDS))
    claim_all()
    waiting, _ = raced([("queue blocked", blocker.id) for blocker in blockers], ending(blockers))
    assert facts(waiting, "status", "reason") == [("pending", ""), ("dead", "unsatisfiable")] * (ROUNDS // 2)


def test_a_retry_of_a_blocker_meets_the_insert_of_the_work_it_blocks(raced):
    blockers = enqueue_many(steps(ROUNDS))
    kill(*claim_all().values())
    _, waiting = raced(*([(act, blocker.id) for blocker in blockers] for act in ("retry", "queue blocked")))
    assert facts(waiting, "status") == [("blocked",)] * ROUNDS
    finish()
    assert Work.objects.filter(status="success").count() == 2 * ROUNDS
    assert not Group.objects.exists()


@pytest.mark.parametrize("act", ["cancel", "complete"])
def test_a_settlement_and_an_act_by_hand_agree_on_one_winner(raced, act):
    members = enqueue_many(steps(ROUNDS))
    gates = enqueue_many([dependency([member], [step()], "all-done") for member in members])
    claim_all()
    acted, settled = raced([(act, id) for id in ids(members)], [("succeed", id) for id in ids(members)])
    for id, won, moved in zip(ids(members), acted, settled, strict=True):
        assert (won, moved) in [(id, []), ("AlreadyCompleted", [id])]
    won = Work.objects.filter(id__in=acted).values_list("completed_by", flat=True)
    assert set(won) <= {None}
    ended = Work.objects.filter(id__in=[id for some in settled for id in some])
    assert set(ended.values_list("status", flat=True)) <= {"success"}
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_rivals_with_one_key_queue_one_work(raced):
    acts = [("queue once", f"k{number}") for number in range(ROUNDS)]
    firsts, seconds = raced(acts, acts)
    for (id, late), (other, other_late) in zip(firsts, seconds, strict=True):
        assert (id, {late, other_late}) == (other, {False, True})
    assert Counter(Work.objects.values_list("dedup_key", flat=True)) == {key: 1 for _, key in acts}
