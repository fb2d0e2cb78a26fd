"""The second look: a waiter was born while others settled what it watches."""

from __future__ import annotations

import logging

import pytest

from django_ayework import Status, dependency, enqueue, retry
from django_ayework.flow import closing
from django_ayework.flow.chores import sweep
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.testing import drain
from django_ayework.testing.draining import run_commit_callbacks
from tests.gates.works import BROKEN, labels, step


def test_a_maker_killed_after_its_commit_leaves_the_look_to_a_worker(monkeypatch: pytest.MonkeyPatch):
    member = enqueue(step(label="a"))
    drain()
    with monkeypatch.context() as killed:
        killed.setattr(closing, "recheck", lambda waiters: None)
        gate = enqueue(dependency([member], [step(label="after")]))
        run_commit_callbacks()
    assert Waiter.objects.filter(recheck=True).count() == 1
    assert gate.state().status is Status.BLOCKED
    drain()
    assert labels() == ["a", "after"]


def test_a_look_that_fails_is_taken_again(monkeypatch: pytest.MonkeyPatch, caplog):
    def fail(*args: object) -> None:
        raise RuntimeError("the database went away")

    member = enqueue(step(label="a"))
    drain()
    with monkeypatch.context() as broken:
        broken.setattr(closing, "settled_statuses", fail)
        enqueue(dependency([member], [step(label="after")]))
        run_commit_callbacks()
    assert "the database went away" in caplog.text
    drain()
    assert labels() == ["a", "after"]


def test_a_member_retried_while_its_end_is_looked_up_does_not_close_the_gate(monkeypatch: pytest.MonkeyPatch):
    BROKEN.add("a")
    member = enqueue(step(label="a"))
    drain()
    look = closing.settled_statuses

    def look_then_retry(ids: list[str]) -> dict[str, Status]:
        found = look(ids)
        retry(member.id)
        return found

    gate = enqueue(dependency([member], [step(label="after")]))
    monkeypatch.setattr(closing, "settled_statuses", look_then_retry)
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


def test_the_sweep_frees_a_waiter_that_was_left_behind_and_says_so(caplog):
    member = enqueue(step(label="a"))
    gate = enqueue(dependency([member], [step(label="after")]))
    drain(limit=1)
    Edge.objects.update(outcome="")
    Waiter.objects.update(succeeded=0)
    Work.objects.filter(parent_id=gate.id).delete()
    Work.objects.filter(id=gate.id).update(status="blocked", ended_at=None, group_id=None)
    Group.objects.all().delete()
    with caplog.at_level(logging.ERROR, "django_ayework"):
        assert sweep() == 1
    assert gate.id in caplog.text
    drain()
    assert labels() == ["a", "after"]
