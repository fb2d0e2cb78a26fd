"""Claiming: which of the due works of a queue go first, and how many of each type."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import retry
from django_ayework.models import Work
from django_ayework.store import claims, lanes
from django_ayework.store.clock import clock
from django_ayework.store.lanes import Lane, lanes_behind, lanes_of, lanes_with_work
from django_ayework.store.rows import find_row
from django_ayework.testing.factories import WorkFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]


def pending(label: str, type: str, age: int = 0, **columns) -> None:
    """Make a pending work that has been due for so many seconds."""
    WorkFactory(id=label, type=type, run_at=clock.now() - timedelta(seconds=age), **columns)


def claimed(caps: dict[str, int], limit: int, queue: str = "default") -> list[str]:
    now = clock.now()
    return [row.id for row in claims.claim(queue, caps, limit, "w", now, now + timedelta(minutes=1))]


def test_works_of_several_types_go_by_priority_then_age_whatever_their_type():
    pending("old", "t.b", age=30)
    pending("older", "t.a", age=40)
    pending("new", "t.a", age=10)
    pending("urgent", "t.c", priority=5)
    pending("whenever", "t.c", age=90, priority=-5)
    caps = dict.fromkeys(["t.a", "t.b", "t.c"], 9)
    assert claimed(caps, 3) == ["urgent", "older", "old"]
    assert claimed(caps, 3) == ["new", "whenever"]


def test_no_more_of_a_type_are_taken_than_its_cap():
    for number in range(5):
        pending(f"a{number}", "t.a", age=50 - number)
        pending(f"b{number}", "t.b", age=20 - number)
    assert claimed({"t.a": 2, "t.b": 9}, 5) == ["a0", "a1", "b0", "b1", "b2"]
    assert claimed({"t.a": 1}, 5) == ["a2"]
    assert claimed({"t.a": 0, "t.b": 0}, 5) == []
    assert claimed({}, 5) == []
    assert claimed({"t.a": 5}, 0) == []


def test_types_that_are_not_asked_for_and_other_queues_are_left():
    pending("mine", "t.a")
    pending("other type", "t.b", age=60)
    pending("other queue", "t.a", age=60, queue="mail")
    assert claimed({"t.a": 5, "t.c": 5}, 5) == ["mine"]


def test_units_of_a_type_go_by_name_within_a_priority():
    for unit, priority in (("b", 0), ("c", 0), ("a", 0), ("z", 1)):
        pending(unit, "t.a", unit=unit, sort_key=unit, priority=priority)
    assert claimed({"t.a": 2}, 2) == ["z", "a"]
    assert claimed({"t.a": 9}, 9) == ["b", "c"]


def test_what_is_claimed_is_running_and_leased():
    pending("w1", "t.a", attempt=1, delivery=3)
    assert claimed({"t.a": 1, "t.b": 1}, 1) == ["w1"]
    row = Work.objects.get(id="w1")
    assert (row.status, row.attempt, row.delivery, row.worker) == ("running", 2, 4, "w")
    assert row.leased_until is not None


@pytest.mark.parametrize("caps", [{"t.again": 1}, {"t.again": 1, "t.a": 1}], ids=["a lane", "lanes"])
@pytest.mark.parametrize("end", ["cancelled", "dead"])
def test_what_a_claim_does_not_read_of_a_work_that_starts_over_is_as_it_is_stored(end, caps):
    """Nothing is left of an end, so that a claim knows what is there."""
    WorkFactory(
        id="again",
        type="t.again",
        status=end,
        error="x",
        reason="error" if end == "dead" else "",
        progress='{"a":1}',
        attempt=3,
        ended_at=clock.now(),
        completed_by="w0",
    )
    retry("again")
    now = clock.now()
    (row,) = claims.claim("default", caps, 1, "w", now, now + timedelta(minutes=1))
    assert row == find_row("again")
    assert (row.result, row.ended_at, row.completed_by, row.attempt) == (None, None, None, 1)


def test_lanes_are_the_types_of_each_queue():
    for queue, type in (("mail", "t.b"), ("default", "t.a"), ("mail", "t.a"), ("mail", "t.b")):
        WorkFactory(queue=queue, type=type)
    WorkFactory(queue="done", status="success")
    every = [Lane("default", "t.a"), Lane("mail", "t.a"), Lane("mail", "t.b")]
    assert list(lanes_with_work()) == every
    assert lanes_of(["mail", "done", "nobody", "mail"]) == every[1:]
    assert lanes_behind("", 1) == every[:1]
    assert lanes_behind("default", 1) == lanes_behind("default", 9) == every[1:]
    assert lanes_behind("mail", 9) == []


@pytest.mark.parametrize("number", [1, 3, 7])
def test_lanes_are_found_a_few_queues_at_a_time(number, monkeypatch):
    """Whole queues each time, whether they have one type or several, a work of each or many."""
    monkeypatch.setattr(lanes, "QUEUES", number)
    every = sorted(Lane(f"q{place % 7}", f"t.{place % 3}") for place in range(21))
    WorkFactory.create_batch(3, queue="q3", type="t.1")
    for queue, type in every:
        WorkFactory(queue=queue, type=type)
    assert list(lanes_with_work()) == every
    assert lanes_behind("q1", 2) == [lane for lane in every if lane.queue in ("q2", "q3")]
