"""Pruning: ended works go once they have been kept long enough, unless others may still need them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Retry, dependency, enqueue, enqueue_many, work
from django_ayework.flow.maintenance import prune, prune_others
from django_ayework.models import Attempt, Edge, Group, StoreEntry, Waiter, Work, WorkerProcess
from django_ayework.store.entries import set_if_absent
from django_ayework.testing import drain, now, running_worker, time_travel
from django_ayework.testing.factories import AttemptFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add, fail
from tests.processes import eventually

pytestmark = pytest.mark.django_db

DAY = 86_400


def ended(status: str, days: float, **columns: Any) -> Any:
    return WorkFactory(status=status, ended_at=now() - timedelta(days=days), **columns)


def left() -> set[str]:
    return set(Work.objects.values_list("id", flat=True))


def declare(name: str, **retention: Any) -> None:
    work(name=name, retention=retention)(lambda: None)


def test_by_default_the_dead_are_kept_and_the_rest_goes_after_a_day():
    kept = {
        ended("success", 0.9).id,
        ended("cancelled", 0.9).id,
        ended("dead", 1000).id,
        WorkFactory(status="pending", run_at=now() - timedelta(days=9)).id,
        WorkFactory(status="running", started_at=now() - timedelta(days=9)).id,
    }
    ended("success", 1.1)
    ended("cancelled", 1.1)
    assert prune() == 2
    assert left() == kept


def test_each_status_has_a_retention_of_its_own_and_attempts_go_with_their_work(configure):
    configure(RETENTION={"success": None, "dead": 2 * DAY})
    dead, gone = ended("dead", 1.9).id, ended("dead", 2.1).id
    kept = {ended("success", 1000).id, dead}
    ended("cancelled", 1.1)
    for id in (dead, gone):
        AttemptFactory(work_id=id)
    assert prune() == 2
    assert left() == kept
    assert list(Attempt.objects.values_list("work_id", flat=True)) == [dead]


def test_a_type_keeps_its_works_as_long_as_it_says_itself():
    declare("shop.tick", success=timedelta(minutes=1))
    declare("shop.invoice", success=None, cancelled=10 * DAY, dead=30 * DAY)
    declare("shop.archive", success=timedelta.max)
    kept = {
        ended("success", 0.5 / 1440, type="shop.tick").id,
        ended("success", 0.9, type="shop.add").id,
        ended("success", 1000, type="shop.invoice").id,
        ended("cancelled", 9, type="shop.invoice").id,
        ended("dead", 29, type="shop.invoice").id,
        ended("dead", 1000, type="shop.tick").id,
        ended("success", 1000, type="shop.archive").id,
    }
    ended("success", 2 / 1440, type="shop.tick")
    ended("cancelled", 1.1, type="shop.tick")
    ended("success", 1.1, type="shop.add")
    ended("success", 2, type="gone.from_the_code")
    ended("cancelled", 11, type="shop.invoice")
    ended("dead", 31, type="shop.invoice")
    assert prune() == 6
    assert left() == kept


def test_a_batch_takes_the_longest_ended_first_and_is_bounded_over_all_types_of_a_status():
    rows = [ended("success", days) for days in (5, 3, 4, 2)]
    assert prune(limit=2) == 2
    assert left() == {rows[1].id, rows[3].id}
    assert [prune(limit=2), prune(limit=2)] == [2, 0]
    declare("shop.tick", success=60)
    for type in ("shop.add", "shop.tick", "shop.invoice"):
        for _ in range(2):
            ended("success", 2, type=type)
    assert [prune(limit=4), prune(limit=4), prune(limit=4)] == [4, 2, 0]


def test_nothing_at_all_may_be_kept(configure):
    configure(RETENTION={"success": 0})
    enqueue(add(a=1, b=2))
    drain()
    time_travel(0.001)
    assert prune() == 1


def test_works_of_an_open_group_are_kept_and_go_with_it():
    handles = enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)
    drain(limit=1)
    time_travel(DAY + 60)
    assert prune() == 0
    drain()
    time_travel(DAY + 60)
    assert handles[1].group(timeout=0) == 7
    assert prune() == 2
    assert left() == set()
    assert Group.objects.count() == 0


def test_a_group_stays_as_long_as_one_of_its_works():
    handles = enqueue_many([add(a=1, b=2), fail()], together=True, retry=Retry(attempts=1))
    drain(raises=False)
    time_travel(DAY + 60)
    assert prune() == 1
    assert left() == {handles[1].id}
    assert handles[1].group(timeout=0) == 3


def test_works_that_a_live_waiter_watches_are_kept():
    watched = enqueue(add(a=1, b=2))
    other = enqueue(add(a=3, b=4), delay=10 * DAY)
    gate = enqueue(dependency([watched, other], [add(a=5, b=6)]))
    drain()
    time_travel(2 * DAY)
    assert prune() == 0
    assert left() == {watched.id, other.id, gate.id}
    time_travel(9 * DAY)
    drain()
    time_travel(2 * DAY)
    assert prune() == 4
    assert (Waiter.objects.count(), Edge.objects.count(), Group.objects.count()) == (0, 0, 0)


def test_expired_claims_and_workers_that_are_long_gone_are_deleted():
    set_if_absent("claim:old", "", now(), now() - timedelta(seconds=1))
    set_if_absent("claim:new", "", now(), now() + timedelta(seconds=60))
    WorkerProcessFactory(seen_at=now() - timedelta(hours=25))
    kept = WorkerProcessFactory(seen_at=now() - timedelta(hours=23))
    prune_others()
    assert list(StoreEntry.objects.values_list("key", flat=True)) == ["claim:new"]
    assert list(WorkerProcess.objects.values_list("id", flat=True)) == [kept.id]


@pytest.mark.django_db(transaction=True)
def test_workers_prune_by_themselves():
    ended("success", 2)
    with running_worker(concurrency=1) as worker:
        for duty in worker._maintenance._duties:  # its turn comes after a quarter of a minute; not here
            duty.due_at = min(duty.due_at, 0.0)
        enqueue(add(a=1, b=2)).result(timeout=20)
        eventually(lambda: not Work.objects.filter(ended_at__lt=now() - timedelta(days=1)).exists())
    assert Work.objects.get().type == "shop.add"
