"""The first attempt is made by the process that enqueued the work, right after the commit."""

import re
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_ayework import Dedup, aenqueue, dependency, doers, enqueue, enqueue_many, schedule, work
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.models import Attempt, Work
from django_ayework.store.rows import find_row
from django_ayework.testing import now, perform, running_worker, tick
from tests.batches.works import three
from tests.direct.works import flaky, quick, quick_async
from tests.marks import on_sqlite
from tests.processes import eventually
from tests.worker import works

WAIT = 20


def at_once(handler, **options):
    """Declare a type that skips the queue."""
    return work(name="direct.case", skip_queue=True, **options)(handler)


def states() -> list[str]:
    return sorted(Work.objects.values_list("status", flat=True))


def test_a_type_that_skips_the_queue_needs_no_worker():
    handle = enqueue(quick(number=1))
    assert handle.result(WAIT).startswith("ayework-slot")
    state = handle.state()
    assert (state.status, state.attempt, state.completed_by[:7]) == ("success", 1, "direct-")
    assert (state.worker, Work.objects.get().leased_until) == (None, None)
    assert async_to_sync(aenqueue)(quick()).result(WAIT).startswith("ayework-slot")
    assert enqueue(quick_async()).result(WAIT) == ["ayework-async", "running"]
    assert enqueue(at_once(lambda ctx: ctx.attempt, atomic=True)()).result(WAIT) == 1


def test_the_option_or_the_input_decides_whether_a_work_skips_the_queue():
    options = {"options": lambda urgent: {"skip_queue": urgent}}
    chosen = work(name="direct.chosen", **options)(lambda urgent: urgent)
    waiting = [enqueue(quick(), skip_queue=False), enqueue(works.quick()), enqueue(chosen(urgent=False))]
    assert enqueue(works.quick(number=5), skip_queue=True).result(WAIT) == 5
    assert enqueue(chosen(urgent=True)).result(WAIT) is True
    assert enqueue(chosen(urgent=False), skip_queue=True).result(WAIT) is False
    assert {handle.state().status for handle in waiting} == {"pending"}


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError",
        *(pytest.param(name, marks=on_sqlite) for name in ("KeyboardInterrupt", "GeneratorExit")),
    ],
)
def test_a_failed_attempt_counts_and_the_next_one_is_a_workers(stage, configure, error):
    configure()
    handle = enqueue(flaky(error=error))
    eventually(lambda: handle.state().attempt == 1 and handle.state().status != "running")
    assert handle.state().last_error == f"{error}: attempt 1"
    with running_worker():
        assert handle.result(WAIT) == 2
    assert stage.started == [1, 2]
    assert not handle.state().completed_by.startswith("direct-")
    [failed] = Attempt.objects.all()
    assert (failed.number, failed.outcome, failed.worker[:7]) == (1, "failed", "direct-")


def test_many_at_once():
    tally = at_once(lambda ctx, number: ctx.result(number, append=lambda total: (total or 0) + number))
    handles = enqueue_many([tally(number=number) for number in (1, 2, 3)], together=True)
    assert handles[0].group(WAIT) == 6
    assert set(Work.objects.values_list("status", "attempt", "delivery")) == {("success", 1, 1)}


def test_nothing_starts_before_the_commit(stage, intake):
    with transaction.atomic():
        handle = enqueue(quick(number=1))
        enqueue(works.quick(number=2), skip_queue=True, on_commit=True)
        assert enqueue(works.quick(number=3), skip_queue=True, dedup=Dedup("three")).state()
        assert not stage.started and intake.is_idle
    assert handle.result(WAIT)
    eventually(lambda: Work.objects.filter(status="success").count() == 3)
    assert sorted(stage.started) == [1, 2, 3]


def test_a_rollback_starts_nothing(stage, intake):
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue(quick(number=1))
            enqueue(quick(number=2), on_commit=True)
            enqueue_many([quick(number=3)])
            _ = 1 / 0
        kept = enqueue(quick(number=4))
    assert kept.result(WAIT)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue(quick(number=5))
        _ = 1 / 0
    assert intake.stop()
    assert stage.started == [4]
    assert Work.objects.count() == 1


def test_a_work_that_was_there_is_not_started(stage):
    enqueue(works.quick(number=1), dedup=Dedup("one"))
    again = enqueue(works.quick(number=1), dedup=Dedup("one"), skip_queue=True)
    request = works.quick(number=2)
    enqueue(request)
    assert again.deduplicated and enqueue(request, skip_queue=True).deduplicated
    [twice, new] = enqueue_many([request, works.quick(number=3)], skip_queue=True)
    assert twice.deduplicated and new.result(WAIT) == 3
    assert enqueue(quick(number=4)).result(WAIT)
    assert stage.started == [3, 4]


