"""Two real processes at the same moment, on the same work, gate or key: one outcome, whatever the order."""

from __future__ import annotations

from collections import Counter

import pytest

from django_ayework import Count, dependency, enqueue_many
from django_ayework.models import Group, Work
from tests.races.conftest import ROUNDS
from tests.races.rival_processes import race_processes
from tests.races.rivals import claim_all, ids, kill, succeed
from tests.races.works import step


@pytest.fixture
def env(process_env: dict[str, str]) -> dict[str, str]:
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_patient"}


def statuses(requests: list) -> Counter:
    return Counter(Work.objects.filter(id__in=ids(requests)).values_list("status", flat=True))


def released() -> Counter:
    return Counter(Counter(Work.objects.exclude(parent_id=None).values_list("parent_id", flat=True)).values())


def finish() -> None:
    """Let everything that can still run succeed."""
    while rows := claim_all():
        succeed(*rows.values())


def test_the_last_two_members_settled_at_once_open_the_gate_once(env):
    pairs = [(step(), step()) for _ in range(ROUNDS)]
    variants = [("all-success", "succeed"), ("all-done", "kill"), (Count(1), "succeed")]
    gates = [dependency(pair, [step()], variants[number % 3][0]) for number, pair in enumerate(pairs)]
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    claim_all()
    race_processes(
        env,
        [("succeed", first.id) for first, _ in pairs],
        [(variants[number % 3][1], second.id) for number, (_, second) in enumerate(pairs)],
    )
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_one_key_queued_at_once_is_one_work(env):
    keys = [("queue once", f"k{number}") for number in range(ROUNDS)]
    one, other = race_processes(env, keys, keys)
    assert [first[0] for first in one] == [second[0] for second in other]
    assert {first[1] + second[1] for first, second in zip(one, other, strict=True)} == {1}
    assert Counter(Work.objects.values_list("dedup_key", flat=True)) == {key: 1 for _, key in keys}


@pytest.mark.parametrize("act", ["cancel", "complete"])
def test_an_act_by_hand_and_a_settlement_agree_on_one_winner(env, act: str):
    members = enqueue_many([step() for _ in range(ROUNDS)])
    gates = enqueue_many([dependency([member], [step()], "all-done") for member in members])
    claim_all()
    acted, settled = race_processes(
        env, [(act, member.id) for member in members], [("succeed", member.id) for member in members]
    )
    for member, won, moved in zip(members, acted, settled, strict=True):
        assert (won, moved) in [(member.id, []), ("AlreadyCompleted", [member.id])]
    assert statuses(gates) == {"success": ROUNDS}
    assert released() == {1: ROUNDS}


def test_a_work_blocked_while_its_blocker_ends_is_decided(env):
    """Half of the blockers die."""
    blockers = enqueue_many([step() for _ in range(ROUNDS)])
    claim_all()
    ends = [("kill" if number % 2 else "succeed", blocker.id) for number, blocker in enumerate(blockers)]
    waiting, _ = race_processes(env, [("queue blocked", blocker.id) for blocker in blockers], ends)
    found = Work.objects.in_bulk([id for id, _ in waiting])
    became = [(found[id].status, found[id].reason) for id, _ in waiting]
    assert became == [("pending", ""), ("dead", "unsatisfiable")] * (ROUNDS // 2)


def test_a_gate_made_while_its_member_ends_is_decided(env):
    members = enqueue_many([step() for _ in range(ROUNDS)])
    claim_all()
    ends = [("kill" if number % 2 else "succeed", member.id) for number, member in enumerate(members)]
    gates, _ = race_processes(env, [("queue a gate", member.id) for member in members], ends)
    found = Work.objects.in_bulk([id for id, _ in gates])
    assert [found[id].status for id, _ in gates] == ["success", "dead"] * (ROUNDS // 2)


def test_a_retry_meets_the_death_of_another_member_and_the_gate_is_as_its_members_are(env):
    """Half of the other members succeed: those gates wait for the retried work. The others stay dead."""
    pairs = [(step(), step()) for _ in range(ROUNDS)]
    gates = [dependency(pair, [step()]) for pair in pairs]
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    claims = claim_all()
    kill(*(claims[first.id] for first, _ in pairs))
    race_processes(
        env,
        [("retry", first.id) for first, _ in pairs],
        [("kill" if number % 2 else "succeed", second.id) for number, (_, second) in enumerate(pairs)],
    )
    assert statuses(gates[::2]) == {"blocked": ROUNDS // 2}
    assert statuses(gates[1::2]) == {"dead": ROUNDS // 2}
    finish()
    assert statuses(gates[::2]) == {"success": ROUNDS // 2}
    assert released() == {1: ROUNDS // 2}


def test_a_retry_of_a_blocker_meets_the_making_of_the_work_it_blocks(env):
    blockers = enqueue_many([step() for _ in range(ROUNDS)])
    kill(*claim_all().values())
    _, waiting = race_processes(
        env,
        [("retry", blocker.id) for blocker in blockers],
        [("queue blocked", blocker.id) for blocker in blockers],
    )
    assert Counter(Work.objects.in_bulk([id for id, _ in waiting])[id].status for id, _ in waiting) == {
        "blocked": ROUNDS
    }
    finish()
    assert Work.objects.filter(status="success").count() == 2 * ROUNDS
    assert not Group.objects.exists()
