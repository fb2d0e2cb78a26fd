"""Updating many rows at once, and counting in a group."""

from __future__ import annotations

import pytest

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store import transitions
from django_ayework.store.database import clock
from django_ayework.store.many_rows import Update, update_of, update_rows
from django_ayework.store.rows import find_row
from django_ayework.store.transitions import Succeeded
from django_ayework.testing.factories import WorkFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]
HOSTILE = ['say "b"', "a\\", "\\N", "NULL", "null", "", " ", "{}", "{a,b}", "a,b", "\t\n\r", "Zoë 🦉"]
HOSTILE += ["'; --", "%s", "[1]", '{"a": 1}']


def test_texts_of_any_kind_arrive_unchanged():
    works = WorkFactory.create_batch(len(HOSTILE))
    update_rows(Work, {work.id: {"error": text} for work, text in zip(works, HOSTILE, strict=True)})
    assert [Work.objects.get(id=work.id).error for work in works] == HOSTILE


def test_different_and_shared_values_are_written():
    one, two = WorkFactory.create_batch(2)
    now, shared = clock.now(), {"worker": "w", "unit": None}
    changes = [{"priority": 1, "deadline": now, **shared}, {"priority": 2, "deadline": None, **shared}]
    update_rows(Work, dict(zip([one.id, two.id], changes, strict=True)))
    written = Work.objects.in_bulk()
    assert [written[work.id].priority for work in (one, two)] == [1, 2]
    assert [written[work.id].deadline for work in (one, two)] == [now, None]
    assert {work.worker for work in written.values()} == {"w"}
    update = update_of({"a": {"x": 1, "y": "s"}, "b": {"x": 2, "y": "s"}})
    assert update == Update(["a", "b"], {"x": [1, 2]}, {"y": "s"})


def won(*works: Work, delivery: int = 0) -> set[str]:
    return transitions.succeed(
        [Succeeded(work.id, delivery, f'"{work.id}"') for work in works], "w", clock.now()
    )


def test_works_that_succeed_keep_the_columns_that_a_success_does_not_change():
    works = WorkFactory.create_batch(3, status="running", worker="w", attempt=2, priority=7, error="once")
    gone = WorkFactory(status="running", worker="w")
    Work.objects.filter(id=gone.id).delete()
    assert won(*works) == {work.id for work in works}
    assert won(gone) == set()
    for work in works:
        written = Work.objects.get(id=work.id)
        assert (written.status, written.result, written.completed_by) == ("success", f'"{work.id}"', "w")
        assert (written.worker, written.leased_until, written.error) == (None, None, "")
        assert (written.attempt, written.priority, written.run_at) == (2, 7, work.run_at)
        assert written.ended_at is not None


moved_meanwhile = pytest.mark.parametrize(
    "elsewhere", [{"delivery": 1}, {"worker": "other"}, {"status": "pending"}, {"status": "cancelled"}]
)


@moved_meanwhile
def test_a_work_that_has_been_moved_meanwhile_does_not_succeed(elsewhere, django_assert_num_queries):
    """A single work is written by one statement, which checks delivery, worker and status."""
    held, alone = WorkFactory.create_batch(2, status="running", worker="w")
    lost = WorkFactory(**{"status": "running", "worker": "w", **elsewhere})
    assert won(held, lost) == {held.id}
    with django_assert_num_queries(2):
        assert (won(alone), won(lost)) == ({alone.id}, set())
    statuses = dict(Work.objects.values_list("id", "status"))
    assert statuses == {held.id: "success", alone.id: "success", lost.id: lost.status}
    assert Work.objects.get(id=lost.id).result is None


@moved_meanwhile
def test_a_work_that_has_been_moved_meanwhile_does_not_fail(elsewhere):
    held = WorkFactory.create_batch(2, status="running", worker="w")
    lost = WorkFactory(status="running", worker="w")
    moves = [find_row(work.id).becoming(Status.DEAD, error="late") for work in (*held, lost)]
    Work.objects.filter(id=lost.id).update(**elsewhere)
    assert transitions.apply(moves) == {work.id for work in held}
    assert Work.objects.get(id=lost.id).error == ""


def test_large_texts_go_in_several_statements():
    works = WorkFactory.create_batch(20)
    texts = {work.id: f"{n:02}".ljust(900_000, "x") for n, work in enumerate(works)}
    update_rows(Work, {id: {"result": text} for id, text in texts.items()})
    assert all(Work.objects.get(id=id).result == text for id, text in texts.items())
