"""An error in any phase leaves what the mode promises, and the next attempt succeeds."""

from __future__ import annotations

import pytest

from django_ayework import dependency, enqueue
from django_ayework.models import Attempt, Work
from django_ayework.testing import assert_enqueued, drain, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.modes.works import atomic, notes, plain, staged, staged_async

#: mode, the phase that breaks, what the first attempt leaves, what the second one adds.
PHASES = [
    (plain, "after", ["before 1"], ["before 2"]),
    (atomic, "before", [], ["handler 2"]),
    (atomic, "after", [], ["handler 2"]),
    (staged, "prepare", [], ["prepare 2", "complete 2"]),
    (staged, "between", ["prepare 1"], ["prepare 2", "complete 2"]),
    (staged, "complete", ["prepare 1"], ["prepare 2", "complete 2"]),
    (staged, "built", ["prepare 1"], ["prepare 2", "complete 2"]),
    (staged, "after", ["prepare 1"], ["prepare 2", "complete 2"]),
    (staged_async, "prepare", [], ["prepare 2", "complete 2"]),
    (staged_async, "between", ["prepare 1"], ["prepare 2", "complete 2"]),
    (staged_async, "complete", ["prepare 1"], ["prepare 2", "complete 2"]),
]
in_both = pytest.mark.parametrize(
    "commits",
    [
        pytest.param(False, marks=pytest.mark.django_db, id="in a TestCase"),
        pytest.param(True, marks=pytest.mark.django_db(transaction=True), id="with commits"),
    ],
)
HOWS = ["raises", "queries badly"]
named = pytest.mark.parametrize(
    ("mode", "broken", "left", "added"), PHASES, ids=[f"{mode.name} {broken}" for mode, broken, *_ in PHASES]
)


@named
@in_both
@pytest.mark.parametrize("how", HOWS)
def test_an_error_leaves_what_the_mode_promises(commits, mode, broken, left, added, how):
    if not commits and how != "raises" and (mode.name, broken) in OUTSIDE:
        pytest.skip("a database error outside of any block undoes the attempt in a TestCase, see the guide")
    handle = enqueue(mode(broken=broken, how=how))
    gate = enqueue(dependency(on=[handle], queue=[add(a=5, b=6)]))

    drain(limit=1, raises=False)

    assert notes() == left
    assert handle.state().status in ("pending", "scheduled")
    assert (gate.state().status, Work.objects.count()) == ("blocked", 2)
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "failed")]

    drain()

    assert notes() == left + added
    assert (handle.state().status, handle.state().attempt) == ("success", 2)
    assert_enqueued(add, a=1)
    assert_enqueued(add, a=3)
    assert_enqueued(add, a=5)
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}
    assert Work.objects.count() == 6


OUTSIDE = {("modes.plain", "after"), ("modes.staged", "between")}


@named
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", HOWS)
def test_workers_keep_the_promise(mode, broken, left, added, how, caplog):
    handle = enqueue(mode(broken=broken, how=how))

    with running_worker():
        handle.group(timeout=20)

    assert notes() == left + added
    assert (handle.state().status, handle.state().attempt) == ("success", 2)
    assert Work.objects.count() == 4
    assert "came too late" not in caplog.text, "an outcome was settled twice"


@in_both
@pytest.mark.parametrize("mode", [atomic, staged, staged_async], ids=lambda mode: mode.name)
def test_without_an_error_one_attempt_is_enough(commits, mode):
    handle = enqueue(mode(broken=""))

    report = drain()

    assert (report.ran, report.succeeded) == (3, 3)
    assert (handle.state().attempt, Attempt.objects.count()) == (1, 0)
    assert Order.objects.count() == (1 if mode is atomic else 2)
