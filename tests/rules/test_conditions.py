"""Moves between statuses, conditions of gates, and the value of a group."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Count, condition_met
from django_ayework.rules import conditions as rules
from django_ayework.rules.conditions import Contribution, Decision, GroupValue, decide, fold, tally
from django_ayework.rules.states import LIVE, MOVES, RETRYABLE, TERMINAL, Status, Transition, is_terminal
from tests.rules.moments import NOON


def transition(*leaves, status):
    facts = {"attempt": 1, "run_at": NOON, **dict.fromkeys(("deadline", "group_id", "chain_id"))}
    return Transition(id="1", delivery=1, leaves=frozenset(leaves), status=status, **facts)


@pytest.mark.parametrize(("before", "after"), [*itertools.product(Status, Status)])
def test_every_allowed_move_can_be_made_and_every_other_is_refused_by_name(before, after):
    if after in MOVES[before]:
        assert transition(before, status=after).status is after
    else:
        with pytest.raises(ValueError, match=f"no work moves from {before} to {after}"):
            transition(before, status=after)


def test_one_status_that_may_not_be_left_spoils_the_rest():
    assert transition(Status.PENDING, Status.SCHEDULED, status=Status.DEAD)
    with pytest.raises(ValueError, match="no work moves from success to dead"):
        transition(Status.PENDING, Status.SUCCESS, status=Status.DEAD)


def test_a_single_status_has_no_set_of_terminal_ones():
    """It would be true of every status."""
    with pytest.raises(AttributeError, match=r"Did you mean status in Status.terminal"):
        _ = Status.PENDING.terminal


def test_the_moves_between_the_statuses():
    assert MOVES[Status.SUCCESS] == frozenset()
    assert all(MOVES[status] >= {Status.PENDING, Status.BLOCKED} for status in RETRYABLE)
    assert all(MOVES[status] >= TERMINAL for status in LIVE)
    assert [status for status in Status if Status.RUNNING in MOVES[status]] == [Status.PENDING]
    assert not [status for status in Status if status in MOVES[status]]
    assert Status.terminal == TERMINAL == set(list(Status)[-3:]) == set(Status) - LIVE
    assert [is_terminal(status) for status in ("success", Status.DEAD, "cancelled")] == [True] * 3
    assert [is_terminal(status) for status in ("running", None)] == [False] * 2


ENDED_BADLY = {"dead", "cancelled"}
statuses = st.lists(st.sampled_from([*Status, None]), max_size=8)
counts = st.builds(Count, st.integers(0, 9), st.sampled_from(["done", "success"]))
conditions = st.sampled_from(["all-success", "all-done"]) | counts


def holds(condition, statuses):
    """The words of the contract, taken literally."""
    succeeded = [status == "success" for status in statuses]
    done = [status == "success" or status in ENDED_BADLY for status in statuses]
    if isinstance(condition, Count):
        return sum(succeeded if condition.of == "success" else done) >= condition.n
    return all(succeeded) if condition == "all-success" else all(done)


@given(conditions, statuses)
def test_a_condition_is_met_exactly_when_its_words_hold(condition, statuses):
    counted = tally(statuses)
    assert condition_met(condition, statuses) is holds(condition, statuses)
    texts = (status and str(status) for status in statuses)  # any iterable, of enums or texts
    assert condition_met(condition, texts) is holds(condition, statuses)
    assert (decide(condition, counted) is Decision.MET) is holds(condition, statuses)
    assert (counted.total, counted.done) == (len(statuses), counted.succeeded + counted.missed)
    assert counted.succeeded == sum(status == "success" for status in statuses)
    assert counted.missed == sum(status in ENDED_BADLY for status in statuses)


@pytest.mark.parametrize("watched", range(5))
def test_a_gate_gives_up_exactly_when_no_way_on_could_open_it(watched):
    counts = [Count(n, of) for n in range(watched + 2) for of in ("done", "success")]
    for now in itertools.product(["success", "dead", None], repeat=watched):
        open_places = [["success", "cancelled"] if status is None else [status] for status in now]
        ways_on = list(itertools.product(*open_places))
        for condition in ("all-success", "all-done", *counts):
            decision, opens = decide(condition, tally(now)), [holds(condition, end) for end in ways_on]
            assert (decision is Decision.NEVER) is not any(opens), (condition, now)
            assert decision is not Decision.MET or all(opens), (condition, now)


def test_a_count_is_a_whole_number_of_works_that_are_done_or_succeeded():
    for n in (-1, True, 1.0, "2", None):
        with pytest.raises(TypeError, match="whole number of works, 0 or more, got: "):
            Count(n)
    with pytest.raises(ValueError, match="of='done' or of='success', got: 'dead'"):
        Count(1, of="dead")
    rules.require_condition(Count(2), watched=2)
    with pytest.raises(ValueError, match="at most the 2 watched works, got: 3; such a gate could never open"):
        rules.require_condition(Count(3), watched=2)


MISSPELT = [("all-sucess", "all-success"), ("all_done", "all-done"), ("al-done", "all-done")]


@pytest.mark.parametrize(("wrong", "nearest"), MISSPELT)
def test_a_misspelt_condition_is_refused_with_the_nearest_one(wrong, nearest):
    with pytest.raises(ValueError, match=f"got: '{wrong}'. Did you mean '{nearest}'"):
        condition_met(wrong, [])


@pytest.mark.parametrize("wrong", [None, 1, ["all-done"], ["done"], "any", {"n": 1}])
def test_what_is_no_condition_is_refused(wrong):
    with pytest.raises(ValueError, match=r"'all-success', 'all-done' or Count\(n\)"):
        rules.require_condition(wrong)
    with pytest.raises(ValueError, match="expected a condition"):
        rules.condition_from_plain(wrong)


@given(conditions)
def test_conditions_survive_being_stored(condition):
    assert rules.condition_from_plain(rules.condition_to_plain(condition)) == condition


def contribution(value, final, appends):
    return Contribution(value, final=final, append=(lambda old: f"{old}+{value}") if appends else None)


texts = st.text("abc", max_size=2) | st.none()
contributions = st.lists(st.builds(contribution, texts, st.booleans(), st.booleans()), max_size=8)
group_values = st.builds(GroupValue, texts, st.booleans())


def naive(current, contributions):
    value, final = current
    for contribution in contributions:
        if not final:
            value = contribution.append(value) if contribution.append else contribution.value
            final = contribution.final
    return GroupValue(value, final)


@given(group_values, contributions, contributions)
def test_folding_agrees_with_its_description_and_may_come_in_any_number_of_batches(current, first, second):
    assert fold(current, [*first, *second]) == naive(current, [*first, *second])
    assert fold(fold(current, first), second) == fold(current, [*first, *second])


def test_an_append_that_raises_is_not_swallowed_and_none_is_called_after_the_final_value():
    raising = Contribution(1, append=lambda existing: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fold(GroupValue(0), [raising])
    assert fold(GroupValue(1, final=True), [raising]) == GroupValue(1, final=True)
