"""Gates and blocked works: whatever races, none stays blocked and none opens twice."""

from datetime import timedelta

import pytest

from django_ayework import (
    Count,
    NotRetryable,
    complete,
    completing,
    dependency,
    enqueue,
    enqueue_many,
    retry,
)
from django_ayework.define.requests import new_id
from django_ayework.flow import maintenance
from django_ayework.models import Attempt, Group, Work
from django_ayework.store.database import clock
from tests.processes import eventually
from tests.races.conftest import ROUNDS
from tests.races.rivals import (
    claim_all,
    each,
    enqueue_all,
    finish,
    ids,
    kill,
    race,
    released,
    statuses,
    succeed,
    succeeding,
)
from tests.races.works import pairs_of_steps, step, steps


def settle_both(claims, pairs):
    """Let both works of each pair succeed at once."""
    race(len(pairs), *(succeeding([pair[place] for pair in pairs], claims) for place in (0, 1)))


def empty_gates():
    """The watched gate is inserted and ended in one transaction, so it cannot be locked in between."""
    names = [new_id() for _ in range(ROUNDS)]
    return names, each(lambda name: enqueue(dependency([], []), id=name), names)


def brief_lives():
    """The recheck of the gate locks the member for a moment, and a claim passes over locked rows."""
    members = steps(ROUNDS)

    def live(member):
        enqueue(member)
        succeed(eventually(lambda: claim_all().get(member.id)))

    return members, each(live, members)


def revivals():
    members = enqueue_many(steps(ROUNDS))
    kill(*claim_all().values())
    return members, each(retry, ids(members))


@pytest.mark.parametrize("made", [empty_gates, brief_lives, revivals])
def test_a_gate_made_while_its_member_begins_and_ends_or_is_retried_is_decided(made):
    members, act = made()
    gates = [dependency([member], [step()]) for member in members]
    race(ROUNDS, each(enqueue, gates), act)
    assert made is not revivals or statuses(gates) == {"blocked": ROUNDS}
    finish()
    assert statuses(gates) == {"success": ROUNDS}


def test_a_retry_that_meets_the_death_itself_revives_the_gates_that_the_death_closed():
    members = steps(ROUNDS)
    chains = [[dependency([member], [step()])] for member in members]
    for chain in chains:
        chain.append(dependency(chain[0].releases, [step()]))
        enqueue_many(chain, together=True)
    enqueue_many(members)
    claims = claim_all()
    gates = [gate for chain in chains for gate in chain]

    def retry_soon(member):
        while True:
            try:
                return retry(member.id)
            except NotRetryable:
                while not Work.objects.filter(id=member.id, status="dead").exists():
                    continue

    race(ROUNDS, each(retry_soon, members), each(lambda member: kill(claims[member.id]), members))
    assert statuses(gates) == {"blocked": 2 * ROUNDS}
    finish()
    assert statuses(gates) == {"success": 2 * ROUNDS}
    assert set(Group.objects.values_list("open", "total", "dead")) == {(0, 4, 0)}


