"""Queues share a worker, and so do the labels of works within a type, a queue and a priority."""

import threading
from collections import Counter
from datetime import timedelta
from itertools import count

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Retry, dependency, doers, enqueue, enqueue_many, get_handle, pause, retry, work
from django_ayework.errors import InvalidOption
from django_ayework.models import Work
from django_ayework.rules.controls import Scope
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker.worker import Worker
from tests.app.works import add
from tests.claiming import claimer_of
from tests.outputs.works import store
from tests.worker.works import quick


@work(name="t.labels.noted", options=lambda label: {"fairness": label or None})
def noted(label: str) -> None: ...


@work(name="t.labels.failing", retry=Retry(attempts=2, base=60, jitter=0))
def failing() -> None:
    raise ValueError


usually = work(name="t.labels.usually", fairness="the others")(lambda: None)
named = work(name="t.labels.named")(lambda text: None)


def queues(deliveries) -> list[str]:
    return list(dict.fromkeys(delivery.row.queue for delivery in deliveries))


def by_queue(deliveries) -> Counter[str]:
    return Counter(delivery.row.queue for delivery in deliveries)


def labels(deliveries) -> list[str]:
    return [delivery.row.fairness for delivery in deliveries]


def statements(act) -> list[str]:
    """Run something; return the statements that it sends."""
    with CaptureQueriesContext(connection) as queries:
        act()
    return [query["sql"] for query in queries]


def flood(number: int, label: str = "", **options) -> None:
    enqueue_many([quick() for _ in range(number)], fairness=label or None, **options)


def one_by_one(number: int, label: str) -> None:
    for _ in range(number):
        enqueue(quick(), fairness=label)


def test_each_queue_gets_its_share_another_goes_first_each_time_and_what_is_not_used_is_the_others(claimer):
    for queue in ("a", "b"):
        flood(30, queue=queue)
    claims = [claimer.claim(9) for _ in range(4)]
    assert [queues(claim) for claim in claims] == [["b", "a"], ["a", "b"], ["b", "a"], ["a", "b"]]
    assert [sorted(by_queue(claim).values()) for claim in claims] == [[4, 5]] * 4
    Work.objects.all().delete()
    flood(30, queue="a")
    enqueue(quick(), queue="b")
    assert [by_queue(claimer.claim(10)) for _ in range(2)] == [{"a": 9, "b": 1}, {"a": 10}]


@pytest.mark.parametrize("wanted", [1, 200])
def test_a_work_beside_a_flood_is_claimed_with_the_first_poll(claimer, settings, wanted):
    flood(600, queue="flood", priority=100)
    claimer.claim(wanted)
    enqueue(add(a=1, b=2), queue="rest")
    settings.AYEWORK = {"POLL_INTERVAL": 1e-9}  # the poll has passed
    assert "rest" in queues([*claimer.claim(wanted), *claimer.claim(wanted)])


def test_a_type_by_units_has_a_share_beside_its_queue(claimer):
    flood(50, priority=5)
    for unit in "cba":
        enqueue(store(), unit=unit)
    claimed = claimer.claim(4)
    assert Counter(delivery.row.type for delivery in claimed) == {"worker.quick": 2, "out.store": 2}
    assert [delivery.row.unit for delivery in claimed if delivery.row.unit] == ["a", "b"]


@pytest.mark.parametrize(
    "scope",
    [Scope(queues=("mine",)), Scope(queues=("mine",), types=("worker.quick",))],
    ids=["queues", "queues and types"],
)
def test_a_poll_sends_the_same_statements_beside_many_queues_of_others(scope):
    claimer = claimer_of(scope)
    enqueue(quick(), queue="mine")
    claimer.poll()  # which reads the controls
    alone = len(statements(claimer.poll))
    for number in range(300):
        WorkFactory(queue=f"tenant {number}")
    assert len(statements(claimer.poll)) == alone
    assert queues(claimer.claim(9)) == ["mine"]


def test_a_poll_for_some_types_skips_queues_without_them_in_few_statements():
    for number in range(300):
        WorkFactory(queue=f"tenant {number}")
    enqueue(quick(), queue="tenant 77")
    claimer = claimer_of(Scope(types=(quick.name,)))
    claimer.poll()
    assert len(statements(claimer.poll)) < 9
    assert queues(claimer.claim(9)) == ["tenant 77"]


def test_a_worker_of_all_queues_comes_to_each_of_many_in_turn_and_a_burst_empties_them(claimer):
    names = {f"tenant {number:03}" for number in range(250)}
    for queue in names:
        flood(2, queue=queue)
    seen = set()
    for looks in range(3):
        assert len(statements(claimer.poll)) < 9, looks
        found = {claim_group.queue for claim_group in claimer.claim_groups}
        assert len(found) >= 100
        seen |= found
    assert seen == names
    Worker(burst=True, concurrency=2).run()
    assert not Work.objects.exclude(status="success").exists()


