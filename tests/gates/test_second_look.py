"""Rechecks: a waiter was queued while others settled what it watches."""

from __future__ import annotations

import pytest

from django_ayework import Status, dependency, enqueue, retry
from django_ayework.flow import dependencies
from django_ayework.flow.dependencies import recheck_leftovers
from django_ayework.models import Waiter
from django_ayework.store.resolution import Ends
from django_ayework.testing import drain
from django_ayework.testing.running import run_commit_callbacks
from tests.gates.works import BROKEN, labels, step


def dead():
    """Return a work that has died: that is found by the recheck and not before, as it may be retried."""
    BROKEN.add("dead")
    member = enqueue(step(label="dead"))
    drain()
    return member


def test_a_maker_killed_after_its_commit_leaves_the_recheck_to_a_worker(monkeypatch: pytest.MonkeyPatch):
    member = dead()
    with monkeypatch.context() as killed:
        killed.setattr(dependencies, "recheck", lambda waiters: None)
        gate = enqueue(dependency([member], [step(label="after")], "all-done"))
        run_commit_callbacks()
    assert Waiter.objects.filter(recheck=True).count() == 1
    assert gate.state().status is Status.BLOCKED
    drain()
    assert labels() == ["after"]


def test_a_recheck_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch, caplog):
    def fail(*args: object) -> None:
        raise RuntimeError("the database went away")

    member = dead()
    with monkeypatch.context() as broken:
        broken.setattr(dependencies, "settled_statuses", fail)
        enqueue(dependency([member], [step(label="after")], "all-done"))
        run_commit_callbacks()
    assert "the database went away" in caplog.text
    drain()
    assert labels() == ["after"]


def test_a_waiter_whose_recheck_fails_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch):
    """An error that is not about locks is raised when the others are done."""
    member = dead()
    with monkeypatch.context() as killed:
        killed.setattr(dependencies, "recheck", lambda waiters: None)
        gates = [enqueue(dependency([member], [], "all-done")) for _ in range(3)]
        run_commit_callbacks()
    Waiter.objects.filter(work_id=gates[1].id).update(condition="no condition")
    with pytest.raises(ValueError):
        recheck_leftovers()
    assert [gate.state().status for gate in gates] == [Status.SUCCESS, Status.BLOCKED, Status.SUCCESS]
    Waiter.objects.filter(work_id=gates[1].id).update(condition='"all-done"')
    recheck_leftovers()
    assert gates[1].state().status is Status.SUCCESS


def test_a_member_retried_while_its_end_is_looked_up_does_not_close_the_gate(monkeypatch: pytest.MonkeyPatch):
    BROKEN.add("a")
    member = enqueue(step(label="a"))
    drain()
    look = dependencies.settled_statuses

    def look_then_retry(ids: set[str]) -> Ends:
        found = look(ids)
        retry(member.id)
        return found

    gate = enqueue(dependency([member], [step(label="after")]))
    monkeypatch.setattr(dependencies, "settled_statuses", look_then_retry)
    run_commit_callbacks()
    monkeypatch.undo()
    assert gate.state().status is Status.BLOCKED
    BROKEN.clear()
    drain()
    assert labels() == ["a", "after"]


def test_looking_costs_no_query_per_unborn_id(django_assert_max_num_queries):
    ids = [f"unborn-{number}" for number in range(1000)]
    gate = enqueue(dependency(ids, [step(label="after")]))
    with django_assert_max_num_queries(40):
        run_commit_callbacks()
    assert gate.state().status is Status.BLOCKED
