"""Whether a target is met, and what is said of what was not measured."""

import pytest

from bench.report.readings import Reading
from bench.report.targets import TARGETS, Side, Target, at_least, at_most


def reading(
    *rounds, contestant="ours", setting="", phase="drain", figure="jobs/s", database="postgres", **more
):
    return Reading(phase, contestant, database, setting, figure, rounds, **more)


def rate(contestant="ours", setting=None, phase="drain"):
    return Side(phase, "jobs/s", "postgres", contestant, setting)


def test_a_target_is_judged_by_the_medians():
    judged = at_least(2, rate(), rate("peer")).judge(
        [reading(10, 900, 20), reading(9, 11, 10, contestant="peer")]
    )

    assert (judged.reached, judged.verdict) == (2, "met")


def test_rounds_that_alternate_are_held_against_each_other_one_by_one():
    target = Target(rate(), bound=0.95, at_least=True, rival=rate("peer"), is_paired=True)

    judged = target.judge([reading(10, 21, 30), reading(10, 20, 60, contestant="peer")])

    assert (judged.reached, judged.verdict) == (1, "met")


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (at_least(10, rate()), "met"),
        (at_least(10.1, rate()), "not met"),
        (at_most(10, rate()), "met"),
        (at_most(9.9, rate()), "not met"),
    ],
)
def test_a_bound_is_met_at_the_bound(target, verdict):
    assert target.judge([reading(10)]).verdict == verdict


def test_of_several_settings_of_a_peer_its_best_counts():
    slow, fast = reading(5, contestant="peer", setting="slow"), reading(20, contestant="peer", setting="fast")

    judged = at_least(1, rate(), rate("peer")).judge([reading(10), slow, fast])

    assert (judged.rival, judged.reached, judged.verdict) == (fast, 0.5, "not met")


def test_of_several_latencies_the_lowest_is_the_best():
    p50 = Side("latency", "p50 ms", "postgres")
    about = {"phase": "latency", "figure": "p50 ms"}

    judged = at_most(5, p50).judge([reading(7, **about, setting="a"), reading(4, **about, setting="b")])

    assert judged.reached == 4


def test_a_target_that_names_a_setting_is_judged_by_it():
    known = [reading(10), reading(5, contestant="peer", setting="slow"), reading(20, contestant="peer")]

    assert at_least(1, rate(), rate("peer", "slow")).judge(known).reached == 2


@pytest.mark.parametrize(
    "known",
    [
        [reading(10)],
        [reading(10, contestant="peer")],
        [reading(10), reading(contestant="peer", reason="peer not installed")],
        [reading(10), reading(10, contestant="peer", phase="latency")],
        [reading(10), reading(10, contestant="peer", database="sqlite")],
    ],
)
def test_what_was_not_measured_is_neither_met_nor_missed(known):
    judged = at_least(1, rate(), rate("peer")).judge(known)

    assert (judged.is_met, judged.verdict) == (None, "not measured")


def test_two_workers_are_held_against_one():
    target = at_least(1.3, rate(phase="drain-two"), rate())
    two = reading(13, phase="drain-two")

    judged = target.judge([reading(10), two])

    assert (judged.reached, judged.verdict, judged.row) == (1.3, "met", two)


def test_a_start_may_take_so_much_more_than_a_bare_one():
    ours = Side("start-up", "s", "sqlite")
    target = Target(ours, 0.5, False, Side("start-up", "s", "sqlite", "bare"), is_difference=True)
    about = {"phase": "start-up", "figure": "s", "database": "sqlite"}

    judged = target.judge([reading(1.25, **about), reading(1.0, **about, contestant="bare")])

    assert (judged.reached, judged.verdict, target.text) == (0.25, "met", "≤ 0.5 beyond")


def test_targets_do_not_repeat_themselves():
    sides = [(target.ours, target.rival) for target in TARGETS]

    assert len(sides) > 20
    assert len(set(sides)) == len(sides)
