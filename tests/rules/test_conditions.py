"""Conditions of gates, and the value of a group."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Count, Status, condition_met
from django_ayework.rules.conditions import (
    Contribution,
    Decision,
    GroupValue,
    condition_from_plain,
    condition_to_plain,
    decide,
    fold,
    require_condition,
    tally,
)

ENDED_BADLY = {"dead", "cancelled"}
statuses = st.lists(st.sampled_from([*Status, None]), max_size=8)
conditions = st.one_of(
    st.sampled_from(["all-success", "all-done"]),
    st.builds(Count, st.integers(0, 9), st.sampled_from(["done", "success"])),
)


def holds(condition, statuses):
    """The words of the contract, taken literally."""
    succeeded = [status == "success" for status in statuses]
    done = [status == "success" or status in ENDED_BADLY for status in statuses]
    if isinstance(condition, Count):
        return sum(succeeded if condition.of == "success" else done) >= condition.n
    return all(succeeded) if condition == "all-success" else all(done)


@given(conditions, statuses)
def test_a_condition_is_met_exactly_when_its_words_hold(condition, statuses):
    assert condition_met(condition, statuses) is holds(condition, statuses)
    assert (decide(condition, tally(statuses)) is Decision.MET) is holds(condition, statuses)


@given(statuses)
def test_a_tally_counts_what_succeeded_and_what_ended_otherwise(statuses):
    counted = tally(statuses)
    assert counted.total == len(statuses)
    assert counted.succeeded == sum(status == "success" for status in statuses)
    assert counted.missed == sum(status in ENDED_BADLY for status in statuses)
    assert counted.done == counted.succeeded + counted.missed


def every_condition(watched):
    yield from ("all-success", "all-done")
    yield from (Count(n, of) for n in range(watched + 2) for of in ("done", "success"))


@pytest.mark.parametrize("watched", range(5))
def test_a_gate_gives_up_exactly_when_no_way_on_could_open_it(watched):
    for now in itertools.product(["success", "dead", None], repeat=watched):
        open_places = [["success", "cancelled"] if status is None else [status] for status in now]
        ways_on = list(itertools.product(*open_places))
        for condition in every_condition(watched):
            decision = decide(condition, tally(now))
            could_open = any(holds(condition, end) for end in ways_on)
            assert (decision is Decision.NEVER) is not could_open, (condition, now)
            if decision is Decision.MET:
                assert all(holds(condition, end) for end in ways_on), (condition, now)


@pytest.mark.parametrize(
    ("condition", "statuses", "met"),
    [
        ("all-done", ["success", "dead"], True),
        ("all-success", ["success", "dead"], False),
        ("all-done", ["success", None], False),  # a work that is not there is not done
        (Count(2), ["success", "cancelled", None], True),
        (Count(2, of="success"), ["success", "dead"], False),
        ("all-success", [], True),  # nothing to wait for
        ("all-done", [], True),
        (Count(0), [], True),
        (Count(1), [], False),
        ("all-success", [Status.SUCCESS, "success"], True),  # enum or text
        ("all-done", iter(["success", "dead"]), True),  # any iterable
    ],
)
def test_conditions_by_example(condition, statuses, met):
    assert condition_met(condition, statuses) is met


def test_a_count_is_a_whole_number_of_works_that_are_done_or_succeeded():
    for n in (-1, True, 1.0, "2", None):
        with pytest.raises(TypeError, match="whole number of works, 0 or more, got: "):
            Count(n)
    with pytest.raises(ValueError, match="of='done' or of='success', got: 'dead'"):
        Count(1, of="dead")
    require_condition(Count(2), watched=2)
    with pytest.raises(ValueError, match="at most the 2 watched works, got: 3; such a gate could never open"):
        require_condition(Count(3), watched=2)


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("all-sucess", "all-success"), ("all_done", "all-done"), ("al-done", "all-done")]
)
def test_a_misspelt_condition_is_refused_with_the_nearest_one(wrong, nearest):
    with pytest.raises(ValueError, match=f"got: '{wrong}'. Did you mean '{nearest}'"):
        condition_met(wrong, [])


@pytest.mark.parametrize("wrong", [None, 1, ["all-done"], "any"])
def test_what_is_no_condition_is_refused(wrong):
    with pytest.raises(ValueError, match=r"'all-success', 'all-done' or Count\(n\)"):
        require_condition(wrong)


@given(conditions)
def test_conditions_survive_being_stored(condition):
    assert condition_from_plain(condition_to_plain(condition)) == condition


@pytest.mark.parametrize("stored", ["any", None, ["done"], {"n": 1}])
def test_a_stored_condition_that_means_nothing_is_refused(stored):
    with pytest.raises(ValueError, match="expected a condition"):
        condition_from_plain(stored)


contributions = st.lists(
    st.tuples(st.text("abc", max_size=2) | st.none(), st.booleans(), st.booleans()).map(
        lambda drawn: Contribution(
            drawn[0],
            final=drawn[1],
            append=(lambda existing: f"{existing}+{drawn[0]}") if drawn[2] else None,
        )
    ),
    max_size=8,
)
group_values = st.builds(GroupValue, st.none() | st.text("xyz", max_size=2), st.booleans())


def naive(current, contributions):
    value, final = current
    for contribution in contributions:
        if not final:
            value = contribution.append(value) if contribution.append else contribution.value
            final = contribution.final
    return GroupValue(value, final)


def plus(number, **options):
    return Contribution(number, append=lambda total: (total or 0) + number, **options)


@given(group_values, contributions)
def test_folding_agrees_with_its_description(current, contributions):
    assert fold(current, contributions) == naive(current, contributions)


@given(group_values, contributions, contributions)
def test_contributions_may_come_in_any_number_of_batches(current, first, second):
    assert fold(fold(current, first), second) == fold(current, [*first, *second])


@pytest.mark.parametrize(
    ("current", "given", "folded"),
    [
        (GroupValue(), [Contribution(1), Contribution(2)], GroupValue(2)),
        (GroupValue(), [Contribution(1, final=True), Contribution(2)], GroupValue(1, final=True)),
        (GroupValue(7), [Contribution(None)], GroupValue(None)),
        (GroupValue(), [], GroupValue()),
        (GroupValue(), [plus(1), plus(2), plus(3)], GroupValue(6)),
        (GroupValue(1), [Contribution(5, append=lambda old: old + 1)], GroupValue(2)),
        (GroupValue(1), [plus(2, final=True), Contribution(9)], GroupValue(3, final=True)),
        (GroupValue(1, final=True), [Contribution(2, append=lambda old: 1 / 0)], GroupValue(1, final=True)),
        (GroupValue(), [Contribution(1, append=lambda old: [old])], GroupValue([None])),
    ],
    ids=["last", "final", "none", "nothing", "sum", "append", "append locks", "locked", "first append"],
)
def test_the_value_of_a_group_by_example(current, given, folded):
    assert fold(current, given) == folded


def test_an_append_that_raises_is_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        fold(GroupValue(0), [Contribution(1, append=lambda existing: 1 / existing)])
