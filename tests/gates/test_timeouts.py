"""Gates whose time is over: how they expire, how they are revived, and the time they have then."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import NotRetryable, Status, dependency, enqueue, retry
from django_ayework.testing import drain, now, time_travel
from tests.gates.works import BROKEN, gate_over, labels, run, standing, step

EXPIRED, BLOCKED, OPEN = ("dead", "expired"), ("blocked", None), ("success", None)


def pass_time(seconds: float = 61) -> None:
    time_travel(seconds)
    drain()


def test_a_gate_past_its_timeout_dies_and_its_chain_closes_until_it_is_retried():
    gate = dependency(["a"], [step(label="b")], timeout=60)
    behind = enqueue(dependency([gate.releases[0]], [step(label="c")]))
    done = enqueue(dependency([gate.releases[0]], [step(label="done")], "all-done"))
    handle = enqueue(gate)
    pass_time(59)
    assert standing(handle) == BLOCKED
    pass_time(2)
    assert (standing(handle), standing(done)) == (EXPIRED, OPEN)
    assert standing(behind) == ("dead", "unsatisfiable")
    assert labels() == ["done"]
    assert handle.group(timeout=1) is None
    retry(handle.id)
    drain()
    assert (standing(handle), standing(behind)) == (BLOCKED, BLOCKED)
    assert timedelta(seconds=58) < handle.state().deadline - now() <= timedelta(seconds=60)
    run("a")
    assert labels() == ["done", "a", "b", "c"]


def test_a_member_that_ends_after_the_timeout_changes_nothing_but_a_retry_opens_at_once():
    gate = gate_over("a", timeout=60)
    pass_time()
    run("a")
    assert standing(gate) == EXPIRED
    assert labels() == ["a"]
    retry(gate.id)
    assert standing(gate) == OPEN
    drain()
    assert labels() == ["a", "after"]


def test_an_expired_gate_whose_member_died_names_it():
    BROKEN.add("a")
    gate = gate_over("a", timeout=60)
    pass_time()
    run("a")
    with pytest.raises(NotRetryable) as refused:
        retry(gate.id)
    assert refused.value.members == ("a",)


def test_the_condition_is_looked_at_before_the_timeout():
    """Its member had ended long before; only the recheck was late."""
    BROKEN.add("a")
    run("a")
    gate = gate_over("a", "all-done", timeout=60)
    pass_time()
    assert standing(gate) == OPEN


def test_retrying_a_member_does_not_revive_a_gate_that_expired():
    BROKEN.add("a")
    gate = gate_over("ab", timeout=60, on_unmet="wait")
    run("a")
    pass_time()
    assert standing(gate) == EXPIRED
    BROKEN.clear()
    retry("a")
    drain()
    assert standing(gate) == EXPIRED


def test_a_gate_that_a_members_retry_revives_has_its_whole_timeout_again():
    BROKEN.add("a")
    gate = gate_over("ab", timeout=60)
    run("a")
    time_travel(3600)
    BROKEN.clear()
    retry("a")
    drain()
    assert gate.state().status is Status.BLOCKED
    run("b")
    assert labels() == ["a", "b", "after"]


@pytest.mark.parametrize("option", ["expires", "deadline"])
def test_options_that_bound_a_life_bound_a_gate_and_a_retry_counts_expires_anew(option: str):
    value = 60 if option == "expires" else now() + timedelta(seconds=60)
    gate = enqueue(dependency(["a"], [step(label="after")]), **{option: value})
    pass_time()
    assert standing(gate) == EXPIRED
    retry(gate.id)
    drain()
    assert standing(gate) == (BLOCKED if option == "expires" else EXPIRED)
