"""Targets, trends, the table, and the pages that the measurements write."""

import pytest

from bench.report import files
from bench.report.page import ALL, BEGIN, END, PAGE, NoPlace, described, replaced
from bench.report.readings import Reading
from bench.report.table import render, summary
from bench.report.targets import TARGETS, Side, Target, at_least, at_most
from bench.report.trends import Trend, slope

DRAIN = Side("drain", "jobs/s", "postgres")
TARGET = at_least(15, DRAIN, Side("drain", "jobs/s", "postgres", "peer"))


def result(
    *rounds, contestant="ours", setting="", phase="drain", figure="jobs/s", database="postgres", **more
):
    return Reading(phase, contestant, database, setting, figure, rounds, **more)


def reading(contestant, *rounds, **more):
    return result(*rounds, contestant=contestant, **more)


def rate(contestant="ours", setting=None, phase="drain"):
    return Side(phase, "jobs/s", "postgres", contestant, setting)


def test_a_target_is_judged_by_the_medians():
    judged = at_least(2, rate(), rate("peer")).judge(
        [result(10, 900, 20), result(9, 11, 10, contestant="peer")]
    )
    assert (judged.reached, judged.verdict) == (2, "met")


def test_rounds_that_alternate_are_held_against_each_other_one_by_one():
    target = Target(rate(), bound=0.95, at_least=True, rival=rate("peer"), is_paired=True)
    judged = target.judge([result(10, 21, 30), result(10, 20, 60, contestant="peer")])
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
    assert target.judge([result(10)]).verdict == verdict


def test_of_several_settings_the_best_or_the_named_one_counts():
    slow, fast = (result(rate, contestant="peer", setting=str(rate)) for rate in (5, 20))
    judged = at_least(1, rate(), rate("peer")).judge([result(10), slow, fast])
    assert (judged.rival, judged.reached, judged.verdict) == (fast, 0.5, "not met")
    assert at_least(1, rate(), rate("peer", "5")).judge([result(10), slow, fast]).reached == 2
    about = {"phase": "latency", "figure": "p50 ms"}
    latencies = [result(7, **about, setting="a"), result(4, **about, setting="b")]
    assert at_most(5, Side("latency", "p50 ms", "postgres")).judge(latencies).reached == 4


@pytest.mark.parametrize(
    "known",
    [
        [result(10)],
        [result(10, contestant="peer")],
        [result(10), result(contestant="peer", reason="peer not installed")],
        [result(10), result(10, contestant="peer", phase="latency")],
        [result(10), result(10, contestant="peer", database="sqlite")],
    ],
)
def test_what_was_not_measured_is_neither_met_nor_missed(known):
    judged = at_least(1, rate(), rate("peer")).judge(known)
    assert (judged.is_met, judged.verdict) == (None, "not measured")


def test_a_start_may_take_so_much_more_than_a_bare_one():
    ours = Side("start-up", "s", "sqlite")
    target = Target(ours, 0.5, False, Side("start-up", "s", "sqlite", "bare"), is_difference=True)
    about = {"phase": "start-up", "figure": "s", "database": "sqlite"}
    judged = target.judge([result(1.25, **about), result(1.0, **about, contestant="bare")])
    assert (judged.reached, judged.verdict, target.text) == (0.25, "met", "≤ 0.5 beyond")


def test_targets_do_not_repeat_themselves():
    sides = [(target.ours, target.rival) for target in TARGETS]
    assert len(sides) > 20
    assert len(set(sides)) == len(sides)


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([1, 2, 3], Trend(1, 0.5)),
        ([4, 4, 4, 4], Trend(0, 0)),
        ([3, 2, 1], Trend(-1, -0.5)),
        ([0, 0], Trend(0, 0)),
        ([7], Trend(0, 0)),
        ([], Trend(0, 0)),
    ],
)
def test_a_trend_is_the_growth_per_step_and_its_share_of_the_mean(values, trend):
    assert slope(values) == trend


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_target_stands_beside_the_best_setting_of_the_rival():
    table = render(
        [reading("ours", 3200), reading("peer", 100, setting="slow"), reading("peer", 200, setting="fast")],
        [TARGET],
    )
    assert [line[3:] for line in cells(table)] == [
        ["", "jobs/s", "3 200 (1 round)", "", "", ""],
        ["slow", "jobs/s", "100 (1 round)", "32.0", "", ""],
        ["fast", "jobs/s", "200 (1 round)", "16.0", "≥ 15 ×", "met"],
    ]


