"""Coming from another queue: the code for this package runs, and each page has the same parts."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from django_ayework.models import Work
from django_ayework.testing import drain
from tests.documentation import pages
from tests.documentation.pages import headings, names, page, section, table, tables

INDEX = page("coming-from/index.md")
PAGES = sorted(INDEX.parent.glob("*.md"))
OTHERS = [path for path in PAGES if path != INDEX]
PARTS = ["Side by side", "Names", "What behaves differently", "Run both meanwhile", "Checklist"]
OURS = "# django-ayework: "
WORD = re.compile(r"[A-Za-z_]\w+(?:-\w+)*").findall
#: The words of the pages that other tests compare with the code, and those of examples.
CHECKED = [path for folder in ("guides", "reference") for path in page(folder).glob("*.md")]
KNOWN = {"mail", "py"}.union(*(WORD(path.read_text()) for path in CHECKED))


def blocks(path: Path) -> list[tuple[str, str]]:
    """Return the Python blocks of a page: the rest of the first line, which names a file, and the code."""
    return [(source.partition("\n")[0], source) for source in pages.blocks(path, "python")]


def paste(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``shop.works`` of all its blocks on a page, and run the blocks that use it."""
    for name in ("shop", "shop.services", "shop.works"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for first, source in blocks(path):
        file = re.search(r"shop/(\w+)\.py", first)
        if first.startswith(("# shop/", f"{OURS}shop/")) and file is not None:
            module = sys.modules.setdefault(f"shop.{file[1]}", ModuleType(f"shop.{file[1]}"))
            exec(compile(source, str(path), "exec"), vars(module))
    sys.modules.pop("shop.views", None)


@pytest.mark.django_db
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_code_for_this_package_runs_and_its_works_succeed(path, monkeypatch):
    paste(path, monkeypatch)
    drain()
    assert set(Work.objects.values_list("status", flat=True)) <= {"success", "scheduled"}
    assert Work.objects.exists() is (path != INDEX)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_each_page_has_the_same_parts_and_code_and_names_of_both_packages(path):
    assert headings(path) == PARTS
    ours = [source for first, source in blocks(path) if first.startswith(OURS)]
    theirs = [source for first, source in blocks(path) if not first.startswith(OURS)]
    assert ours and theirs
    assert not [source for source in theirs if "ayework" in source]
    assert all(first.endswith((".py", ", or in the admin")) for first, _ in blocks(path))
    rows = [row for each in tables(section(path, "Names")) for row in each]
    assert len(rows) >= 10
    assert not [row for row in rows if not (row[0] and (names(row[1]) or "](" in row[1]))]
    unknown = {word for row in rows for name in names(row[1]) for word in WORD(name)} - KNOWN
    assert not unknown, "each name of this package is in its guides or its reference"


def test_the_first_page_leads_to_every_other_and_names_its_version():
    rows = tables(INDEX.read_text())[0]
    targets = {name: re.search(r"\((.+?)\)", link)[1] for name, _, link in rows}
    assert set(targets.values()) == {path.name for path in OTHERS}
    for name, version, _ in rows:
        introduction = (INDEX.parent / targets[name]).read_text().split("\n\n")[1]
        assert version.rpartition(".")[0] in introduction, name


def test_the_comparison_names_the_versions_of_the_other_pages_and_of_the_measurements():
    compared = {row[0]: row[1] for row in table("explanation/comparison.md", "The packages")}
    described = {re.match(r"[\w-]+", row[0])[0]: row[1] for row in tables(INDEX.read_text())[0]}
    assert described.items() <= compared.items()
    measured = dict(re.findall(r"`(\S+) (\d+\.\d+\.\d+)`", page("explanation/performance.md").read_text()))
    known = {name.lower(): version for name, version in compared.items() if name.lower() in measured}
    assert known.items() <= measured.items()
    assert len(known) >= 7


def test_the_comparison_answers_for_each_package_in_each_row():
    rows = table("explanation/comparison.md", "What they do")
    assert {len(row) for row in rows} == {len(rows[0])}
    assert {cell for row in rows for cell in row[1:]} == {"yes", "no", "part"}
    assert [row[0] for row in rows if row[1] == "no"], "an honest comparison has rows that others win"
