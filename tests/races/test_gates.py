"""Gates and blocked works: whatever races, none stays blocked and none opens twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import Count, NotRetryable, dependency, enqueue, enqueue_many, retry
from django_ayework.define.requests import new_id
from django_ayework.flow import maintenance
from django_ayework.models import Attempt, Group, Work
from django_ayework.store.database import clock
from tests.processes import eventually
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, finish, ids, kill, race, released, statuses, succeed
from tests.races.works import step, steps


def enqueue_all(pairs: list, gates: list) -> dict:
    """Queue the gates and what they watch; return the claimed rows."""
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    return claim_all()


def ending(handles: list, ends=("succeed", "kill")) -> list:
    """The acts that settle these works, each kind in turn."""
    return [(ends[number % len(ends)], handle.id) for number, handle in enumerate(handles)]


def pairs_of_steps(number: int) -> list:
    return [(step(), step()) for _ in range(number)]


def settle_both(claims: dict, pairs: list) -> None:
    """Let both works of each pair succeed at once."""
    rounds = range(len(pairs))
    rows = [[claims[pairs[number][place].id] for number in rounds] for place in (0, 1)]
    race(len(pairs), lambda number: succeed(rows[0][number]), lambda number: succeed(rows[1][number]))


def test_the_last_two_members_settling_at_once_open_or_close_the_gate_once(raced):
    pairs = pairs_of_steps(ROUNDS)
    variants = [
        ("all-success", "succeed"),
        ("all-done", "kill"),
        (Count(1), "succeed"),
        ("all-success", "kill"),
    ]
    gates = [dependency(pair, [step()], variants[number % 4][0]) for number, pair in enumerate(pairs)]
    enqueue_all(pairs, gates)
    ends = [end for _, end in variants]
    raced(ending([first for first, _ in pairs], ["succeed"]), ending([second for _, second in pairs], ends))
    assert statuses(gates[3::4]) == {"dead": ROUNDS // 4}
    assert statuses(gates) == {"success": ROUNDS - ROUNDS // 4, "dead": ROUNDS // 4}
    assert released() == {1: ROUNDS - ROUNDS // 4}


@pytest.mark.parametrize("act", ["queue a gate", "queue a gate slowly"])
def test_a_gate_made_while_its_member_settles_is_decided(raced, act):
    members = enqueue_many(steps(ROUNDS))
    claim_all()
    gates, _ = raced([(act, member.id) for member in members], ending(members))
    found = Work.objects.in_bulk([id for id, _ in gates])
    assert [found[id].status for id, _ in gates] == ["success", "dead"] * (ROUNDS // 2)


def test_a_gate_made_while_the_empty_gate_it_watches_is_made_is_decided():
    """The watched gate is inserted and ended in one transaction, so it cannot be locked in between."""
    names = [new_id() for _ in range(ROUNDS)]
    gates = [dependency([name], [step()]) for name in names]
    race(
        ROUNDS,
        lambda number: enqueue(gates[number]),
        lambda number: enqueue(dependency([], []), id=names[number]),
    )
    assert statuses(gates) == {"success": ROUNDS}


def test_a_gate_made_while_its_member_is_queued_and_settled_is_decided():
    """The recheck of the gate locks the member for a moment, and a claim passes over locked rows."""
    members = steps(ROUNDS)
    gates = [dependency([member], [step()]) for member in members]

    def live(number: int) -> None:
        enqueue(members[number])
        succeed(eventually(lambda: claim_all().get(members[number].id)))

    race(ROUNDS, lambda number: enqueue(gates[number]), live)
    finish()
    assert statuses(gates) == {"success": ROUNDS}


def test_a_gate_made_while_its_dead_member_is_retried_waits_for_it():
    members = enqueue_many(steps(ROUNDS))
    kill(*claim_all().values())
    gates = [dependency([member], [step()]) for member in members]
    race(ROUNDS, lambda number: enqueue(gates[number]), lambda number: retry(members[number].id))
    assert statuses(gates) == {"blocked": ROUNDS}
    finish()
    assert statuses(gates) == {"success": ROUNDS}


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


def test_a_retry_that_meets_the_death_itself_revives_the_gates_that_the_death_closed():
    members = steps(ROUNDS)
    chains = [[dependency([member], [step()])] for member in members]
    for chain in chains:
        chain.append(dependency(chain[0].releases, [step()]))
        enqueue_many(chain, together=True)
    enqueue_many(members)
    claims = claim_all()
    gates = [gate for chain in chains for gate in chain]

    def retry_soon(number: int) -> None:
        while True:
            try:
                retry(members[number].id)
                return
            except NotRetryable:
                while not Work.objects.filter(id=members[number].id, status="dead").exists():
                    continue

    race(ROUNDS, retry_soon, lambda number: kill(claims[members[number].id]))
    assert statuses(gates) == {"blocked": 2 * ROUNDS}
    finish()
    assert statuses(gates) == {"success": 2 * ROUNDS}
    assert set(Group.objects.values_list("open", "total", "dead")) == {(0, 4, 0)}


def test_a_retry_of_the_gate_meets_the_settling_of_its_member(time_travel):
    members = steps(ROUNDS)
    gates = [dependency([member], [step()], timeout=60) for member in members]
    enqueue_many(gates)
    time_travel(61)
    while maintenance.expire_gates():
        continue
    enqueue_many(members)
    claims = claim_all()
    race(ROUNDS, lambda number: retry(gates[number].id), lambda number: succeed(claims[members[number].id]))
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_a_gate_expires_or_opens_but_never_both(monkeypatch):
    monkeypatch.setattr(maintenance, "BATCH", 1)
    expired: list[int] = []
    members = enqueue_many(steps(ROUNDS))
    claims = claim_all()
    past = clock.now() - timedelta(seconds=60)
    gates = [dependency([member], [step()]) for member in members]
    for number, gate in enumerate(gates):
        enqueue(gate, deadline=past + timedelta(milliseconds=number))
    behind = [dependency(gate.releases, [], "all-done") for gate in gates]
    enqueue_many(behind)

    def expire(number: int) -> None:
        """Come at another moment of the settlement each time."""
        for _ in range(number % 12):
            Work.objects.filter(id=gates[number].id).exists()
        expired.append(maintenance.expire_gates())

    race(ROUNDS, lambda number: succeed(claims[members[number].id]), expire)
    finish()
    ended = statuses(gates)
    assert (ended["success"], ended["dead"]) == (ROUNDS - sum(expired), sum(expired))
    assert released() == ({1: ended["success"]} if ended["success"] else {})
    assert statuses(behind) == {"success": ROUNDS}


def test_a_work_reclaimed_while_it_settles_ends_once(time_travel):
    members = enqueue_many(steps(ROUNDS))
    claims = claim_all(lease=60)
    gates = enqueue_many([dependency([member], [step()]) for member in members])
    time_travel(61)
    everything, moved = set(ids(members)), set()

    def settle(number: int) -> None:
        moved.update(succeed(claims[members[number].id]).moved)

    race(ROUNDS, settle, lambda number: maintenance.reclaim(everything - {members[number].id}))
    lost = set(Attempt.objects.filter(outcome="lost").values_list("work_id", flat=True))
    assert moved | lost == everything
    assert not moved & lost
    stands = set(Work.objects.filter(id__in=lost).values_list("status", "error"))
    assert stands <= {("pending", "worker lost")}
    finish()
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_settlements_that_lock_gates_crosswise_both_come_through():
    """One holds the third gate and comes to the second; the other holds the second and comes to the third."""
    rounds = 4
    pairs, gates = pairs_of_steps(rounds), []
    for first, second in pairs:
        a = dependency([first], [])
        b = dependency([a, second], [], Count(1))
        gates += [a, b, dependency([first, b], [step()])]
    settle_both(enqueue_all(pairs, gates), pairs)
    assert statuses(gates) == {"success": 3 * rounds}
    assert released() == {1: rounds}


def test_gates_that_wait_for_each_other_open_once_each():
    rounds = 4
    pairs = pairs_of_steps(rounds)
    for first, second in pairs:
        x, y = new_id(), new_id()
        enqueue(dependency([first, y], [step()], Count(1)), id=x)
        enqueue(dependency([second, x], [step()], Count(1)), id=y)
    settle_both(enqueue_all(pairs, []), pairs)
    assert Work.objects.filter(type="@work/dependency", status="success").count() == 2 * rounds
    assert released() == {1: 2 * rounds}


def test_many_members_settled_in_batches_by_four_rivals_open_a_wide_gate_once():
    members = enqueue_many(steps(800))
    gates = [dependency(members, [step()]), dependency(members, [step()], Count(400))]
    enqueue_many(gates)
    claims = list(claim_all().values())

    def settle(part: int):
        return lambda number: succeed(*claims[part::4][number * 10 : number * 10 + 10])

    race(20, *(settle(part) for part in range(4)))
    assert statuses(gates) == {"success": 2}
    assert released() == {1: 2}


def test_a_work_blocked_while_its_blocker_ends_is_decided(raced):
    blockers = enqueue_many(steps(ROUNDS))
    claim_all()
    waiting, _ = raced([("queue blocked", blocker.id) for blocker in blockers], ending(blockers))
    found = Work.objects.in_bulk([id for id, _ in waiting])
    became = [(found[id].status, found[id].reason) for id, _ in waiting]
    assert became == [("pending", ""), ("dead", "unsatisfiable")] * (ROUNDS // 2)


def test_a_retry_of_a_blocker_meets_the_insert_of_the_work_it_blocks(raced):
    blockers = enqueue_many(steps(ROUNDS))
    kill(*claim_all().values())
    acts = [[(act, blocker.id) for blocker in blockers] for act in ("retry", "queue blocked")]
    _, waiting = raced(*acts)
    found = Work.objects.in_bulk([id for id, _ in waiting])
    assert [work.status for work in found.values()] == ["blocked"] * ROUNDS
    finish()
    assert Work.objects.filter(status="success").count() == 2 * ROUNDS
    assert not Group.objects.exists()


@pytest.mark.parametrize(("joins", "number"), [(ROUNDS, 2), (40, 20)])
def test_works_whose_last_blockers_are_settled_at_once_are_unblocked(joins, number):
    members = [steps(number) for _ in range(joins)]
    enqueue_many([member for group in members for member in group])
    waiting = [enqueue(step(), blockers=group) for group in members]
    rows = claim_all()

    def settle(half: slice):
        return lambda number: succeed(*(rows[member.id] for member in members[number][half]))

    race(joins, settle(slice(number // 2)), settle(slice(number // 2, None)))
    assert statuses(waiting) == {"pending": joins}
