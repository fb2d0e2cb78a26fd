"""The figures in the documentation are written by the measurements."""

import pytest

from bench.report import files
from bench.report.page import BEGIN, END, NOTES, PAGE, NoPlace, described, replaced
from bench.report.readings import Reading


def test_figures_replace_those_between_the_marks_and_nothing_else():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"

    assert replaced(page, "new\n") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(replaced(page, "new"), "newer") == replaced(page, "newer")


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(NoPlace, match="expected one"):
        replaced(page, "new")


@pytest.mark.parametrize("page", [PAGE, NOTES], ids=lambda page: page.stem)
def test_the_pages_have_their_marks(page):
    assert "new" in replaced(page.read_text(), "new")


def test_figures_at_another_scale_say_so():
    about = {"taken": "2030-01-02T03:04:05", "machine": {"cores": "2", "python": "3.13.0"}}

    assert described([about | {"scale": 1}]) == "Taken on 2030-01-02, 2 cores: python 3.13.0.\n"
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