def test_rows_name_their_phase_once_and_their_failed_rounds_and_redis_is_compared_with_postgres():
    table = render([reading("ours", 1), reading("peer", 1), reading("ours", 1, phase="latency")], [])
    assert [line[0] for line in cells(table)] == ["drain", "", "latency"]
    failed = render([reading("peer", 90, 100, 110, reason="its driver died")], [])
    assert "100 ± 10 % (its driver died)" in failed
    ours = [reading("ours", 500), reading("ours", 100, database="sqlite")]
    assert cells(render([*ours, reading("celery", 50, database="redis")], []))[2][6] == "10.0"


def test_what_was_not_measured_says_why():
    table = render(
        [reading("ours", 3200), Reading("drain", "peer", "postgres", "", "", (), "peer not installed")],
        [TARGET],
    )
    assert "not measured: peer not installed" in cells(table)[1]
    assert "not measured" in cells(summary([reading("ours", 3200)], [TARGET]))[0]


def test_a_target_against_another_phase_is_shown_with_its_ratio():
    two = Side("drain-two", "jobs/s", "postgres")
    known = [reading("ours", 100), reading("ours", 140, phase="drain-two")]
    target = at_least(1.3, two, DRAIN)
    table = render([known[1]], [target], among=known)
    assert cells(table)[0][-2:] == ["≥ 1.3 × drain: 1.40", "met"]
    assert (target.judge(known).reached, target.judge(known).row) == (1.4, known[1])


def test_figures_replace_those_between_the_marks_and_nothing_else():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(page, "new\n") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(replaced(page, "new"), "newer") == replaced(page, "newer")


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(NoPlace, match="expected one"):
        replaced(page, "new")


@pytest.mark.parametrize("page", [PAGE, ALL], ids=lambda page: page.stem)
def test_the_pages_have_their_marks(page):
    assert "new" in replaced(page.read_text(), "new")


def test_figures_at_another_scale_say_so():
    about = {"taken": "2030-01-02T03:04:05", "machine": {"cores": "2", "python": "3.13.0"}}
    assert described([about | {"scale": 1}]) == "Taken on 2030-01-02 on 2 cores, with `python 3.13.0`.\n"
    assert "multiplied by 0.1" in described([about | {"scale": 0.1}])


def test_what_one_measurement_keeps_replaces_what_it_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_OUT", str(tmp_path))
    old, new, other = (Reading("drain", "ours", "sqlite", "", "jobs/s", (rate,)) for rate in (1.0, 2.0, 3.0))

    files.keep("drain", [old])
    files.keep("drain", [new])
    files.keep("latency", [other])
    assert files.kept() == [new, other]
    table = files.write_tables().read_text()
    assert [f"{rate}.00 (1 round)" in table for rate in (1, 2, 3)] == [False, True, True]


def test_phases_are_in_the_order_in_which_they_are_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_OUT", str(tmp_path))
    for phase in ("something-new", "atomic", "latency", "enqueue-one", "drain"):
        files.keep(phase, [Reading(phase, "ours", "sqlite", "", "jobs/s", (1.0,))])

    phases = [one.phase for one in files.kept()]
    assert phases == ["enqueue-one", "drain", "atomic", "latency", "something-new"]


@pytest.mark.parametrize(("scale", "found"), [("", 1000), ("0.1", 100), ("0.001", 50)])
def test_counts_are_scaled_down_to_the_least_that_makes_sense(monkeypatch, scale, found):
    monkeypatch.setenv("BENCH_SCALE", scale)
    assert files.scaled(1000, 50) == found
