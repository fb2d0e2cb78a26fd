"""Queues share a worker, whatever stands in them."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import enqueue, enqueue_many, pause
from django_ayework.models import Work
from django_ayework.rules.controls import Scope
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.in_flight import Delivery
from django_ayework.worker.worker import Worker
from tests.app.works import add
from tests.outputs.works import store
from tests.worker.works import quick


def queues(deliveries: list[Delivery]) -> list[str]:
    return list(dict.fromkeys(delivery.row.queue for delivery in deliveries))


def by_queue(deliveries: list[Delivery]) -> Counter[str]:
    return Counter(delivery.row.queue for delivery in deliveries)


def test_each_queue_gets_its_share_and_another_goes_first_each_time(claimer):
    for queue in ("a", "b"):
        enqueue_many([quick() for _ in range(30)], queue=queue)
    claims = [claimer.claim(9) for _ in range(4)]
    assert [queues(claim) for claim in claims] == [["b", "a"], ["a", "b"], ["b", "a"], ["a", "b"]]
    assert [sorted(by_queue(claim).values()) for claim in claims] == [[4, 5]] * 4


def test_what_one_queue_does_not_use_is_the_others(claimer):
    enqueue_many([quick() for _ in range(30)], queue="a")
    enqueue(quick(), queue="b")
    assert by_queue(claimer.claim(10)) == {"a": 9, "b": 1}
    assert by_queue(claimer.claim(10)) == {"a": 10}


@pytest.mark.parametrize("wanted", [1, 8, 200])
def test_a_work_beside_a_flood_is_claimed_with_the_first_poll(claimer, settings, wanted):
    enqueue_many([quick() for _ in range(2000)], queue="flood", priority=100)
    claimer.claim(wanted)
    enqueue(add(a=1, b=2), queue="rest")
    settings.AYEWORK = {"POLL_INTERVAL": 1e-9}  # the poll has passed
    claimed = [*claimer.claim(wanted), *claimer.claim(wanted)]
    assert "rest" in queues(claimed)


def test_a_type_by_units_has_a_share_beside_its_queue(claimer):
    enqueue_many([quick() for _ in range(50)], priority=5)
    for unit in "cba":
        enqueue(store(), unit=unit)
    claimed = claimer.claim(4)
    assert Counter(delivery.row.type for delivery in claimed) == {"worker.quick": 2, "out.store": 2}
    assert [delivery.row.unit for delivery in claimed if delivery.row.unit] == ["a", "b"]


def statements(act) -> int:
    """Run something; return how many statements it sends."""
    with CaptureQueriesContext(connection) as queries:
        act()
    return len(queries)


@pytest.mark.parametrize(
    "scope",
    [Scope(queues=("mine",)), Scope(queues=("mine",), types=("worker.quick",))],
    ids=["queues", "queues and types"],
)
def test_a_poll_sends_the_same_statements_beside_many_queues_of_others(scope):
    claimer = Claimer("w", scope)
    enqueue(quick(), queue="mine")
    claimer.poll()  # which reads the controls
    alone = statements(lambda: claimer.poll())
    for number in range(300):
        WorkFactory(queue=f"tenant {number}")
    assert statements(lambda: claimer.poll()) == alone
    assert queues(claimer.claim(9)) == ["mine"]


def test_a_poll_for_some_types_skips_queues_without_them_in_few_statements():
    for number in range(300):
        WorkFactory(queue=f"tenant {number}")
    enqueue(quick(), queue="tenant 77")
    claimer = Claimer("w", Scope(types=(quick.name,)))
    claimer.poll()
    assert statements(lambda: claimer.poll()) < 9
    assert queues(claimer.claim(9)) == ["tenant 77"]


def test_a_worker_of_all_queues_comes_to_each_of_many_in_turn(claimer):
    names = {f"tenant {number:03}" for number in range(250)}
    for queue in names:
        WorkFactory.create_batch(2, queue=queue, type=quick.name)
    seen = set()
    for looks in range(3):
        assert statements(lambda: claimer.poll()) < 9, looks
        found = {claim_group.queue for claim_group in claimer.claim_groups}
        assert len(found) >= 100
        seen |= found
    assert seen == names


def test_a_burst_ends_when_all_of_many_queues_are_empty():
    enqueue_many([quick() for _ in range(5)], queue="first")
    for number in range(250):
        enqueue(quick(), queue=f"tenant {number}")
    Worker(burst=True, concurrency=2).run()
    assert not Work.objects.exclude(status="success").exists()


def test_a_worker_whose_queues_are_paused_finds_the_one_that_is_not():
    for number in range(150):
        WorkFactory(queue=f"a{number}", type=quick.name)
        pause(queue=f"a{number}")
    enqueue(quick(), queue="b")
    Worker(burst=True).run()
    assert Work.objects.get(status="success").queue == "b"


@pytest.mark.parametrize(
    ("hook", "reports"),
    [(lambda state: state.queue == "mine", 0), (lambda state: 1 / 0, 2)],
    ids=["no", "error"],
)
def test_a_declined_work_goes_back_without_spending_an_attempt(claimer, settings, hook, reports):
    shown, reported = [], []
    settings.AYEWORK = {
        "ACCEPT": lambda state: shown.append(state) or hook(state),
        "ON_ERROR": lambda error, phase: reported.append((type(error), phase)),
    }
    mine, other = enqueue(quick(), queue="mine"), enqueue(quick(), queue="others")
    assert [delivery.row.id for delivery in claimer.claim(5)] == ([] if reports else [mine.id])
    state = other.state()
    assert (state.status, state.attempt, state.worker) == ("scheduled", 0, None)
    assert state.start_at > state.queued_at
    assert {(state.id, state.status, state.attempt) for state in shown} == {
        (mine.id, "running", 1),
        (other.id, "running", 1),
    }
    assert reported == [(ZeroDivisionError, "queue")] * reports


def test_works_behind_declined_ones_are_reached_at_once(settings):
    settings.AYEWORK = {"ACCEPT": lambda state: state.type == "shop.add", "POLL_INTERVAL": 3600}
    enqueue_many([quick() for _ in range(50)], priority=5)
    handle = enqueue(add(a=1, b=2))
    with running_worker(concurrency=2):
        assert handle.result(timeout=20) == 3
