"""Each series counts what it says."""

import random
from threading import Event

import pytest
from prometheus_client import CollectorRegistry, Histogram

from django_ayework import Defer, Retry, cancel, complete, dependency, enqueue, enqueue_many, retry, work
from django_ayework.contrib.prometheus import series
from django_ayework.models import Work
from django_ayework.signals import error_reported
from django_ayework.testing import drain, running_worker, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail
from tests.attempts.conftest import take_away
from tests.marks import each_database
from tests.processes import eventually
from tests.tasks.kit import add as task_add

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
ADD = {"type": "shop.add"}
FAIL = {"type": "shop.fail"}
HERE = {"queue": "default"}


def test_a_success_is_queued_started_and_succeeded_once(counted):
    enqueue(add(a=1, b=2), delay=3600)
    time_travel(3605)
    drain()
    for name in ("works_queued", "attempts_started", "works_succeeded"):
        assert counted(name, **ADD, **HERE) == 1
    assert counted("work_wait_seconds_count", **ADD) == 1
    assert counted("attempt_duration_seconds_count", **ADD, outcome="succeeded") == 1
    assert counted("work_duration_seconds_count", **ADD) == 1
    assert counted("attempts_failed", **ADD) == counted("works_dead", **ADD) == 0
    assert 5 <= counted("work_wait_seconds_sum", **ADD) < 60, "from the moment when it is due"
    assert 3605 <= counted("work_duration_seconds_sum", **ADD) < 3660
    assert 0 < counted("attempt_duration_seconds_sum", **ADD) < 5


@each_database
def test_each_failed_attempt_counts_the_last_one_makes_a_death_and_a_retry_by_hand_is_queued_again(counted):
    handle = enqueue(fail(), retry=Retry(attempts=2))
    for _ in range(2):
        drain(raises=False)
        time_travel(60)
    assert counted("attempts_started", **FAIL) == 2
    assert counted("attempts_failed", **FAIL, **HERE, outcome="failed") == 1
    assert counted("attempts_failed", **FAIL, **HERE, outcome="died") == 1
    assert counted("works_dead", **FAIL, **HERE, reason="exhausted") == counted("works_dead", **FAIL) == 1
    assert counted("attempt_duration_seconds_count", **FAIL, outcome="failed") == 2
    assert counted("work_duration_seconds_count", **FAIL) == 1
    assert counted("works_queued", **FAIL) == 1
    retry(handle.id)
    drain(raises=False)
    assert counted("works_queued", **FAIL) == 2


def test_a_deferral_is_no_failure(counted):
    @work(name="t.metrics.defers")
    def defers() -> None:
        raise Defer(delay=60)

    enqueue(defers())
    drain()
    assert counted("works_deferred", type="t.metrics.defers", **HERE) == 1
    assert counted("attempt_duration_seconds_count", type="t.metrics.defers", outcome="deferred") == 1
    assert counted("attempts_failed", type="t.metrics.defers") == 0


def test_works_that_end_without_an_attempt_have_no_run_time(counted):
    enqueue(add(a=1, b=2), expires=10)
    cancel(enqueue(add(a=1, b=2), delay=60).id)
    complete(enqueue(add(a=1, b=2), delay=60).id, result=5)
    time_travel(11)
    drain()
    assert counted("works_dead", **ADD, **HERE, reason="expired") == 1
    assert counted("works_cancelled", **ADD, **HERE) == 1
    assert counted("works_succeeded", **ADD) == 1
    assert counted("attempts_started", **ADD) == counted("attempt_duration_seconds_count", **ADD) == 0


@each_database
def test_blocked_works_and_gates(counted):
    first = enqueue(add(a=1, b=1))
    enqueue(add(a=2, b=2), blockers=[first])
    enqueue(dependency([first], [add(a=3, b=3)]))
    gate = {"type": "@work/dependency"}
    drain()
    assert counted("works_blocked", **ADD) == counted("works_blocked", **gate) == 1
    assert counted("works_unblocked", **ADD) == counted("works_unblocked") == 1
    assert counted("works_succeeded", **gate) == 1
    assert counted("attempts_started", **gate) == 0
    assert counted("works_queued", **ADD) == counted("works_succeeded", **ADD) == 3


def test_many_works_of_several_types_and_queues_in_one_transaction(counted):
    enqueue_many([add(a=1, b=1), fail(), add(a=2, b=2)])
    enqueue(add(a=3, b=3), queue="mail")
    drain(raises=False)
    assert counted("works_queued", **ADD, **HERE) == counted("works_succeeded", **ADD, **HERE) == 2
    assert counted("works_queued", **ADD, queue="mail") == counted("works_queued", **FAIL, **HERE) == 1


