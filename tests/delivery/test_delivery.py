"""Ids are delivered; the database decides, and the poll finds what did not arrive."""

from __future__ import annotations

import threading
from asyncio import CancelledError
from datetime import timedelta

import pytest
from django.db import transaction

from django_ayework import cancel, enqueue, enqueue_many, limit, pause, resume
from django_ayework.flow import sending
from django_ayework.flow.notify import due_works
from django_ayework.flow.sending import QUICK
from django_ayework.models import Work
from django_ayework.rules.notifications import Due
from django_ayework.store import claims
from django_ayework.testing import running_worker, time_travel
from django_ayework.worker import claimer
from django_ayework.worker.arrivals import DeliveryThread
from django_ayework.worker.claimer import deliveries_of
from django_ayework.worker.leases import release
from tests.app.works import add
from tests.delivery.kit import Carrier
from tests.delivery.works import batch, count, hold, limited
from tests.marks import on_sqlite
from tests.processes import PATIENCE, eventually

pytestmark = pytest.mark.django_db(transaction=True)


def all_have_succeeded() -> bool:
    return set(Work.objects.values_list("status", flat=True)) == {"success"}


def test_a_worker_runs_works_whose_ids_arrive(queue, stage):
    with running_worker(concurrency=2):
        handles = enqueue_many([count(number=number) for number in range(30)])
        assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(30))
        assert enqueue(count(number=30)).result(timeout=PATIENCE) == 30
        eventually(lambda: queue.is_empty)
    assert sorted(stage.ran) == list(range(31))


@on_sqlite
def test_ids_are_pushed_after_the_commit(queue):
    with transaction.atomic():
        handle = enqueue(count(number=1))
        assert queue.pushed == []
    assert queue.pushed == [handle.id]
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue(count(number=2))
        raise ZeroDivisionError
    assert queue.pushed == [handle.id]


@on_sqlite
def test_works_are_queued_although_no_thread_can_be_started_to_push_their_ids(queue, monkeypatch):
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(sending.threading, "Thread", Refused)
        handles = enqueue_many([count(number=number) for number in range(QUICK + 1)])
    assert queue.reported == [("can't start new thread", "queue")]
    handles.append(enqueue(count(number=QUICK + 1)))
    eventually(lambda: queue.pushed == [handle.id for handle in handles])


def test_an_id_that_comes_twice_or_too_late_starts_nothing(queue, stage):
    queue.times = 3
    handles = enqueue_many([count(number=number) for number in range(10)])
    cancel(handles[0].id)
    Work.objects.filter(id=handles[1].id).update(queue="mail")  # of another worker
    with running_worker(concurrency=2, queues=["bulk"]):
        eventually(lambda: queue.is_empty)
        eventually(lambda: Work.objects.filter(status="success").count() == 8)
    assert sorted(stage.ran) == list(range(2, 10))


def test_texts_that_are_no_ids_hold_up_no_works(queue, stage):
    queue.push("bulk", ["a\0b", "\ud800", "x" * 100_000, ""])
    with running_worker(concurrency=2):
        assert enqueue(count(number=1)).result(timeout=PATIENCE) == 1
        eventually(lambda: queue.is_empty)
    assert queue.reported == []


def test_a_poll_finds_works_whose_ids_were_lost(queue, polls, stage):
    queue.times = 0
    with running_worker(concurrency=2):
        handles = enqueue_many([count(number=number) for number in range(60)])
        assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(60))
    assert sorted(stage.ran) == list(range(60))


@on_sqlite
def test_a_poll_leaves_works_to_their_ids(queue, monkeypatch):
    polls, arrive, poll, pop = [], threading.Event(), claimer.poll, queue.pop

    def refuse(*args, **kwargs):
        raise AssertionError("claimed from the table")

    monkeypatch.setattr(claims, "claim", refuse)
    monkeypatch.setattr(claimer, "poll", lambda *args: polls.append(args) or poll(*args))
    monkeypatch.setattr(queue, "pop", lambda *args: pop(*args) if arrive.wait(0.05) else [])
    with running_worker(concurrency=2):
        handles = enqueue_many([count(number=number) for number in range(50)])
        before = len(polls)
        eventually(lambda: due_works.publish(Due(places=None)) or len(polls) >= before + 3)
        arrive.set()
        assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(50))
    assert queue.reported == []


@on_sqlite
@pytest.mark.parametrize("kind", [ConnectionError, CancelledError])
def test_enqueue_goes_on_without_the_queue_and_the_worker_claims_from_the_table(queue, polls, stage, kind):
    queue.error = kind("away")
    with running_worker(concurrency=2):
        assert enqueue(count(number=1)).result(timeout=PATIENCE) == 1
        assert enqueue(count(number=2)).result(timeout=PATIENCE) == 2
        eventually(lambda: len(queue.reported) == 2 and queue.refused > 2)
        queue.error = None
        eventually(lambda: enqueue(count(number=3)).result(timeout=PATIENCE) and queue.popped)
    assert queue.reported == [("away", "queue")] * 2  # by the sender, and by the worker


def test_works_that_take_a_decision_at_the_claim_are_claimed_from_the_table(queue, polls):
    with running_worker(concurrency=3):
        handles = [enqueue(limited(number=1)), enqueue(batch(2)), enqueue(add(a=1, b=2))]
        assert [handle.result(timeout=PATIENCE) for handle in handles] == [1, 2, 3]
    assert queue.pushed == []


