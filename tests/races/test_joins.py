"""Joins of many chains, settled by two worker processes: none may stay blocked."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from django.db import transaction

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Work
from tests.processes import ended, eventually, worker_process
from tests.races.conftest import FULL
from tests.races.works import join, meet, step, who_met

#: ``make races`` runs all of it.
JOINS = 200 if FULL else 30
BLOCKERS = 100


@pytest.fixture
def env(process_env: dict[str, str]) -> dict[str, str]:
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_patient"}


@pytest.mark.timeout(300 if FULL else 120)
def test_of_many_joins_of_a_hundred_blockers_each_none_stays_blocked(env):
    """Half of the joins are queued before their blockers run, half while they do; no two share a blocker.

    The blockers of one join lie side by side in the queue, so both processes are at them at the same time.
    They meet before: one might have done it all when the other is up.
    """
    members = [[step(number=number) for number in range(BLOCKERS)] for _ in range(JOINS)]
    joins = [join(of=[member.id for member in group]) for group in members]
    with (
        worker_process(env, "--concurrency", "10") as one,
        worker_process(env, "--concurrency", "10") as other,
    ):
        eventually(lambda: enqueue(meet()) and len(who_met()) == 2)
        with transaction.atomic():
            enqueue_many([member for group in members for member in group])
            enqueue_many(joins[: JOINS // 2])
        for waiting in reversed(joins[JOINS // 2 :]):
            enqueue_many([waiting])
        eventually(lambda: not Work.objects.filter(status__in=["pending", "running"]).exists(), seconds=200)
        for process in (one, other):
            process.send_signal(signal.SIGTERM)
        assert [ended(process)[0] for process in (one, other)] == [0, 0]
    works = Work.objects.exclude(type=meet.name)
    assert Counter(works.values_list("type", "status")) == {
        ("races.step", "success"): JOINS * BLOCKERS,
        ("races.join", "success"): JOINS,
    }
    results = Work.objects.filter(type="races.join").values_list("result", flat=True)
    assert set(results) == {str(sum(range(BLOCKERS)))}
    assert len(set(works.values_list("completed_by", flat=True))) == 2, "one process has done it all"
