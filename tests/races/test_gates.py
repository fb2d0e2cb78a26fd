"""Gates under fire: whatever meets whatever, none stays blocked and none opens twice."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from datetime import timedelta

from django.db import transaction

from django_ayework import Count, NotRetryable, dependency, enqueue, enqueue_many, retry
from django_ayework.define.ids import new_id
from django_ayework.flow import maintenance
from django_ayework.models import Attempt, Group, Work
from django_ayework.store.clock import clock
from tests.processes import eventually
from tests.races.conftest import ROUNDS
from tests.races.rivals import claim_all, ids, kill, race, succeed
from tests.races.works import step


def statuses(gates: list) -> Counter:
    return Counter(Work.objects.filter(id__in=ids(gates)).values_list("status", flat=True))


def released() -> Counter:
    return Counter(Counter(Work.objects.exclude(parent_id=None).values_list("parent_id", flat=True)).values())


def finish() -> None:
    """Let everything that can still run succeed."""
    while rows := claim_all():
        succeed(*rows.values())


def test_the_last_two_members_settling_at_once_open_the_gate_once():
    pairs = [(step(), step()) for _ in range(ROUNDS)]
    variants = [("all-success", succeed), ("all-done", kill), (Count(1), succeed)]
    gates = [dependency(pair, [step()], variants[number % 3][0]) for number, pair in enumerate(pairs)]
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    claims = claim_all()
    race(
        ROUNDS,
        lambda number: succeed(claims[pairs[number][0].id]),
        lambda number: variants[number % 3][1](claims[pairs[number][1].id]),
    )
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_a_success_and_a_death_at_once_close_the_gate():
    pairs = [(step(), step()) for _ in range(ROUNDS)]
    gates = [dependency(pair, [step()]) for pair in pairs]
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    claims = claim_all()
    race(
        ROUNDS,
        lambda number: succeed(claims[pairs[number][0].id]),
        lambda number: kill(claims[pairs[number][1].id]),
    )
    assert statuses(gates) == {"dead": ROUNDS}
    assert not released()


def test_a_gate_made_while_its_member_settles_is_decided():
    """Half of the makers hold their transaction open for a moment; half of the members die."""
    members = enqueue_many([step() for _ in range(ROUNDS)])
    claims = claim_all()
    gates = [dependency([member], [step()]) for member in members]

    def create(number: int) -> None:
        with transaction.atomic() if number % 2 else nullcontext():
            enqueue(gates[number])
            Work.objects.filter(id=gates[number].id).exists()

    def settle(number: int) -> None:
        (kill if number % 4 < 2 else succeed)(claims[members[number].id])

    race(ROUNDS, create, settle)
    assert statuses(gates) == {"success": ROUNDS // 2, "dead": ROUNDS // 2}


def test_a_gate_made_while_the_empty_gate_it_watches_is_made_is_decided():
    """The one watched is born and ended in one transaction, so nobody can lock it in between."""
    names = [new_id() for _ in range(ROUNDS)]
    gates = [dependency([name], [step()]) for name in names]
    race(
        ROUNDS,
        lambda number: enqueue(gates[number]),
        lambda number: enqueue(dependency([], []), id=names[number]),
    )
    assert statuses(gates) == {"success": ROUNDS}


def test_a_gate_made_while_its_member_is_queued_and_settled_is_decided():
    """The second look at the gate locks the member for a moment, and a claim passes over what is locked."""
    members = [step() for _ in range(ROUNDS)]
    gates = [dependency([member], [step()]) for member in members]

    def live(number: int) -> None:
        enqueue(members[number])
        succeed(eventually(lambda: claim_all().get(members[number].id)))

    race(ROUNDS, lambda number: enqueue(gates[number]), live)
    finish()
    assert statuses(gates) == {"success": ROUNDS}


def test_a_gate_made_while_its_dead_member_is_retried_waits_for_it():
    members = enqueue_many([step() for _ in range(ROUNDS)])
    kill(*claim_all().values())
    gates = [dependency([member], [step()]) for member in members]
    race(
        ROUNDS,
        lambda number: enqueue(gates[number]),
        lambda number: retry(members[number].id),
    )
    assert statuses(gates) == {"blocked": ROUNDS}
    finish()
    assert statuses(gates) == {"success": ROUNDS}


def test_a_retry_of_the_dead_member_meets_the_settling_of_another():
    pairs = [(step(), step()) for _ in range(ROUNDS)]
    gates = [dependency(pair, [step()]) for pair in pairs]
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    claims = claim_all()
    kill(*(claims[first.id] for first, _ in pairs))

    def settle(number: int) -> None:
        (kill if number % 2 else succeed)(claims[pairs[number][1].id])

    race(ROUNDS, lambda number: retry(pairs[number][0].id), settle)
    assert statuses(gates) == {"blocked": ROUNDS // 2, "dead": ROUNDS // 2}
    finish()
    for _, second in pairs[1::2]:
        retry(second.id)
    finish()
    assert statuses(gates) == {"success": ROUNDS}
    assert Group.objects.filter(open=0, dead=0).count() == ROUNDS
    assert released() == {1: ROUNDS}


def test_a_retry_that_meets_the_death_itself_revives_what_the_death_closed():
    members = [step() for _ in range(ROUNDS)]
    chains = [[dependency([member], [step()])] for member in members]
    for chain in chains:
        chain.append(dependency(chain[0].releases, [step()]))
        enqueue_many(chain, together=True)
    enqueue_many(members)
    claims = claim_all()

    def retry_soon(number: int) -> None:
        while True:
            try:
                retry(members[number].id)
                return
            except NotRetryable:
                while not Work.objects.filter(id=members[number].id, status="dead").exists():
                    continue

    race(ROUNDS, retry_soon, lambda number: kill(claims[members[number].id]))
    assert statuses([gate for chain in chains for gate in chain]) == {"blocked": 2 * ROUNDS}
    finish()
    assert statuses([gate for chain in chains for gate in chain]) == {"success": 2 * ROUNDS}
    assert set(Group.objects.values_list("open", "total", "dead")) == {(0, 4, 0)}


def test_a_retry_of_the_gate_meets_the_settling_of_its_member(time_travel):
    members = [step() for _ in range(ROUNDS)]
    gates = [dependency([member], [step()], timeout=60) for member in members]
    enqueue_many(gates)
    time_travel(61)
    while maintenance.expire_gates():
        continue
    enqueue_many(members)
    claims = claim_all()
    race(
        ROUNDS,
        lambda number: retry(gates[number].id),
        lambda number: succeed(claims[members[number].id]),
    )
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_a_gate_expires_or_opens_but_never_both(monkeypatch):
    monkeypatch.setattr(maintenance, "BATCH", 1)
    expired: list[int] = []
    members = enqueue_many([step() for _ in range(ROUNDS)])
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
    members = enqueue_many([step() for _ in range(ROUNDS)])
    claims = claim_all(lease=60)
    gates = [dependency([member], [step()]) for member in members]
    enqueue_many(gates)
    time_travel(61)
    everything, moved = set(ids(members)), set()

    def settle(number: int) -> None:
        moved.update(succeed(claims[members[number].id]).moved)

    race(ROUNDS, settle, lambda number: maintenance.reclaim(everything - {members[number].id}))
    lost = set(Attempt.objects.filter(outcome="lost").values_list("work_id", flat=True))
    assert moved | lost == everything
    assert not moved & lost
    assert set(Work.objects.filter(id__in=lost).values_list("status", "error")) <= {
        ("pending", "worker lost")
    }
    finish()
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_settlements_that_lock_gates_crosswise_both_come_through():
    """One holds the third gate and comes to the second; the other holds the second and comes to the third."""
    rounds = 4
    firsts, seconds = [step() for _ in range(rounds)], [step() for _ in range(rounds)]
    gates = []
    for first, second in zip(firsts, seconds, strict=True):
        a = dependency([first], [])
        b = dependency([a, second], [], Count(1))
        c = dependency([first, b], [step()])
        gates += [a, b, c]
    enqueue_many(gates)
    enqueue_many(firsts + seconds)
    claims = claim_all()
    race(
        rounds,
        lambda number: succeed(claims[firsts[number].id]),
        lambda number: succeed(claims[seconds[number].id]),
    )
    assert statuses(gates) == {"success": 3 * rounds}
    assert released() == {1: rounds}


def test_gates_that_wait_for_each_other_open_once_each():
    rounds = 4
    pairs = [(step(), step()) for _ in range(rounds)]
    names = [(new_id(), new_id()) for _ in range(rounds)]
    for (first, second), (x, y) in zip(pairs, names, strict=True):
        enqueue(dependency([first, y], [step()], Count(1)), id=x)
        enqueue(dependency([second, x], [step()], Count(1)), id=y)
    enqueue_many([member for pair in pairs for member in pair])
    claims = claim_all()
    race(
        rounds,
        lambda number: succeed(claims[pairs[number][0].id]),
        lambda number: succeed(claims[pairs[number][1].id]),
    )
    assert Work.objects.filter(type="@work/dependency", status="success").count() == 2 * rounds
    assert released() == {1: 2 * rounds}


def test_many_members_settled_in_batches_by_four_rivals_open_a_wide_gate_once():
    members = enqueue_many([step() for _ in range(800)])
    gates = [dependency(members, [step()]), dependency(members, [step()], Count(400))]
    enqueue_many(gates)
    claims = list(claim_all().values())

    def settle(part: int):
        return lambda number: succeed(*claims[part::4][number * 10 : number * 10 + 10])

    race(20, *(settle(part) for part in range(4)))
    assert statuses(gates) == {"success": 2}
    assert released() == {1: 2}