def test_a_pause_and_a_limit_of_operators_hold(queue, polls, stage):
    limit("delivery.hold", max_running=1)
    pause(type="delivery.count")
    with running_worker(concurrency=4):
        enqueue_many([hold(), hold(), hold()])
        paused = enqueue(count(number=1))
        eventually(lambda: len(queue.popped) >= 4 and queue.is_empty)
        eventually(lambda: Work.objects.filter(type="delivery.hold", status="running").exists())
        assert Work.objects.filter(status="running").count() == 1
        assert paused.state().status == "pending"
        stage.go.set()
        resume(type="delivery.count")
        assert paused.result(timeout=PATIENCE) == 1
        eventually(all_have_succeeded)


@on_sqlite
def test_ids_beyond_the_free_slots_go_to_other_workers(queue, stage):
    with running_worker(concurrency=1):
        enqueue_many([hold(), hold(), hold()])
        eventually(lambda: Work.objects.filter(status="running").exists() and queue.acknowledged)
        with running_worker(concurrency=2):
            eventually(lambda: Work.objects.filter(status="running").count() == 3)
            stage.go.set()
            eventually(all_have_succeeded)


@on_sqlite
def test_no_surplus_waits_while_its_worker_waits_for_ids(queue):
    queue.push("bulk", ["one"])
    receiver = DeliveryThread(queue, ["bulk"], on_arrival=lambda: None)
    receiver.give_back(done=(), surplus=queue.pop(["bulk"], 1, wait=0))
    receiver.ask(1)
    receiver.turn()
    assert [popped.id for popped in receiver.take()] == ["one"]


@on_sqlite
def test_ids_are_acknowledged_while_others_keep_arriving(queue):
    receiver = DeliveryThread(queue, ["bulk"], on_arrival=lambda: None)

    def deliver_one_more():
        queue.push("bulk", ["one"])
        receiver.ask(1)
        receiver.turn()
        receiver.give_back(done=receiver.take(), surplus=())
        return queue.acknowledged

    eventually(deliver_one_more)


@on_sqlite
@pytest.mark.parametrize("kind", [PermissionError, CancelledError])
def test_a_queue_that_gives_ids_and_takes_none_back_is_reported_once_and_delivers(
    queue, stage, monkeypatch, kind
):
    tried = []

    def refuse(popped):
        tried.append(popped)
        raise kind("no permission to acknowledge")

    with monkeypatch.context() as patch, running_worker(concurrency=2):
        patch.setattr(queue, "ack", refuse)
        for number in range(20):
            assert enqueue(count(number=number)).result(timeout=PATIENCE) == number
        eventually(lambda: len(tried) >= 2)
        assert queue.reported == [("no permission to acknowledge", "queue")]
        patch.undo()
        assert enqueue(count(number=20)).result(timeout=PATIENCE) == 20
        eventually(lambda: queue.acknowledged)
    assert len(queue.reported) == 1


@on_sqlite
def test_a_claim_that_fails_strands_no_works_of_another_queue(queue, settings, polls, stage, monkeypatch):
    other, claim, refused = Carrier(), claims.claim_delivered, []

    def refuse_once(ids, queues, *args):
        if queues == ["mail"] and not refused:
            refused.append(queues)
            raise ZeroDivisionError("no claim")
        return claim(ids, queues, *args)

    monkeypatch.setattr(claims, "claim_delivered", refuse_once)
    settings.AYEWORK["QUEUES"]["mail"] = {"DELIVERY": other}
    handles = [enqueue(count(number=0)), enqueue(count(number=1), queue="mail")]
    with running_worker(concurrency=2):
        assert [handle.result(timeout=PATIENCE) for handle in handles] == [0, 1]
    assert refused
    assert Work.objects.filter(attempt=1).count() == 2


@on_sqlite
def test_a_worker_that_stops_gives_ids_back(queue, stage):
    with running_worker(concurrency=1):
        enqueue_many([hold(), hold()])
        eventually(lambda: Work.objects.filter(status="running").exists())
        stage.go.set()
    with running_worker(concurrency=1):
        eventually(all_have_succeeded)


def test_works_that_a_worker_releases_are_delivered_again(queue):
    handle = enqueue(count(number=1))
    rows = claims.claim_delivered([handle.id], ["bulk"], ["delivery.count"], claims.new_lease("one"))
    assert not release(deliveries_of(rows), "one")
    assert queue.pushed == [handle.id] * 2
    with running_worker(concurrency=1):
        assert handle.result(timeout=PATIENCE) == 1


def test_a_delayed_work_is_delivered_when_it_is_due(queue, polls):
    handle = enqueue(count(number=1), delay=timedelta(hours=1))
    assert queue.pushed == []
    with running_worker(concurrency=1):
        time_travel(timedelta(hours=2))
        assert handle.result(timeout=PATIENCE) == 1
    assert queue.pushed == [handle.id]


@on_sqlite
def test_a_worker_of_some_types_takes_no_ids(queue, polls):
    with running_worker(concurrency=1, exclude_types=["delivery.hold"]):
        assert enqueue(count(number=1)).result(timeout=PATIENCE) == 1
        assert queue.popped == []


@on_sqlite
def test_a_burst_runs_everything(queue, stage):
    enqueue_many([count(number=number) for number in range(20)])
    with running_worker(concurrency=2, burst=True) as worker:
        worker.wait()
    assert sorted(stage.ran) == list(range(20))
