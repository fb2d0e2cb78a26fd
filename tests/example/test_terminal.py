"""The audit as text."""

from __future__ import annotations

import doctest
from io import StringIO

from example_project.audit import terminal
from example_project.audit.progress import Phase, Progress
from example_project.audit.report import Broken, Report
from example_project.audit.templatetags import audit_numbers
from example_project.audit.terminal import ProgressBar, report_lines


def test_examples_in_docstrings() -> None:
    for module in (terminal, audit_numbers):
        assert doctest.testmod(module).failed == 0


def test_a_terminal_is_drawn_over() -> None:
    stream = StringIO()
    bar = ProgressBar(stream.write, live=True)
    for done in (1, 1, 2):
        bar.show(Progress(Phase.INSPECTING, done, 2))
    bar.close()
    assert stream.getvalue().count("\r") == 2
    assert stream.getvalue().endswith("\n")


def test_anything_else_gets_a_line_now_and_then() -> None:
    stream = StringIO()
    bar = ProgressBar(stream.write, live=False)
    for done in range(1001):
        bar.show(Progress(Phase.INSPECTING, done, 1000))
    bar.close()
    assert len(stream.getvalue().splitlines()) == 11
    assert "\r" not in stream.getvalue()


def test_a_long_report_is_cut_and_says_so() -> None:
    broken = [Broken(package="p", path=str(number), kind="missing", detail="") for number in range(30)]
    totals = {
        "packages": 1,
        "files": 9,
        "size": 1,
        "lines": 2,
        "broken": 70,
        "unrecorded": 1,
        "uninspected": 2,
    }
    report = Report(totals=totals, largest=[], licences=[], broken=broken, unrecorded=["bare 1"])
    text = "\n".join(report_lines(report))
    assert "  … and 50 more" in text
    assert "2 packages could not be inspected" in text
    assert "Without RECORD\n  bare 1" in text
    assert "Largest" not in text
