"""``manage.py audit``, its works, its text, its settings and its charts; and the examples in docstrings."""

import doctest
from importlib import import_module
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Abort, Status, get_handle
from django_ayework.testing import drain
from example_project.audit import progress, start, works
from example_project.audit.charts import LABEL, bar_chart, shares, text_bars
from example_project.audit.inspection.distribution import inspect
from example_project.audit.models import Audit, Finding, Package
from example_project.audit.packages import keep_package
from example_project.audit.progress import Phase, Progress, progress_of
from example_project.audit.report import Broken, Report
from example_project.audit.start import start_audit
from example_project.audit.terminal import ProgressBar, report_lines
from example_project.settings import database

MODULES = ["charts", "inspection.findings", "inspection.lines", "inspection.metadata", "inspection.records"]


@pytest.mark.parametrize("name", [*MODULES, "terminal", "templatetags.audit_numbers"])
def test_examples_in_docstrings(name):
    results = doctest.testmod(import_module(f"example_project.audit.{name}"))
    assert (results.attempted > 0, results.failed) == (True, 0)


class Terminal(StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def installed(install, monkeypatch):
    """Three distributions: a good one, one with a missing file, one without RECORD."""
    locations = [install("good"), install("broken"), install("bare")]
    (locations[1].parent / "broken.py").unlink()
    (locations[2] / "RECORD").unlink()
    monkeypatch.setattr(works, "installed_locations", lambda: locations)
    return locations


@pytest.mark.django_db
@pytest.mark.usefixtures("installed")
def test_without_waiting(client):
    out = StringIO()
    call_command("audit", wait=False, stdout=out)
    audit = Audit.objects.get()
    first, second = out.getvalue().splitlines()
    assert first == f"{audit} is queued; page: {audit.get_absolute_url()}"
    page = client.get(second.rpartition(" ")[2]).content.decode()
    assert f"<h1>{audit}</h1>" in page
    assert "Waiting to start" in page


@pytest.mark.django_db
@pytest.mark.usefixtures("installed")
def test_no_answer_of_a_worker_and_a_dead_root_are_errors(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", -1)
    err = StringIO()
    with pytest.raises(CommandError, match=r"No worker answered within 0\.5 s"):
        call_command("audit", timeout=0.5, stdout=StringIO(), stderr=err)
    assert err.getvalue().count("ayework_worker") == 1
    dead = SimpleNamespace(type="audit.x", status=Status.dead, attempt=3, error="boom", reason="exhausted")
    monkeypatch.setattr(progress, "get_handle", lambda id: SimpleNamespace(state=lambda: dead))
    with pytest.raises(CommandError, match="failed: boom") as raised:
        call_command("audit", stdout=StringIO())
    assert raised.value.returncode == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_with_a_worker_inside(stream):
    out = stream()
    call_command("audit", with_worker=True, timeout=60, stdout=out)
    printed = out.getvalue()
    expected = (
        "3 packages",
        "1 broken files",
        "Largest packages",
        "broken.py: missing",
        "Page:",
        "3/3 finished",
    )
    assert [text for text in ("Page:", *expected) if text not in printed] == []
    # On a terminal every drawing but the first goes over the one before it.
    assert printed.count("\n\r") == (1 if stream is Terminal else 0)


def run_audit():
    audit = start_audit()
    drain()
    audit.refresh_from_db()
    return audit


@pytest.mark.django_db
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("files_per_note", [None, 1])
def test_an_audit_ends_in_a_report_whose_totals_are_the_value_of_the_group(monkeypatch, files_per_note):
    monkeypatch.setattr(works, "FILES_PER_NOTE", files_per_note or works.FILES_PER_NOTE)
    audit = run_audit()
    assert audit.expected == 3
    assert audit.finished_at is not None
    zero = {"size": 0, "files": 0, "uninspected": 0}
    assert audit.report["totals"] | zero == zero | {"packages": 3, "lines": 1, "broken": 1, "unrecorded": 1}
    assert audit.report["totals"]["uninspected"] == 0
    assert audit.report["licences"] == [{"name": "MIT", "packages": 3}]
    assert [(file["path"], file["kind"]) for file in audit.report["broken"]] == [("broken.py", "missing")]
    assert progress_of(audit).phase is Phase.FINISHED
    assert get_handle(audit.work_id).group(timeout=1) == audit.report["totals"]


@pytest.mark.django_db
def test_an_inspection_that_dies_does_not_stop_the_report(installed, monkeypatch):
    def fragile(location, on_file):
        if location == installed[0]:
            raise Abort("no")
        return inspect(location, on_file)

    monkeypatch.setattr(works, "inspect", fragile)
    totals = run_audit().report["totals"]
    assert (totals["packages"], totals["uninspected"]) == (2, 1)


@pytest.mark.django_db
def test_each_installation_is_one_row_however_often_it_is_delivered(install, tmp_path):
    audit = Audit.objects.create()
    location = install("demo")
    (location.parent / "demo.py").unlink()
    for _ in range(2):
        keep_package(audit.pk, location, inspect(location))
    assert (Package.objects.count(), Finding.objects.count()) == (1, 1)
    other = tmp_path / "other" / location.name
    other.mkdir(parents=True)
    keep_package(audit.pk, other, inspect(other))
    assert audit.packages.count() == 2


@pytest.mark.django_db
def test_no_audit_without_its_work(monkeypatch):
    def refuse(*args, **options):
        raise RuntimeError

    monkeypatch.setattr(start, "enqueue", refuse)
    with pytest.raises(RuntimeError):
        start_audit()
    assert not Audit.objects.exists()


def drawn(live, total, steps):
    stream = StringIO()
    bar = ProgressBar(stream.write, live=live)
    for done in steps:
        bar.show(Progress(Phase.INSPECTING, done, total))
    bar.close()
    return stream.getvalue()


def test_a_terminal_is_drawn_over_and_anything_else_gets_a_line_now_and_then():
    on_terminal, elsewhere = drawn(True, 2, (1, 1, 2)), drawn(False, 1000, range(1001))
    assert (on_terminal.count("\r"), on_terminal[-1]) == (2, "\n")
    assert (elsewhere.count("\r"), len(elsewhere.splitlines())) == (0, 11)


def test_a_long_report_is_cut_and_says_so():
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


@pytest.mark.parametrize(
    ("url", "engine", "name", "options"),
    [
        (None, "sqlite3", "db.sqlite3", {"transaction_mode": "IMMEDIATE"}),
        ("mysql://root@127.0.0.1:3306/test", "mysql", "test", {"charset": "utf8mb4"}),
        ("postgres://user:secret@localhost:5432/test", "postgresql", "test", {}),
        ("sqlite:////srv/a.sqlite3?timeout=5", "sqlite3", "/srv/a.sqlite3", {"timeout": 5}),
    ],
)
def test_the_database_of_the_settings(monkeypatch, url, engine, name, options):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    if url:
        monkeypatch.setenv("DATABASE_URL", url)
    chosen = database()
    assert chosen["ENGINE"] == f"django.db.backends.{engine}"
    assert chosen["NAME"] == name or (not url and chosen["NAME"].endswith(name))
    assert chosen["OPTIONS"].items() >= options.items()
    assert ("init_command" in chosen["OPTIONS"]) is (engine == "sqlite3")


def test_bars_start_under_their_label_and_do_not_overlap_and_a_long_label_is_cut():
    assert (bar_chart([]).bars, bar_chart([]).height, text_bars([])) == ((), 0, [])
    chart = bar_chart([("a", 10, "10 B"), ("b", 5, "5 B")])
    first, second = chart.bars
    assert first.text_y < first.y
    assert first.y + first.height < second.text_y
    assert second.y + second.height <= chart.height
    assert (first.width, second.width) == (100.0, 50.0)
    [bar] = bar_chart([("x" * 99, 1, "1 B")]).bars
    assert (len(bar.label), bar.full_label) == (LABEL, "x" * 99), "it is whole in the title"


@given(st.lists(st.integers(min_value=0, max_value=10**15)))
def test_shares_stay_within_the_chart_and_keep_the_order(values):
    widths = shares(values)
    assert all(0 <= width <= 100 for width in widths)
    assert all((width > 0) == (value > 0) for width, value in zip(widths, values, strict=True))
    paired = sorted(zip(values, widths, strict=True))
    assert [width for _, width in paired] == sorted(widths)


@pytest.mark.parametrize(("value", "blocks"), [(100, "████"), (50, "██"), (1, "▏"), (0, "")])
def test_text_bars(value, blocks):
    line = text_bars([("top", 100, "top"), ("a", value, "v")], width=4)[1]
    assert line == f"a    {blocks:<4}  v"