def test_a_retry_of_the_gate_meets_the_settling_of_its_member(time_travel):
    members = steps(ROUNDS)
    gates = [dependency([member], [step()], timeout=60) for member in members]
    enqueue_many(gates)
    time_travel(61)
    while maintenance.expire_blocked():
        continue
    enqueue_many(members)
    race(ROUNDS, each(retry, ids(gates)), succeeding(members, claim_all()))
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_a_gate_expires_or_opens_but_never_both(monkeypatch):
    monkeypatch.setattr(maintenance, "BATCH", 1)
    expired = []
    members = enqueue_many(steps(ROUNDS))
    claims = claim_all()
    past = clock.now() - timedelta(seconds=60)
    gates = [dependency([member], [step()]) for member in members]
    for number, gate in enumerate(gates):
        enqueue(gate, deadline=past + timedelta(milliseconds=number))
    behind = [dependency(gate.releases, [], "all-done") for gate in gates]
    enqueue_many(behind)

    def expire(number):
        """Come at another moment of the settlement each time."""
        for _ in range(number % 12):
            Work.objects.filter(id=gates[number].id).exists()
        expired.append(maintenance.expire_blocked())

    race(ROUNDS, succeeding(members, claims), expire)
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
    race(
        ROUNDS,
        each(lambda id: moved.update(succeed(claims[id]).moved), ids(members)),
        each(lambda id: maintenance.reclaim(everything - {id}), ids(members)),
    )
    lost = set(Attempt.objects.filter(outcome="lost").values_list("work_id", flat=True))
    assert (moved | lost, moved & lost) == (everything, set())
    stands = set(Work.objects.filter(id__in=lost).values_list("status", "error"))
    assert stands <= {("pending", "worker lost")}
    finish()
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_settlements_that_lock_gates_crosswise_both_come_through():
    """One holds the third gate and comes to the second; the other holds the second and comes to the third."""
    pairs, gates = pairs_of_steps(2), []
    for first, second in pairs:
        a = dependency([first], [])
        b = dependency([a, second], [], Count(1))
        gates += [a, b, dependency([first, b], [step()])]
    settle_both(enqueue_all(pairs, gates), pairs)
    assert (statuses(gates), released()) == ({"success": 6}, {1: 2})


def test_gates_that_wait_for_each_other_open_once_each():
    pairs, gates = pairs_of_steps(2), []
    for first, second in pairs:
        x, y = new_id(), new_id()
        gates.append(enqueue(dependency([first, y], [step()], Count(1)), id=x))
        gates.append(enqueue(dependency([second, x], [step()], Count(1)), id=y))
    settle_both(enqueue_all(pairs, []), pairs)
    assert (statuses(gates), released()) == ({"success": 4}, {1: 4})


def test_many_members_settled_in_batches_by_four_rivals_open_a_wide_gate_once():
    members = enqueue_many(steps(40 * ROUNDS))
    gates = [dependency(members, [step()]), dependency(members, [step()], Count(20 * ROUNDS))]
    enqueue_many(gates)
    claims = list(claim_all().values())

    def settle(part):
        return lambda number: succeed(*claims[part::4][number * 10 : number * 10 + 10])

    race(ROUNDS, *map(settle, range(4)))
    assert (statuses(gates), released()) == ({"success": 2}, {1: 2})


@pytest.mark.parametrize("number", [2, 20])
def test_works_whose_last_blockers_are_settled_at_once_are_unblocked(number):
    members = [steps(number) for _ in range(ROUNDS)]
    enqueue_many([member for group in members for member in group])
    waiting = [enqueue(step(), blockers=group) for group in members]
    rows = claim_all()

    def settle(half):
        return each(lambda group: succeed(*(rows[member.id] for member in group[half])), members)

    race(ROUNDS, settle(slice(number // 2)), settle(slice(number // 2, None)))
    assert statuses(waiting) == {"pending": ROUNDS}


def go_on(chain):
    """Add a step to a chain, and let it succeed."""
    with completing(chain) as ctx:
        ctx.continue_with(step())
    complete(chain)


def start_over(chain):
    """Retry the only step of a chain, and let it succeed."""
    retry(chain)
    complete(chain)


@pytest.mark.parametrize(("dies", "act"), [(False, complete), (False, go_on), (True, start_over)])
def test_a_work_queued_behind_a_chain_while_that_ends_goes_on_or_starts_over_is_unblocked(dies, act):
    chains = ids(enqueue_many(steps(ROUNDS)))
    if dies:
        kill(*claim_all().values())
    waiting = steps(ROUNDS)
    numbers = range(ROUNDS)
    race(
        ROUNDS,
        each(act, chains),
        each(lambda number: enqueue(waiting[number], blockers=[chains[number]]), numbers),
    )
    assert statuses(waiting) == {"pending": ROUNDS}
