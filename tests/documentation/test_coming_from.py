"""Coming from another queue: the code for this package runs, and each page has the same parts."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from django_ayework.models import Work
from django_ayework.testing import drain
from tests.docs import FENCE
from tests.documentation.pages import names, page, table, tables

INDEX = page("coming-from/index.md")
PAGES = sorted(INDEX.parent.glob("*.md"))
OTHERS = [path for path in PAGES if path != INDEX]
PARTS = ["Side by side", "Names", "What behaves differently", "Run both meanwhile", "Checklist"]
OURS = "# django-ayework: "
WORD = re.compile(r"[A-Za-z_]\w+(?:-\w+)*").findall
#: The words of the pages that other tests compare with the code, and those of examples.
KNOWN = {
    *(
        word
        for folder in ("guides", "reference")
        for path in page(folder).glob("*.md")
        for word in WORD(path.read_text())
    ),
    *("mail", "py"),
}
#: The page that names the packages that were measured, with their versions.
MEASURED = page("explanation/performance.md")


def blocks(path: Path) -> list[tuple[str, str]]:
    """Return the Python blocks of a page: the rest of the first line, which names a file, and the code."""
    found = [match[4] for match in FENCE.finditer(path.read_text()) if match[3] == "python"]
    return [(source.partition("\n")[0], source) for source in found]


def paste(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``shop.works`` of all its blocks on a page, and run the blocks that use it."""
    for name in ("shop", "shop.services", "shop.works"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for first, source in blocks(path):
        file = re.search(r"shop/(\w+)\.py", first)
        if not first.startswith(("# shop/", f"{OURS}shop/")) or file is None:
            continue
        module = sys.modules.setdefault(f"shop.{file[1]}", ModuleType(f"shop.{file[1]}"))
        exec(compile(source, str(path), "exec"), vars(module))
    sys.modules.pop("shop.views", None)


@pytest.mark.django_db
@pytest.mark.usefixtures("undeclared")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_code_for_this_package_runs_and_its_works_succeed(path, monkeypatch):
    paste(path, monkeypatch)
    drain()
    assert set(Work.objects.values_list("status", flat=True)) <= {"success", "scheduled"}
    assert Work.objects.exists() is (path != INDEX)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_each_page_has_the_same_parts_and_code_of_both_packages(path):
    text = path.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    ours = [source for first, source in blocks(path) if first.startswith(OURS)]
    theirs = [source for first, source in blocks(path) if not first.startswith(OURS)]
    assert ours and theirs
    assert not [source for source in theirs if "ayework" in source]
    assert all(first.endswith((".py", ", or in the admin")) for first, _ in blocks(path))


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_each_row_of_names_has_a_name_of_both_packages(path):
    rows = table(f"coming-from/{path.name}", "Names")
    assert len(rows) >= 10
    assert not [row for row in rows if not (row[0] and (names(row[1]) or "](" in row[1]))]


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_each_name_of_this_package_is_in_its_guides_or_its_reference(path):
    ours = {
        word
        for row in table(f"coming-from/{path.name}", "Names")
        for name in names(row[1])
        for word in WORD(name)
    }
    unknown = ours - KNOWN
    assert not unknown


def test_the_first_page_leads_to_every_other_and_names_its_version():
    rows = tables(INDEX.read_text())[0]
    assert {re.search(r"\((.+?)\)", row[2])[1] for row in rows} == {path.name for path in OTHERS}
    for name, version, _ in rows:
        [target] = [row[2] for row in rows if row[0] == name]
        text = (INDEX.parent / re.search(r"\((.+?)\)", target)[1]).read_text()
        assert version.rpartition(".")[0] in text.split("\n\n")[1], name


def test_the_comparison_names_the_versions_of_the_other_pages_and_of_the_measurements():
    rows = table("explanation/comparison.md", "The packages")
    compared = {row[0]: row[1] for row in rows}
    described = {re.match(r"[\w-]+", row[0])[0]: row[1] for row in tables(INDEX.read_text())[0]}
    assert described.items() <= compared.items()
    measured = dict(re.findall(r"`(\S+) (\d+\.\d+\.\d+)`", MEASURED.read_text()))
    known = {name.lower(): version for name, version in compared.items()}
    assert {name: known[name] for name in known.keys() & measured.keys()} == {
        name: measured[name] for name in known.keys() & measured.keys()
    }
    assert len(known.keys() & measured.keys()) >= 7


def test_the_comparison_answers_for_each_package_in_each_row():
    rows = table("explanation/comparison.md", "What they do")
    width = len(rows[0])
    assert {len(row) for row in rows} == {width}
    assert {cell for row in rows for cell in row[1:]} == {"yes", "no", "part"}
    assert [row[0] for row in rows if row[1] == "no"], "an honest comparison has rows that others win"
