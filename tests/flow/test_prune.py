"""Pruning: ended works go once they have been kept long enough, unless somebody may still need them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Retry, dependency, enqueue, enqueue_many, work
from django_ayework.flow.maintenance import prune
from django_ayework.models import Attempt, Edge, Group, StoreEntry, Waiter, Work, WorkerProcess
from django_ayework.store.entries import set_if_absent
from django_ayework.testing import now
from django_ayework.testing.factories import AttemptFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add, fail
from tests.fixtures import undeclared  # noqa: F401
from tests.flow.conftest import Configure

pytestmark = pytest.mark.django_db

DAY = 86_400


def ended(status: str, days: float, **columns: Any) -> Any:
    return WorkFactory(status=status, ended_at=now() - timedelta(days=days), **columns)


def left() -> set[str]:
    return set(Work.objects.values_list("id", flat=True))


def test_by_default_the_dead_are_kept_and_the_rest_goes_after_a_day() -> None:
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


def test_each_status_has_a_retention_of_its_own(configure: Configure) -> None:
    configure(RETENTION={"success": None, "dead": 2 * DAY})
    kept = {ended("success", 1000).id, ended("dead", 1.9).id}
    ended("dead", 2.1)
    ended("cancelled", 1.1)
    assert prune() == 2
    assert left() == kept


@pytest.fixture
def declared(undeclared: Any) -> Any:  # noqa: F811
    """Declare a type that keeps its ended works as long as it says."""

    def declare(name: str, **retention: Any) -> None:
        @work(name=name, retention=retention)
        def handler() -> None: ...

    return declare


def test_a_type_keeps_its_works_as_long_as_it_says_itself(declared: Any) -> None:
    declared("shop.tick", success=timedelta(minutes=1))
    declared("shop.invoice", success=None, cancelled=10 * DAY, dead=30 * DAY)
    kept = {
        ended("success", 0.5 / 1440, type="shop.tick").id,
        ended("success", 0.9, type="shop.add").id,
        ended("success", 1000, type="shop.invoice").id,
        ended("cancelled", 9, type="shop.invoice").id,
        ended("dead", 29, type="shop.invoice").id,
        ended("dead", 1000, type="shop.tick").id,
    }
    ended("success", 2 / 1440, type="shop.tick")
    ended("cancelled", 1.1, type="shop.tick")
    ended("success", 1.1, type="shop.add")
    ended("cancelled", 11, type="shop.invoice")
    ended("dead", 31, type="shop.invoice")
    assert prune() == 5
    assert left() == kept


def test_works_of_types_that_nobody_knows_go_by_the_setting(declared: Any) -> None:
    declared("shop.tick", success=None)
    ended("success", 2, type="gone.from_the_code")
    kept = ended("success", 2, type="shop.tick").id
    assert prune() == 1
    assert left() == {kept}


def test_what_is_deleted_at_once_is_bounded_over_all_types_of_a_status(declared: Any) -> None:
    declared("shop.tick", success=60)
    for type in ("shop.add", "shop.tick", "shop.invoice"):
        for _ in range(2):
            ended("success", 2, type=type)
    assert [prune(limit=4), prune(limit=4), prune(limit=4)] == [4, 2, 0]


def test_works_may_be_kept_for_longer_than_there_are_dates(declared: Any) -> None:
    declared("shop.tick", success=timedelta.max)
    ended("success", 1000, type="shop.tick")
    assert prune() == 0


def test_nothing_at_all_may_be_kept(configure: Configure, drain: Any, time_travel: Any) -> None:
    configure(RETENTION={"success": 0})
    enqueue(add(a=1, b=2))
    drain()
    time_travel(0.001)
    assert prune() == 1


def test_works_of_an_open_group_are_kept_and_go_with_it(drain: Any, time_travel: Any) -> None:
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


def test_a_group_stays_as_long_as_one_of_its_works(drain: Any, time_travel: Any) -> None:
    handles = enqueue_many([add(a=1, b=2), fail()], together=True, retry=Retry(attempts=1))
    drain(raises=False)
    time_travel(DAY + 60)
    assert prune() == 1
    assert left() == {handles[1].id}
    assert handles[1].group(timeout=0) == 3


def test_works_that_a_live_waiter_watches_are_kept(drain: Any, time_travel: Any) -> None:
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


def test_attempts_go_with_their_work(configure: Configure) -> None:
    configure(RETENTION={"dead": DAY})
    gone, kept = ended("dead", 2), ended("dead", 0.5)
    AttemptFactory(work_id=gone.id)
    stays = AttemptFactory(work_id=kept.id)
    prune()
    assert list(Attempt.objects.values_list("id", flat=True)) == [stays.id]


def test_a_batch_takes_the_longest_ended_first() -> None:
    rows = [ended("success", days) for days in (5, 3, 4, 2)]
    assert prune(limit=2) == 2
    assert left() == {rows[1].id, rows[3].id}
    assert prune(limit=2) == 2
    assert prune(limit=2) == 0


def test_claims_go_once_they_have_expired() -> None:
    set_if_absent("claim:old", "", now(), now() - timedelta(seconds=1))
    set_if_absent("claim:new", "", now(), now() + timedelta(seconds=60))
    prune()
    assert list(StoreEntry.objects.values_list("key", flat=True)) == ["claim:new"]


def test_workers_that_are_long_gone_are_forgotten() -> None:
    WorkerProcessFactory(seen_at=now() - timedelta(hours=25))
    kept = WorkerProcessFactory(seen_at=now() - timedelta(hours=23))
    prune()
    assert list(WorkerProcess.objects.values_list("id", flat=True)) == [kept.id]


@pytest.mark.django_db(transaction=True)
def test_workers_prune_by_themselves(configure: Configure, running_worker: Any) -> None:
    ended("success", 2)
    with running_worker(concurrency=1) as worker:
        for duty in worker._maintenance._duties:  # its turn comes after a quarter of a minute; not here
            duty.due_at = min(duty.due_at, 0.0)
        enqueue(add(a=1, b=2)).result(timeout=20)
        for _ in range(400):
            if not Work.objects.filter(ended_at__lt=now() - timedelta(days=1)).exists():
                break
            worker._stopping.wait(0.02)
    assert [work.type for work in Work.objects.all()] == ["shop.add"]
    assert Work.objects.get().ended_at > now() - timedelta(days=1)
