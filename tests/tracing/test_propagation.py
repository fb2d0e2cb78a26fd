"""Headers travel with works, and the blocks of propagators surround attempts."""

from contextlib import contextmanager

import pytest

from django_ayework import enqueue, get_handle, propagation, retry
from django_ayework.flow import enqueue as queueing
from django_ayework.flow.payloads import decode_options, headers_of
from django_ayework.models import Work
from django_ayework.propagation import Propagator
from django_ayework.testing import drain, perform, running_worker
from django_ayework.worker import skip_queue
from tests.marks import each_database
from tests.processes import eventually
from tests.tracing import works

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


class Tag(Propagator):
    """Stores a text that counts up, and lets handlers see that of their work."""

    def __init__(self):
        self.queueings, self.attempts, self.waited_for = [], [], []

    def inject(self, queueing):
        self.queueings.append(queueing)
        return {"tag": f"tag {len(self.queueings)}"}

    def attach(self, attempt):
        self.attempts.append(attempt)
        self.waited_for.append(list(attempt.waited_for(2)))
        return self.block(attempt)

    @contextmanager
    def block(self, attempt):
        token = works.current.set(attempt.headers.get("tag", "no tag"))
        try:
            yield
        finally:
            works.current.reset(token)


@pytest.fixture(autouse=True)
def seen():
    works.seen.clear()
    return works.seen


@pytest.fixture
def tag(registered):
    return registered(Tag())


def test_the_handler_runs_in_the_block_in_every_mode(tag, seen):
    for request in (works.plain(), works.atomic(), works.staged(), works.asynchronous()):
        enqueue(request)
    drain()
    assert seen == [
        ("plain", "tag 1"),
        ("atomic", "tag 2"),
        ("staged, preparing", "tag 3"),
        ("staged, completing", "tag 3"),
        ("async", "tag 4"),
        ("async, in a thread", "tag 4"),
    ]
    assert perform(works.plain()).error is None
    assert seen[-1] == ("plain", "tag 5")


@each_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_polls")
def test_a_worker_runs_handlers_in_the_block_and_nothing_is_left_of_it(tag, seen):
    with running_worker(concurrency=2):
        blocker = enqueue(works.plain())
        enqueue(works.asynchronous(), blockers=[blocker.id]).result(20)
        enqueue(works.atomic()).result(20)
        propagation.unregister(tag)
        enqueue(works.plain(name="without")).result(20)
        enqueue(works.asynchronous()).result(20)
    asynchronous = ("async", "async, in a thread")
    assert seen == [
        ("plain", "tag 1"),
        *((name, "tag 2") for name in asynchronous),
        ("atomic", "tag 3"),
        ("without", "nothing"),
        *((name, "nothing") for name in asynchronous),
    ]
    assert tag.waited_for == [[], [{"tag": "tag 1"}], []]


def test_an_outcome_queues_within_the_block_and_says_whose_it_is(tag, seen):
    child, step, source = enqueue(works.parent()), enqueue(works.step()), enqueue(works.source())
    drain()
    found = [(each.type, each.number, each.parent, each.continues) for each in tag.queueings[3:]]
    assert found == [
        ("tracing.plain", 1, child.id, False),
        ("tracing.plain", 1, step.id, True),
        ("tracing.unit", 2, source.id, False),
    ]
    assert dict(seen) == {"child": "tag 4", "next step": "tag 5", "unit": "tag 6"}


def test_headers_stay_when_a_work_is_retried_or_run_again(tag):
    failed, succeeded = enqueue(works.aborting()), enqueue(works.plain())
    drain(raises=False)
    retry(failed.id)
    again = retry(succeeded.id, again=True)
    drain(raises=False)
    assert [each.works[0].headers["tag"] for each in tag.attempts] == ["tag 1", "tag 2", "tag 1", "tag 2"]
    assert get_handle(again.id).state().parent == succeeded.id
    assert len(tag.queueings) == 2


def test_the_end_of_the_block_knows_how_the_attempt_ended_and_the_input_as_people_are_shown_it(tag):
    for request in (works.plain(), works.failing(pin="1234", order=7), works.aborting(), works.deferring()):
        enqueue(request)
    drain(raises=False)
    ends = [
        (attempt.type, attempt.works[0].attempt, each.outcome, each.reason, type(each.error).__name__)
        for attempt in tag.attempts
        for each in attempt.failures
    ]
    assert sorted(ends) == [
        ("tracing.aborting", 1, "died", "aborted", "Abort"),
        ("tracing.deferring", 1, "deferred", "", "Defer"),
        ("tracing.failing", 1, "failed", "", "ValueError"),
        ("tracing.failing", 2, "died", "exhausted", "ValueError"),
    ]
    [shown, *_] = [each.shown_input() for each in tag.attempts if each.type == "tracing.failing"]
    assert shown == {"pin": "••••", "order": 7}
    assert perform(works.failing()).error is not None
    assert tag.attempts[-1].failures[0].outcome is None


class Broken(Propagator):
    def __init__(self, place):
        self.place = place

    def inject(self, queueing):
        self.pass_by("inject")
        return {"n": 7} if self.place == "values" else {}

    def attach(self, attempt):
        self.pass_by("attach")
        return self.block()

    @contextmanager
    def block(self):
        self.pass_by("enter")
        yield
        self.pass_by("leave")

    def pass_by(self, place):
        if self.place == place:
            raise RuntimeError(place)


@pytest.mark.parametrize("place", ["inject", "values", "attach", "enter", "leave"])
def test_a_propagator_that_raises_is_reported_and_disturbs_nothing(place, registered, reported, seen):
    registered(Broken(place))
    registered(Tag())
    enqueue(works.plain())
    assert drain().succeeded == 1
    assert seen == [("plain", "tag 1")]
    [(error, phase)] = reported
    expected = "expected inject() to return a mapping of texts" if place == "values" else place
    assert (error.startswith(expected), phase) == (True, "hook")


def test_what_is_no_propagator_is_refused(registered):
    with pytest.raises(TypeError, match=r"expected a propagator, got: <class .*Tag'>; make an instance"):
        registered(Tag)
    assert registered(tag := Tag()) is registered(tag)
    assert propagation.propagators.count(tag) == 1


def test_headers_are_no_part_of_the_options(tag):
    enqueue(works.failing(), timeout=5)
    with_headers = Work.objects.get().options
    propagation.unregister(tag)
    Work.objects.all().delete()
    enqueue(works.failing(), timeout=5)
    without = Work.objects.get().options
    assert with_headers == without[:-1] + ',"headers":{"tag":"tag 1"}}'
    assert decode_options(with_headers) == decode_options(without)
    assert headers_of(without) == {}
    assert headers_of(with_headers[:-3]) == {}


@pytest.mark.django_db(transaction=True)
def test_a_work_that_skips_the_queue_runs_in_the_block(tag, seen, monkeypatch):
    intake = skip_queue.Intake()
    monkeypatch.setattr(skip_queue, "intake", intake)
    monkeypatch.setattr(queueing.providers, "held_back", False)
    enqueue(works.plain(), skip_queue=True).result(20)
    eventually(lambda: seen == [("plain", "tag 1")])
    assert intake.stop(), "one of its threads is left"