def test_a_worker_whose_queues_are_paused_finds_the_one_that_is_not():
    for number in range(110):
        WorkFactory(queue=f"a{number}", type=quick.name)
        pause(queue=f"a{number}")
    enqueue(quick(), queue="b")
    Worker(burst=True).run()
    assert Work.objects.get(status="success").queue == "b"


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize(
    ("hook", "reports"),
    [(lambda state: state.queue == "mine", 0), (lambda state: 1 / 0, 1)],
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
    both = {(handle.id, "running", 1) for handle in (mine, other)}
    assert {(state.id, state.status, state.attempt) for state in shown} == both
    assert reported == [(ZeroDivisionError, "queue")] * reports


def test_works_behind_declined_ones_are_reached_at_once(settings):
    settings.AYEWORK = {"ACCEPT": lambda state: state.type == "shop.add", "POLL_INTERVAL": 3600}
    flood(50, priority=5)
    handle = enqueue(add(a=1, b=2))
    with running_worker(concurrency=2):
        assert handle.result(timeout=20) == 3


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
    another = claimer_of(worker="another")
    assert labels([*claimer.claim(6), *another.claim(6), *claimer.claim(3)]) == ["a", "b", "c"] * 5
    enqueue_many([noted(label=label) for label in "aaaabbbcc"], queue="other")
    assert labels(claimer_of(Scope(queues=("other",))).claim(20)) == [*"abcabcaba"]


def test_a_flood_beside_many_labels_runs_one_work_in_each_round():
    flood(300, "flood")
    enqueue_many([noted(label="other")])  # of another type, which has its own turns
    many = [f"tenant {number}" for number in range(100)]
    for label in many:
        enqueue(quick(), fairness=label)
    claimer = claimer_of(Scope(types=(quick.name,)))
    first = labels(claimer.claim(50)) + labels(claimer.claim(51))
    assert Counter(first) == Counter([*many, "flood"])


def test_turns_are_within_a_priority(claimer):
    for number, label, priority in ((5, "a", 0), (3, "a", 1), (3, "b", 1), (2, "b", 0)):
        flood(number, label, priority=priority)
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


def blocked(time_travel) -> None:
    first = enqueue(quick(), queue="before")
    for _ in range(6):
        enqueue(noted(label="a"), blockers=[first])
    Worker(burst=True, queues=("before",)).run()


def released(time_travel) -> None:
    first = enqueue(quick(), queue="before")
    enqueue(dependency(on=[first], queue=[noted(label="a") for _ in range(6)]))
    Worker(burst=True, queues=("before",)).run()


def retried(time_travel) -> None:
    dead = [enqueue(failing(), fairness="a", retry=Retry(attempts=1)) for _ in range(6)]
    Worker(burst=True).run()
    for handle in dead:
        retry(handle.id)


def failed(time_travel) -> None:
    enqueue_many([failing() for _ in range(6)], fairness="a")
    Worker(burst=True).run()
    time_travel(61)


@pytest.mark.parametrize("make_due", [blocked, released, retried, failed], ids=lambda make: make.__name__)
def test_works_that_become_due_later_take_turns(claimer, time_travel, make_due):
    make_due(time_travel)
    fails = make_due in (retried, failed)
    enqueue_many([failing() if fails else noted(label="b") for _ in range(6)], fairness="b")
    claimer.poll()
    assert Counter(labels(claimer.claim(6))) == {"a": 3, "b": 3}


@pytest.mark.vendors("sqlite")
def test_a_label_takes_no_further_statement():
    enqueue(quick(), fairness="a")
    for request, options in ((quick(), {"fairness": "a"}), (quick(), {"fairness": "b"}), (usually(), {})):
        [sql] = statements(lambda: enqueue(request, **options))  # noqa: B023
        assert sql.startswith("INSERT")


def test_texts_with_nul_keep_their_turns():
    flood(3, "b")
    enqueue_many([noted(label="b") for _ in range(3)])
    enqueue_many([named(text=text) for text in ("\x00", "x", "y")], fairness="a")
    enqueue(named(text="z"), fairness="b")
    found = claimer_of(Scope(types=(named.name,))).claim(4)
    assert labels(found) == ["a", "b", "a", "a"]
    assert sorted(Work.objects.get(id=d.row.id).input for d in found)[0].count("\\u0000") == 1


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


@pytest.fixture
def declare():
    """Declare a type of its own."""
    names = count()
    return lambda **options: work(name=f"t.labels.unit{next(names)}", **options)(lambda: None)


@pytest.mark.vendors("sqlite")
def test_a_type_that_is_claimed_by_unit_refuses_a_label(declare):
    by_unit = declare(order="unit")
    with pytest.raises(InvalidOption, match=r"expected no fairness= for 't.labels.unit0', got: 'a'.*by unit"):
        enqueue(by_unit(), fairness="a", unit="u")
    with pytest.raises(InvalidOption, match="go by time"):
        enqueue_many([by_unit()], fairness="a")
    assert not Work.objects.exists()


def test_a_type_that_others_chain_to_may_go_by_time(declare, claimer):
    target = declare(order="time")
    declare(then=target.name)
    for label in "aab":
        enqueue(target(), fairness=label, unit=f"{label}{Work.objects.count()}")
    assert labels(claimer.claim(3)) == ["a", "b", "a"]


def test_a_doer_goes_by_labels_and_the_claim_by_units(declare):
    by_unit = declare(order="unit", doer=doers.balanced(9))
    for unit in "cab":
        enqueue(by_unit(), fairness=unit, unit=unit)
    assert list(Work.objects.order_by("sort_key").values_list("sort_key", flat=True)) == [*"abc"]


@pytest.mark.races
@pytest.mark.vendors("postgresql", "mysql")
def test_those_who_queue_works_of_a_label_do_not_wait_for_each_other():
    done = threading.Event()

    def queue_both_ways() -> None:
        enqueue(quick(), fairness="a")
        flood(20, "a")

    def queue_another() -> None:
        queue_both_ways()
        done.set()
        connection.close()

    with transaction.atomic():
        queue_both_ways()
        threading.Thread(target=queue_another, daemon=True).start()
        assert done.wait(20)
