"""Works with a fairness label take turns, label by label, within a type, a queue and a priority."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from itertools import count

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Retry, dependency, doers, enqueue, enqueue_many, get_handle, retry, work
from django_ayework.errors import InvalidOption
from django_ayework.models import Work
from django_ayework.rules.controls import Scope
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.in_flight import Delivery
from django_ayework.worker.worker import Worker
from tests.worker.works import quick


@work(name="t.labels.noted", options=lambda label: {"fairness": label or None})
def noted(label: str) -> None: ...


@work(name="t.labels.failing", retry=Retry(attempts=2, base=60, jitter=0))
def failing() -> None:
    raise ValueError


@work(name="t.labels.usually", fairness="the others")
def usually() -> None: ...


def labels(deliveries: list[Delivery]) -> list[str]:
    return [delivery.row.fairness for delivery in deliveries]


def flood(number: int, label: str, **options) -> None:
    enqueue_many([quick() for _ in range(number)], fairness=label, **options)


def one_by_one(number: int, label: str, **options) -> None:
    for _ in range(number):
        enqueue(quick(), fairness=label, **options)


AT_ONCE_OR_NOT = pytest.mark.parametrize("queue_them", [flood, one_by_one], ids=["at once", "one by one"])


@AT_ONCE_OR_NOT
def test_a_single_work_of_another_label_is_next_behind_a_flood(claimer, queue_them):
    queue_them(300, "a")
    assert labels(claimer.claim(3)) == ["a", "a", "a"]
    enqueue(quick(), fairness="b")
    assert labels(claimer.claim(3)) == ["a", "b", "a"]
    assert set(labels(claimer.claim(400))) == {"a"}


@AT_ONCE_OR_NOT
def test_labels_are_served_in_turn(claimer, queue_them):
    for label in "abc":
        queue_them(20, label)
    assert labels(claimer.claim(15)) == ["a", "b", "c"] * 5
    enqueue_many([noted(label=label) for label in [*"aaaa", *"bbb", *"cc"]], queue="other")
    assert labels(Claimer("w", Scope(queues=("other",))).claim(20)) == [*"abc", *"abc", *"ab", "a"]


def test_a_flood_beside_hundreds_of_labels_runs_one_work_in_each_round():
    flood(900, "flood")
    enqueue_many([noted(label="other")])  # of another type, which has its own turns
    many = [f"tenant {number}" for number in range(300)]
    for label in many:
        enqueue(quick(), fairness=label)
    claimer = Claimer("w", Scope(types=(quick.name,)))
    first = labels(claimer.claim(150)) + labels(claimer.claim(151))
    assert Counter(first) == Counter([*many, "flood"])


def test_a_label_that_queues_again_and_again_gets_every_other_turn(claimer):
    flood(50, "a")
    claimed = []
    for _ in range(10):
        enqueue(quick(), fairness="b")
        claimed += labels(claimer.claim(2))
    assert Counter(claimed) == {"a": 10, "b": 10}


def test_two_workers_serve_labels_in_turn():
    for label in "abcd":
        flood(40, label)
    workers = [Claimer("one", Scope()), Claimer("two", Scope())]
    claimed = [label for _ in range(6) for worker in workers for label in labels(worker.claim(6))]
    assert claimed == [*"abcd"] * 18


def test_turns_are_within_a_priority(claimer):
    flood(5, "a")
    flood(3, "a", priority=1)
    flood(3, "b", priority=1)
    flood(2, "b")
    claimed = [(d.row.priority, d.row.fairness) for d in claimer.claim(20)]
    assert claimed == [(1, label) for label in "ababab"] + [(0, label) for label in "ababaaa"]


def test_works_without_a_label_go_first_and_by_age(claimer):
    flood(5, "a")
    first, second = enqueue(quick()), enqueue(quick())
    assert [d.row.id for d in claimer.claim(2)] == [first.id, second.id]
    assert not Work.objects.filter(fairness="").exclude(sort_key="").exists()


def test_a_type_with_a_label_of_its_own_has_turns_for_works_without_another(claimer):
    for _ in range(4):
        enqueue(usually())
    enqueue(usually(), fairness="a")
    assert labels(claimer.claim(3)) == ["the others", "a", "the others"]


@pytest.mark.parametrize("number", [1, 40])
def test_scheduled_works_take_turns_from_when_they_are_due(claimer, time_travel, number):
    flood(30, "a", delay=60)
    for _ in range(3):
        enqueue(quick(), fairness="c", delay=timedelta(seconds=60))
    flood(number, "b")
    time_travel(61)
    claimer.poll()
    assert sorted(labels(claimer.claim(3))) == ["a", "b", "c"]
    assert "b" not in labels(claimer.claim(2)) or number > 1


def test_works_that_failed_take_turns_anew(claimer, time_travel):
    enqueue_many([failing() for _ in range(20)], fairness="a")
    Worker(burst=True).run()
    for _ in range(20):
        enqueue(failing(), fairness="b")
    time_travel(61)
    claimer.poll()
    assert Counter(labels(claimer.claim(10))) == {"a": 5, "b": 5}


def blocked() -> None:
    first = enqueue(quick(), queue="before")
    for _ in range(6):
        enqueue(noted(label="a"), blockers=[first])
    Worker(burst=True, queues=("before",)).run()


def released() -> None:
    first = enqueue(quick(), queue="before")
    enqueue(dependency(on=[first], queue=[noted(label="a") for _ in range(6)]))
    Worker(burst=True, queues=("before",)).run()


def retried() -> None:
    dead = [enqueue(failing(), fairness="a", retry=Retry(attempts=1)) for _ in range(6)]
    Worker(burst=True).run()
    for handle in dead:
        retry(handle.id)


@pytest.mark.parametrize("make_due", [blocked, released, retried], ids=lambda make_due: make_due.__name__)
def test_works_that_become_due_later_take_turns(claimer, make_due):
    make_due()
    enqueue_many([failing() if make_due is retried else noted(label="b") for _ in range(6)], fairness="b")
    assert Counter(labels(claimer.claim(6))) == {"a": 3, "b": 3}


def test_a_label_takes_no_further_statement():
    enqueue(quick(), fairness="a")
    for act in (
        lambda: enqueue(quick(), fairness="a"),
        lambda: enqueue(quick(), fairness="b"),
        lambda: enqueue(usually()),
    ):
        with CaptureQueriesContext(connection) as queries:
            act()
        assert len(queries) == 1
        assert queries[0]["sql"].startswith("INSERT")


def test_texts_with_nul_keep_their_turns(claimer):
    flood(3, "b")
    enqueue_many([noted(label="b") for _ in range(3)])
    enqueue_many([named(text=text) for text in ("\x00", "x", "y")], fairness="a")
    enqueue(named(text="z"), fairness="b")
    found = Claimer("w", Scope(types=(named.name,))).claim(4)
    assert labels(found) == ["a", "b", "a", "a"]
    assert sorted(Work.objects.get(id=d.row.id).input for d in found)[0].count("\\u0000") == 1


@work(name="t.labels.named")
def named(text: str) -> None: ...


def test_an_id_that_is_taken_leaves_the_others_their_turns(claimer):
    flood(2, "a")
    there = enqueue(quick(), id="there")
    requests = [quick() for _ in range(3)]
    with transaction.atomic():
        enqueue_many(requests, fairness="b")
        again = enqueue_many(requests, fairness="b")
    assert all(handle.deduplicated for handle in again)
    assert get_handle(there.id).state().fairness is None
    assert labels(claimer.claim(9)) == ["", *"abab", "b"]


class TestByUnit:
    """Types that are claimed by unit."""

    @pytest.fixture
    def declare(self):
        names = count()
        return lambda **options: work(name=f"t.labels.unit{next(names)}", **options)(lambda: None)

    def test_they_refuse_a_label(self, declare):
        by_unit = declare(order="unit")
        with pytest.raises(
            InvalidOption, match=r"expected no fairness= for 't.labels.unit0', got: 'a'.*by unit"
        ):
            enqueue(by_unit(), fairness="a", unit="u")
        with pytest.raises(InvalidOption, match="go by time"):
            enqueue_many([by_unit()], fairness="a")
        assert not Work.objects.exists()

    def test_one_that_others_chain_to_may_go_by_time(self, declare, claimer):
        target = declare(order="time")
        declare(then=target.name)
        for label in "aab":
            enqueue(target(), fairness=label, unit=f"{label}{Work.objects.count()}")
        assert labels(claimer.claim(3)) == ["a", "b", "a"]

    def test_a_doer_goes_by_labels_and_the_claim_by_units(self, declare, claimer):
        by_unit = declare(order="unit", doer=doers.balanced(9))
        for unit in "cab":
            enqueue(by_unit(), fairness=unit, unit=unit)
        assert list(Work.objects.order_by("sort_key").values_list("sort_key", flat=True)) == [*"abc"]


@pytest.mark.races
@pytest.mark.vendors("postgresql", "mysql")
def test_those_who_queue_works_of_a_label_do_not_wait_for_each_other():
    done = threading.Event()

    def queue_another() -> None:
        enqueue(quick(), fairness="a")
        enqueue_many([quick() for _ in range(20)], fairness="a")
        done.set()
        connection.close()

    with transaction.atomic():
        enqueue(quick(), fairness="a")
        enqueue_many([quick() for _ in range(20)], fairness="a")
        threading.Thread(target=queue_another, daemon=True).start()
        assert done.wait(20)
