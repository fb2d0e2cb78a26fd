"""Worker processes that race for the same works."""

from __future__ import annotations

from collections import Counter

import pytest

from django_ayework import Count, dependency, enqueue, enqueue_many, get_handle
from django_ayework.models import Group, Work
from tests.processes import ended, worker_process
from tests.races.works import step, tally_all


@pytest.fixture
def env(process_env: dict[str, str]) -> dict[str, str]:
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_patient"}


def work_off(env: dict[str, str]) -> None:
    """Let two processes run everything that is due."""
    with worker_process(env, "--burst") as one, worker_process(env, "--burst") as other:
        for process in (one, other):
            status, output = ended(process)
            assert status == 0, output


def test_two_processes_open_each_of_many_gates_once(env):
    rounds = 200
    pairs = [(step(), step()) for _ in range(rounds)]
    gates = [
        dependency(pair, [step(number=1)], "all-success" if number % 2 else Count(1))
        for number, pair in enumerate(pairs)
    ]
    enqueue_many(gates)
    enqueue_many([member for pair in pairs for member in pair])
    work_off(env)
    assert Counter(Work.objects.values_list("status", flat=True)) == {"success": 4 * rounds}
    parents = Work.objects.exclude(parent_id=None).values_list("parent_id", flat=True)
    assert Counter(parents) == {gate.id: 1 for gate in gates}
    ran = Work.objects.exclude(type="@work/dependency")
    assert set(ran.values_list("attempt", "delivery")) == {(1, 1)}


def test_two_processes_fold_a_groups_value_exactly(env):
    handle = enqueue(tally_all(numbers=400))
    work_off(env)
    assert get_handle(handle.id).group(timeout=0) == sum(range(400))
    group = Group.objects.get()
    assert (group.open, group.total, group.dead) == (0, 401, 0)