@pytest.mark.django_db(transaction=True)
def test_a_worker_counts_starts_that_no_commit_has_followed_yet(counted, quick_polls):
    may_end, long_type = Event(), {"type": "t.metrics.long"}

    @work(name="t.metrics.long")
    def long() -> None:
        may_end.wait(30)

    with running_worker(concurrency=1):
        handle = enqueue(long())
        try:
            eventually(lambda: counted("attempts_started", **long_type))
        finally:
            may_end.set()
        handle.result(timeout=20)
    assert counted("attempts_started", **long_type) == 1
    assert counted("workers_started") == counted("workers_stopped") == 1
    assert counted("attempts_failed", **long_type) == 0


@each_database
@pytest.mark.django_db(transaction=True)
def test_lost_attempts_and_outcomes_that_come_too_late(counted, quick_polls):
    @work(name="t.metrics.lost")
    def lost(id: str) -> None:
        take_away(id)

    @work(name="t.metrics.gone")
    def gone(id: str) -> None:
        cancel(id)

    with running_worker(concurrency=1):
        for kind in (lost, gone):
            enqueue(kind(id=kind.name), id=kind.name)
            eventually(lambda name=kind.name: counted("outcomes_refused", type=name))
    assert counted("attempts_failed", type="t.metrics.lost", **HERE, outcome="lost") == 1
    assert counted("outcomes_refused", type="t.metrics.lost", cause="moved") == 1
    assert counted("outcomes_refused", type="t.metrics.gone", cause="cancelled") == 1
    assert counted("outcomes_refused") == 2


def test_errors_count_by_their_phase_and_a_receiver_of_errors_that_raises_by_none(counted, settings):
    def broken(*args, **kwargs):
        raise LookupError("broken")

    settings.AYEWORK = {"ON_EVENT": broken}
    error_reported.connect(broken)
    try:
        enqueue(add(a=1, b=2))
        drain(limit=0)
    finally:
        error_reported.disconnect(broken)
    assert counted("errors", phase="hook") == counted("errors") == 1


def test_types_that_the_code_does_not_know_have_one_label_and_the_number_of_labels_is_bounded(
    counted, monkeypatch
):
    for number in range(3):
        cancel(WorkFactory(type=f"gone.{number}", queue=f"q{number}").id)
    drain()
    assert counted("works_cancelled", type="unknown", queue="other") == counted("works_cancelled") == 3
    monkeypatch.setattr(series, "MOST_PLACES", 2)
    monkeypatch.setattr(series, "_places", {})
    for number in range(4):
        enqueue(add(a=1, b=2), queue=f"tenant-{number}")
    drain()
    assert counted("works_queued", **ADD, queue="tenant-1") == 1
    assert counted("works_queued", **ADD, queue="other") == 2


def test_works_that_are_tasks_of_django_count_as_all_others(counted, settings):
    settings.TASKS = {"default": {"BACKEND": "django_ayework.contrib.tasks.AyeworkBackend", "QUEUES": []}}
    task_add.enqueue(1, 2)
    [type] = Work.objects.values_list("type", flat=True)
    drain()
    assert counted("works_queued", type=type) == counted("works_succeeded", type=type) == 1
    assert counted("attempt_duration_seconds_count", type=type) == 1


def test_many_values_fill_the_buckets_that_they_fill_one_by_one():
    registry, name = CollectorRegistry(), "t_seconds"
    at_once = series.BatchHistogram("at_once", name, registry=registry, buckets=series.BUCKETS)
    one_by_one = Histogram("one_by_one", name, registry=registry, buckets=series.BUCKETS)
    values = [*series.BUCKETS, *(random.Random(7).expovariate(1) for _ in range(200)), 0.0, 1e9]
    at_once.observe_all(values)
    at_once.observe_all([])
    for each in values:
        one_by_one.observe(each)
    found = [
        {
            sample.name.removeprefix(name) + str(sample.labels): sample.value
            for family in histogram.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        for histogram, name in ((at_once, "at_once"), (one_by_one, "one_by_one"))
    ]
    assert found[0] == pytest.approx(found[1])
    at_once.observe_all([-3.0])
    assert registry.get_sample_value("at_once_sum") == pytest.approx(sum(values))
    assert registry.get_sample_value("at_once_bucket", {"le": "0.005"}) == 3