def test_a_work_that_comes_back_is_not_taken_twice_by_its_process(stage, intake):
    """The claim takes works that were never claimed; a second offer of the same work changes nothing."""
    handle = enqueue(flaky())
    eventually(lambda: Work.objects.filter(attempt=1).exclude(status="running").exists())
    Work.objects.update(status="pending")
    intake.offer([find_row(handle.id)])
    assert intake.stop()
    assert stage.started == [1]


CONTINUED = ["pending", "success"]
QUEUED = ["blocked", "pending", "pending", "success"]


@pytest.mark.parametrize(
    ("handler", "left"),
    [
        (lambda ctx: ctx.continue_with(quick(number=1)), CONTINUED),
        (lambda ctx: ctx.queue([quick(number=1), quick(number=2)]).next(quick(number=3)), QUEUED),
    ],
    ids=["a chain", "children and what follows them"],
)
def test_what_it_leads_to_goes_through_the_queue(configure, stage, handler, left):
    configure()
    handle = enqueue(at_once(handler)())
    eventually(lambda: handle.state().status == "success")
    assert states() == left
    with running_worker():
        handle.chain(WAIT)
        handle.group(WAIT)
    assert set(states()) == {"success"}
    assert stage.started[2:] == ([3] if left is QUEUED else [])


def test_the_work_of_a_firing_goes_through_the_queue(intake):
    declared = schedule(name="direct.now", next=lambda moment: moment + timedelta(microseconds=1), run=quick)
    try:
        assert tick() == 1
    finally:
        declared.cancel()
    assert (states(), intake.is_idle) == (["pending"], True)


def test_a_gate_that_waits_for_it_opens(configure):
    configure()
    request = quick(number=1)
    gate = enqueue(dependency([request], [works.quick(number=2)]))
    enqueue(request)
    eventually(lambda: gate.state().status == "success")
    with running_worker():
        gate.group(WAIT)


# --- what cannot skip the queue -------------------------------------------------------------------------


@on_sqlite
@pytest.mark.parametrize("name", ["delay", "run_at", "blockers"])
def test_it_starts_at_once_or_not_at_all(name):
    value = {"delay": 5, "run_at": now() + timedelta(hours=1), "blockers": ["some-chain"]}[name]
    message = f"expected no {name}= for a work that skips the queue, as that starts at once, got: {name}="
    for act in (
        lambda: enqueue(quick(), **{name: value}),
        lambda: enqueue(works.quick(), skip_queue=True, **{name: value}),
        lambda: enqueue_many([quick()], **{name: value}),
    ):
        with pytest.raises(InvalidOption, match=re.escape(message)) as refusal:
            act()
        assert "enqueue the work with skip_queue=False" in str(refusal.value)
    assert not Work.objects.exists()


def test_what_starts_later_goes_through_the_queue_when_told_so():
    assert enqueue(quick(), delay=5, skip_queue=False).state().status == "scheduled"
    assert enqueue(quick(), delay=0).result(20), "a delay of nothing is none"


ONE_BY_ONE = "expected skip_queue=True for works that are run one by one"


@on_sqlite
@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: enqueue(three(1), skip_queue=True), InvalidOption, ONE_BY_ONE),
        (lambda: enqueue(dependency(["a"], [quick()]), skip_queue=True), InvalidOption, ONE_BY_ONE),
        (
            lambda: enqueue(at_once(lambda: None, doer=doers.balanced(1))(), skip_queue=True),
            InvalidOption, "expected skip_queue=True for works without a doer= of their own",
        ),
        (
            lambda: enqueue(quick(), skip_queue=1),
            InvalidOption, "expected skip_queue to be True or False, got: 1",
        ),
        (
            lambda: work(name="direct.case", skip_queue="yes")(lambda: None),
            InvalidOption, "expected skip_queue to be True or False, got: 'yes'",
        ),
        (
            lambda: at_once(lambda: None, interval=5),
            ImproperWork, "interval= or skip_queue=True, got both for 'direct.case'",
        ),
    ],
    ids=["batch", "gate", "doer", "a number", "a text", "interval"],
)  # fmt: skip
def test_what_cannot_skip_the_queue_is_refused(act, error, message):
    with pytest.raises(error, match=message):
        act()
    assert not Work.objects.exists()


@pytest.mark.parametrize(
    "handler",
    [
        lambda ctx: ctx.queue([quick()], skip_queue=True),
        lambda ctx: ctx.queue([quick()]).next(quick(), skip_queue=True),
        lambda ctx: ctx.continue_with(quick(), skip_queue=True),
    ],
    ids=["queue", "next", "continue_with"],
)
def test_a_handlers_instructions_take_no_such_option(handler):
    error = perform(work(name="direct.case")(handler)()).error
    assert isinstance(error, TypeError)
    assert "takes no skip_queue=: the worker commits the works that a handler queues" in str(error)
