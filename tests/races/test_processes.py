"""Worker processes that race for the same works."""

from collections import Counter

import pytest
from django.db import transaction

from django_ayework import Count, dependency, enqueue, enqueue_many, get_handle
from django_ayework.models import Group, Work
from tests.processes import ended_well, eventually, stopped, worker_process
from tests.races.conftest import FULL
from tests.races.rivals import released
from tests.races.works import join, meet, share, step, tally_all

#: ``make races`` runs all of it.
JOINS = 200 if FULL else 8
BLOCKERS = 100
QUEUES = ("left", "right")
SLOTS = 10


def test_two_processes_open_each_of_many_gates_once_and_fold_a_groups_value_exactly(env):
    rounds, pieces = (200, 400) if FULL else (60, 100)
    pairs = [(step(), step()) for _ in range(rounds)]
    conditions = (Count(1), "all-success")
    enqueue_many([dependency(pair, [step(number=1)], conditions[n % 2]) for n, pair in enumerate(pairs)])
    enqueue_many([member for pair in pairs for member in pair])
    group = enqueue(tally_all(numbers=pieces))
    with worker_process(env, "--burst") as one, worker_process(env, "--burst") as other:
        for process in (one, other):
            ended_well(process)
    assert Counter(Work.objects.values_list("status", flat=True)) == {"success": 4 * rounds + pieces + 1}
    assert released() == {1: rounds, pieces: 1}
    ran = Work.objects.exclude(type="@work/dependency")
    assert set(ran.values_list("attempt", "delivery")) == {(1, 1)}
    assert get_handle(group.id).group(timeout=0) == sum(range(pieces))
    assert list(Group.objects.filter(total=pieces + 1).values_list("open", "dead")) == [(0, 0)]


@pytest.mark.timeout(300 if FULL else 120)
def test_of_many_joins_of_a_hundred_blockers_each_none_stays_blocked(env):
    """Half of the joins are queued before their blockers run, half while they do; no two share a blocker.

    Each process has a queue of its own, and every other blocker of each join: none can do it all by itself.
    Both begin at the same moment: as many works as they have slots wait at the head for the other process.
    """
    members = [
        [share(number=number, queue=QUEUES[number % 2]) for number in range(BLOCKERS)] for _ in range(JOINS)
    ]
    of = [[member.id for member in group] for group in members]
    joins = [join(of=ids, queue=QUEUES[number % 2]) for number, ids in enumerate(of)]
    slots = ("--concurrency", str(SLOTS), "--queues")
    with worker_process(env, *slots, QUEUES[0]) as one, worker_process(env, *slots, QUEUES[1]) as other:
        with transaction.atomic():
            enqueue_many([meet(queue=queue) for queue in QUEUES for _ in range(SLOTS)])
            enqueue_many([member for group in members for member in group])
            enqueue_many(joins[: JOINS // 2])
        for waiting in reversed(joins[JOINS // 2 :]):
            enqueue_many([waiting])
        eventually(lambda: not Work.objects.filter(status__in=["pending", "running"]).exists(), seconds=200)
        for process in (one, other):
            stopped(process)
    assert Counter(Work.objects.values_list("type", "status")) == {
        ("races.meet", "success"): len(QUEUES) * SLOTS,
        ("races.share", "success"): JOINS * BLOCKERS,
        ("races.join", "success"): JOINS,
    }
    results = Work.objects.filter(type="races.join").values_list("result", flat=True)
    assert set(results) == {str(sum(range(BLOCKERS)))}
