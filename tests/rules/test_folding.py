"""The value of a group, made of what its members contribute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.conditions import Contribution, GroupValue, fold


def joined(part):
    return lambda existing: f"{existing}+{part}"


contributions = st.lists(
    st.tuples(st.text("abc", max_size=2) | st.none(), st.booleans(), st.booleans()).map(
        lambda drawn: Contribution(drawn[0], final=drawn[1], append=joined(drawn[0]) if drawn[2] else None)
    ),
    max_size=8,
)
group_values = st.builds(GroupValue, st.none() | st.text("xyz", max_size=2), st.booleans(), st.booleans())


def naive(current, contributions):
    value, present, final = current.value, current.present, current.final
    for contribution in contributions:
        if not final:
            value = contribution.append(value) if contribution.append else contribution.value
            present, final = True, contribution.final
    return GroupValue(value, present, final)


@given(group_values, contributions)
def test_folding_agrees_with_its_description(current, contributions):
    assert fold(current, contributions) == naive(current, contributions)


@given(group_values, contributions, contributions)
def test_contributions_may_come_in_any_number_of_batches(current, first, second):
    assert fold(fold(current, first), second) == fold(current, [*first, *second])


@given(group_values, contributions)
def test_once_final_a_value_never_changes(current, contributions):
    locked = fold(current, [Contribution("last word", final=True)])

    assert fold(locked, contributions) == locked


def test_the_last_contribution_in_the_list_wins():
    assert fold(GroupValue(), [Contribution(1), Contribution(2)]) == GroupValue(2, present=True)


def test_a_final_contribution_beats_its_later_siblings_of_the_same_tree():
    assert fold(GroupValue(), [Contribution(1, final=True), Contribution(2)]).value == 1


def test_appenders_sum_up():
    add = [Contribution(n, append=lambda total, n=n: (total or 0) + n) for n in (1, 2, 3)]

    assert fold(GroupValue(), add).value == 6


def test_the_first_append_meets_none():
    seen = []

    fold(GroupValue(), [Contribution(1, append=seen.append)])

    assert seen == [None]


def test_what_append_returns_counts_rather_than_the_value():
    assert fold(GroupValue(1), [Contribution(5, append=lambda existing: existing + 1)]).value == 2


def test_append_can_lock_too():
    folded = fold(GroupValue(1), [Contribution(2, final=True, append=lambda old: old + 2), Contribution(9)])

    assert folded == GroupValue(3, present=True, final=True)


def test_a_contributed_none_is_a_contribution():
    assert fold(GroupValue(7, present=True), [Contribution(None)]) == GroupValue(None, present=True)


def test_no_contribution_leaves_the_value_alone():
    assert fold(GroupValue(), []) == GroupValue(None, present=False)


def test_nothing_is_appended_to_a_final_value():
    def never(existing):
        raise AssertionError("append was called on a locked value")

    assert fold(GroupValue(1, present=True, final=True), [Contribution(2, append=never)]).value == 1


def test_an_append_that_raises_is_heard():
    with pytest.raises(ZeroDivisionError):
        fold(GroupValue(0), [Contribution(1, append=lambda existing: 1 / existing)])
