"""The table says each figure, what it is held against, and why a figure is missing."""

from bench.report.readings import Reading
from bench.report.table import number, render, summary
from bench.report.targets import Side, at_least

DRAIN = Side("drain", "jobs/s", "postgres")
TARGET = at_least(15, DRAIN, Side("drain", "jobs/s", "postgres", "peer"))


def reading(contestant, *rounds, database="postgres", setting="", phase="drain", reason=""):
    return Reading(phase, contestant, database, setting, "jobs/s", rounds, reason)


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


def test_what_was_not_measured_says_why():
    table = render(
        [reading("ours", 3200), Reading("drain", "peer", "postgres", "", "", (), "peer not installed")],
        [TARGET],
    )

    assert "not measured: peer not installed" in cells(table)[1]
    assert "not measured" in cells(summary([reading("ours", 3200)], [TARGET]))[0]


def test_a_round_that_failed_is_told_beside_those_that_did_not():
    assert "100 ± 10 % (its driver died)" in render(
        [reading("peer", 90, 100, 110, reason="its driver died")], []
    )


def test_peers_on_redis_are_held_against_ours_on_postgres():
    table = render(
        [
            reading("ours", 500),
            reading("ours", 100, database="sqlite"),
            reading("celery", 50, database="redis"),
        ],
        [],
    )

    assert cells(table)[2][6] == "10.0"


def test_a_target_against_another_phase_is_told_with_what_was_reached():
    two = Side("drain-two", "jobs/s", "postgres")
    known = [reading("ours", 100), reading("ours", 140, phase="drain-two")]

    table = render([known[1]], [at_least(1.3, two, DRAIN)], among=known)

    assert cells(table)[0][-2:] == ["≥ 1.3 × drain: 1.40", "met"]


def test_a_phase_is_named_once():
    table = render([reading("ours", 1), reading("peer", 1), reading("ours", 1, phase="latency")], [])

    assert [line[0] for line in cells(table)] == ["drain", "", "latency"]


def test_numbers_have_about_three_digits():
    assert [number(value) for value in (0.123, 1.5, 12.34, 123.4, 46_500.2)] == [
        "0.12",
        "1.50",
        "12.3",
        "123",
        "46 500",
    ]
