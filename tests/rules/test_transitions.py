"""Moves between statuses."""

import itertools

import pytest

from django_ayework.rules.states import LIVE, MOVES, RETRYABLE, TERMINAL, Status, Transition, is_terminal
from tests.rules.moments import NOON

PAIRS = list(itertools.product(Status, Status))
ALLOWED = [(before, after) for before, after in PAIRS if after in MOVES[before]]
FORBIDDEN = [(before, after) for before, after in PAIRS if after not in MOVES[before]]


def transition(*leaves, status):
    return Transition(
        id="1",
        delivery=1,
        leaves=frozenset(leaves),
        status=status,
        attempt=1,
        run_at=NOON,
        deadline=None,
        group_id=None,
        chain_id=None,
    )


@pytest.mark.parametrize(("before", "after"), ALLOWED)
def test_every_allowed_move_can_be_made(before, after):
    assert transition(before, status=after).status is after


@pytest.mark.parametrize(("before", "after"), FORBIDDEN)
def test_every_other_move_is_refused_by_name(before, after):
    with pytest.raises(ValueError, match=f"no work moves from {before} to {after}"):
        transition(before, status=after)


def test_one_status_that_may_not_be_left_spoils_the_rest():
    assert transition(Status.PENDING, Status.SCHEDULED, status=Status.DEAD)
    with pytest.raises(ValueError, match="no work moves from success to dead"):
        transition(Status.PENDING, Status.SUCCESS, status=Status.DEAD)


def test_success_is_for_good():
    assert MOVES[Status.SUCCESS] == frozenset()


def test_dead_and_cancelled_works_can_only_be_retried():
    for status in RETRYABLE:
        assert MOVES[status] == {Status.PENDING, Status.BLOCKED}


def test_every_live_work_can_end_in_every_way():
    for status in LIVE:
        assert MOVES[status] >= TERMINAL


def test_only_pending_works_start():
    assert [status for status in Status if Status.RUNNING in MOVES[status]] == [Status.PENDING]


def test_no_status_leads_to_itself():
    assert not [status for status in Status if status in MOVES[status]]


def test_the_terminal_statuses_are_the_last_three():
    assert Status.terminal == TERMINAL == set(list(Status)[-3:])
    assert set(Status) - LIVE == TERMINAL


@pytest.mark.parametrize(
    ("status", "done"),
    [("success", True), (Status.DEAD, True), ("cancelled", True), ("running", False), (None, False)],
)
def test_what_is_done(status, done):
    assert is_terminal(status) is done
