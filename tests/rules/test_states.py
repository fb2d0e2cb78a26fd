"""Moves between statuses."""

import itertools

import pytest

from django_ayework.rules.states import LIVE, MOVES, RETRYABLE, TERMINAL, Status, Transition, is_terminal
from tests.rules.moments import NOON


def transition(*leaves, status):
    values = dict.fromkeys(("deadline", "group_id", "chain_id"))
    return Transition(
        id="1", delivery=1, leaves=frozenset(leaves), status=status, attempt=1, run_at=NOON, **values
    )


@pytest.mark.parametrize(("before", "after"), [*itertools.product(Status, Status)])
def test_every_allowed_move_can_be_made_and_every_other_is_refused_by_name(before, after):
    if after in MOVES[before]:
        assert transition(before, status=after).status is after
        return
    with pytest.raises(ValueError, match=f"no work moves from {before} to {after}"):
        transition(before, status=after)


def test_one_status_that_may_not_be_left_spoils_the_rest():
    assert transition(Status.PENDING, Status.SCHEDULED, status=Status.DEAD)
    with pytest.raises(ValueError, match="no work moves from success to dead"):
        transition(Status.PENDING, Status.SUCCESS, status=Status.DEAD)


def test_the_moves_between_the_statuses():
    assert MOVES[Status.SUCCESS] == frozenset()
    assert all(MOVES[status] == {Status.PENDING, Status.BLOCKED} for status in RETRYABLE)
    assert all(MOVES[status] >= TERMINAL for status in LIVE)
    assert [status for status in Status if Status.RUNNING in MOVES[status]] == [Status.PENDING]
    assert not [status for status in Status if status in MOVES[status]]
    assert Status.terminal == TERMINAL == set(list(Status)[-3:])
    assert set(Status) - LIVE == TERMINAL


@pytest.mark.parametrize(
    ("status", "done"),
    [("success", True), (Status.DEAD, True), ("cancelled", True), ("running", False), (None, False)],
)
def test_what_is_done(status, done):
    assert is_terminal(status) is done
