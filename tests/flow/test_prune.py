"""Pruning: ended works go once they have been kept long enough, unless others may still need them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.db.models import ProtectedError
from django.db.models.signals import pre_delete

from django_ayework import (
    Context,
    Defer,
    cancel,
    complete,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    retry,
    work,
)
from django_ayework.flow.maintenance import Pruning, prune, prune_others
from django_ayework.models import Attempt, Edge, Group, StoreEntry, Waiter, Work, WorkerProcess
from django_ayework.store import deletion
from django_ayework.store.entries import set_if_absent
from django_ayework.testing import drain, now, running_worker, time_travel
from django_ayework.testing.factories import AttemptFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add, fail
from tests.flow.kit import ONCE, connected
from tests.marks import each_database
from tests.processes import eventually

pytestmark = pytest.mark.django_db

DAY = 86_400


def ended(status: str, days: float, type: str = "shop.add") -> str:
    """Make a work that ended so many days ago; return its id."""
    return str(WorkFactory(status=status, ended_at=now() - timedelta(days=days), type=type).id)


def left() -> set[str]:
    return set(Work.objects.values_list("id", flat=True))


def test_by_default_the_dead_are_kept_and_the_rest_goes_after_a_day():
    long_ago = now() - timedelta(days=9)
    kept = {ended("success", 0.9), ended("cancelled", 0.9), ended("dead", 1000)}
    kept |= {WorkFactory(run_at=long_ago).id, WorkFactory(status="running", started_at=long_ago).id}
    ended("success", 1.1)
    ended("cancelled", 1.1)
    assert (prune(), left()) == (2, kept)


def test_each_status_has_a_retention_of_its_own_and_attempts_go_with_their_work(configure):
    configure(RETENTION={"success": None, "dead": 2 * DAY, "cancelled": 0})
    dead, gone = ended("dead", 1.9), ended("dead", 2.1)
    kept = {ended("success", 1000), dead}
    ended("cancelled", 1e-8)
    for id in (dead, gone):
        AttemptFactory(work_id=id)
    assert (prune(), left()) == (2, kept)
    assert list(Attempt.objects.values_list("work_id", flat=True)) == [dead]


#: Types with a retention of their own.
RETENTIONS = {
    "shop.tick": {"success": timedelta(minutes=1)},
    "shop.invoice": {"success": None, "cancelled": 10 * DAY, "dead": 30 * DAY},
    "shop.archive": {"success": timedelta.max},
}
#: A work that has ended so many days ago, and whether it is kept.
ENDED = [
    ("success", 0.5 / 1440, "shop.tick", True),
    ("success", 2 / 1440, "shop.tick", False),
    ("cancelled", 1.1, "shop.tick", False),
    ("dead", 1000, "shop.tick", True),
    ("success", 0.9, "shop.add", True),
    ("success", 1.1, "shop.add", False),
    ("success", 2, "gone.from_the_code", False),
    ("success", 1000, "shop.invoice", True),
    ("cancelled", 9, "shop.invoice", True),
    ("cancelled", 11, "shop.invoice", False),
    ("dead", 29, "shop.invoice", True),
    ("dead", 31, "shop.invoice", False),
    ("success", 1000, "shop.archive", True),
]


def test_a_type_keeps_its_works_as_long_as_it_says_itself():
    for name, retention in RETENTIONS.items():
        work(name=name, retention=retention)(lambda: None)
    kept = {id for *row, is_kept in ENDED if (id := ended(*row)) and is_kept}
    assert (prune(), left()) == (6, kept)


def test_a_page_takes_the_longest_ended_first_and_is_bounded_over_all_types_of_a_status():
    rows = [ended("success", days) for days in (5, 3, 4, 2)]
    assert (Pruning().page(2), left()) == ((2, 2), {rows[1], rows[3]})
    assert list(Pruning().pages(2)) == [(2, 2)]
    work(name="shop.tick", retention={"success": 60})(lambda: None)
    for type in ("shop.add", "shop.tick", "shop.invoice") * 2:
        ended("success", 2, type=type)
    assert list(Pruning().pages(4)) == [(4, 4), (2, 2)]


@each_database
def test_a_walk_looks_at_each_needed_work_once_and_the_next_one_an_hour_later_again():
    watched = enqueue_many([add(a=n, b=0) for n in range(5)])
    drain()
    Work.objects.update(ended_at=now())  # one moment for all of them
    gate = enqueue(dependency([*watched, "absent"], [add(a=5, b=6)]))
    time_travel(2 * DAY)
    ended("success", 1.5)
    walk = Pruning()
    assert list(walk.pages(2)) == [(2, 0), (2, 0), (2, 1)]
    ended("success", 1.2)
    cancel(gate.id)
    assert (walk.page(2), len(left())) == ((1, 1), 6)
    time_travel(3601 + DAY)
    deleted = sum(page.deleted for page in walk.pages(2))
    time_travel(3601)
    assert (deleted + sum(page.deleted for page in walk.pages(2)), left()) == (6, set())


def test_works_of_an_open_group_are_kept_and_it_stays_as_long_as_one_of_them():
    handles = enqueue_many([add(a=1, b=2), fail()], together=True, retry=ONCE)
    drain(limit=1)
    time_travel(DAY + 60)
    assert prune() == 0
    drain(raises=False)
    time_travel(DAY + 60)
    assert (prune(), left()) == (1, {handles[1].id})
    assert handles[1].group(timeout=0) == 3
    retry(handles[1].id, {"message": "again"})
    complete(handles[1].id)
    time_travel(DAY + 60)
    assert (prune(), left(), Group.objects.count()) == (1, set(), 0)


def test_works_that_a_live_waiter_watches_are_kept():
    watched = enqueue(add(a=1, b=2))
    other = enqueue(add(a=3, b=4), delay=10 * DAY)
    gate = enqueue(dependency([watched, other], [add(a=5, b=6)]))
    drain()
    time_travel(2 * DAY)
    assert (prune(), left()) == (0, {watched.id, other.id, gate.id})
    time_travel(9 * DAY)
    drain()
    time_travel(2 * DAY)
    assert prune() == 4
    assert (Waiter.objects.count(), Edge.objects.count(), Group.objects.count()) == (0, 0, 0)


@each_database
def test_the_last_step_of_a_chain_is_kept_as_long_as_others_and_says_how_it_ended(configure):
    configure(RETENTION={"success": 7 * DAY})

    @work(name="prune.reserve")
    def reserve(ctx: Context):
        return ctx.continue_with(add(a=1, b=2), delay=60)

    chain = enqueue(reserve())
    drain()
    cancel(Work.objects.get(status="scheduled").id)
    time_travel(2 * DAY)
    assert (prune(), chain.chain_state().status) == (0, "cancelled")
    blocked = enqueue(add(a=3, b=4), blockers=[chain])
    drain(raises=False)
    assert blocked.state().status == "dead"
    time_travel(6 * DAY)
    assert prune() == 0
    delete_chains(blocked)
    assert (prune(), left()) == (2, set())


@pytest.fixture(params=["blockers", "dependents", "dependents of another group"])
def waiting(request) -> Callable[[], None]:
    """Enqueue a work that fails the first time, and reads the work it had waited for the second time."""
    waits, broken = request.param.split()[0], []

    @work(name="prune.merge", retry=ONCE)
    def merge(ctx: Context) -> int:
        if broken:
            raise RuntimeError(broken.pop())
        return len(getattr(ctx, waits))

    @work(name="prune.fetch")
    def fetch(ctx: Context):
        return ctx.queue([add(a=1, b=2)]).next(merge())

    def enqueue_them() -> None:
        broken.append(True)
        if waits == "blockers":
            enqueue(merge(), blockers=[enqueue(add(a=1, b=2))])
        elif request.param == "dependents":
            enqueue(fetch())
        else:
            enqueue(dependency([enqueue(add(a=1, b=2))], [merge()]))

    return enqueue_them


@each_database
def test_a_dead_work_keeps_what_it_had_waited_for_until_it_is_retried_or_deleted(waiting, configure):
    waiting()
    drain(raises=False)
    time_travel(9 * DAY)
    prune()
    [dead] = Work.objects.filter(status="dead")
    retry(dead.id)
    drain()
    dead.refresh_from_db()
    assert (dead.status, dead.result) == ("success", "1")
    time_travel(2 * DAY)
    prune()
    assert (left(), Edge.objects.count(), Group.objects.count()) == (set(), 0, 0)
    waiting()
    drain(raises=False)
    configure(RETENTION={"dead": 30 * DAY})
    time_travel(29 * DAY)
    prune()
    assert len(left()) > 1
    time_travel(2 * DAY)
    prune()
    assert (left(), Edge.objects.count(), Group.objects.count()) == (set(), 0, 0)


@each_database
def test_a_dead_gate_is_deleted_after_its_retention_and_then_what_it_had_waited_for(configure):
    configure(RETENTION={"dead": 30 * DAY})

    broken = work(name="prune.broken", retry=ONCE)(lambda: 1 / 0)

    @work(name="prune.fetch")
    def fetch(ctx: Context):
        return ctx.queue([broken(), add(a=1, b=2)]).next(add(a=3, b=4))

    enqueue(fetch())
    drain(raises=False)
    time_travel(29 * DAY)
    prune()
    assert sorted(Work.objects.values_list("type", "status")) == [
        ("@work/dependency", "dead"),
        ("prune.broken", "dead"),
        ("shop.add", "success"),
    ]
    time_travel(2 * DAY)
    prune()
    assert (left(), Edge.objects.count(), Group.objects.count()) == (set(), 0, 0)


@each_database
def test_a_work_that_a_gate_had_released_and_that_runs_late_finds_what_the_gate_had_waited_for():
    deferred: list[bool] = []

    @work(name="prune.count")
    def count(ctx: Context):
        if not deferred:
            deferred.append(True)
            raise Defer(delay=9 * DAY)
        return len(ctx.dependents)

    enqueue(dependency([enqueue(add(a=1, b=2))], [count()]))
    drain()
    time_travel(8 * DAY)
    assert prune() == 0
    time_travel(2 * DAY)
    drain()
    assert Work.objects.get(type="prune.count").result == "1"


@each_database
def test_a_dead_work_that_is_retried_without_its_inputs_does_not_succeed(waiting):
    waiting()
    drain(raises=False)
    dead = Work.objects.get(status="dead")
    Edge.objects.exclude(waiter_id=dead.id).delete()
    Work.objects.exclude(id=dead.id).delete()
    retry(dead.id)
    drain(raises=False)
    dead.refresh_from_db()
    assert (dead.status, "was deleted, as its retention is over" in dead.error) == ("dead", True)


@each_database
def test_a_work_that_must_not_be_deleted_keeps_no_other(reported):
    kept, *_ = [ended("success", days) for days in (5, 3, 4)]

    def refuse(instance: Work, **_: object) -> None:
        if instance.id == kept:
            raise ProtectedError("an order protects it", {instance})

    with connected(refuse, pre_delete, sender=Work):
        assert (prune(), left()) == (2, {kept})
    assert all("an order protects it" in error for error, _ in reported)
    assert {phase for _, phase in reported} == {"queue"}


def test_a_page_that_the_database_refuses_as_a_whole_is_left_for_the_next_walk():
    walk, (first, _) = Pruning(), [ended("success", days) for days in (5, 4)]

    def refuse(instance: Work, **_: object) -> None:
        if instance.id == first:
            raise OperationalError("refused")

    with connected(refuse, pre_delete, sender=Work):
        with pytest.raises(OperationalError):
            walk.page(1)
        assert (walk.page(1), left()) == ((1, 1), {first})


def test_a_work_that_is_retried_while_its_page_is_pruned_stays(configure, monkeypatch):
    configure(RETENTION={"dead": DAY})
    id, unneeded = ended("dead", 2), deletion.unneeded
    monkeypatch.setattr(deletion, "unneeded", lambda ids: (retry(id), unneeded(ids))[1])
    assert (Pruning().page(1), left()) == ((1, 0), {id})


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
