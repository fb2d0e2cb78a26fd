"""An audit from its start to its report, over a few tiny distributions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from django_ayework import Abort, get_handle
from django_ayework.testing import drain
from example_project.audit import start, works
from example_project.audit.inspection.distribution import inspect
from example_project.audit.models import Audit, Finding, Package
from example_project.audit.packages import keep_package
from example_project.audit.progress import Phase, progress_of
from example_project.audit.start import start_audit

pytestmark = pytest.mark.django_db
Install = Callable[..., Path]


@pytest.fixture
def installed(install: Install, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three distributions: a good one, one with a missing file, one without RECORD."""
    locations = [install("good"), install("broken"), install("bare")]
    (locations[1].parent / "broken.py").unlink()
    (locations[2] / "RECORD").unlink()
    monkeypatch.setattr(works, "installed_locations", lambda: locations)
    return locations


def run_audit() -> Audit:
    audit = start_audit()
    drain()
    audit.refresh_from_db()
    return audit


def test_an_audit_ends_in_a_report(installed: list[Path]) -> None:
    audit = run_audit()
    assert audit.expected == 3
    assert audit.finished_at is not None
    assert audit.report["totals"] | {"size": 0, "files": 0} == {
        "packages": 3,
        "files": 0,
        "size": 0,
        "lines": 1,
        "broken": 1,
        "unrecorded": 1,
        "uninspected": 0,
    }
    assert audit.report["licences"] == [{"name": "MIT", "packages": 3}]
    assert [(file["path"], file["kind"]) for file in audit.report["broken"]] == [("broken.py", "missing")]
    assert progress_of(audit).phase is Phase.FINISHED


def test_the_totals_are_the_value_of_the_group(installed: list[Path]) -> None:
    audit = run_audit()
    assert get_handle(audit.work_id).group(timeout=1) == audit.report["totals"]


def test_an_inspection_that_dies_does_not_stop_the_report(
    installed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(location: Path, on_file: Callable[[int, int], None]) -> object:
        if location == installed[0]:
            raise Abort("no")
        return inspect(location, on_file)

    monkeypatch.setattr(works, "inspect", fragile)
    audit = run_audit()
    assert audit.report["totals"]["packages"] == 2
    assert audit.report["totals"]["uninspected"] == 1


def test_a_second_delivery_leaves_one_row(install: Install) -> None:
    audit = Audit.objects.create()
    location = install("demo")
    (location.parent / "demo.py").unlink()
    for _ in range(2):
        keep_package(audit.pk, location, inspect(location))
    assert Package.objects.count() == 1
    assert Finding.objects.count() == 1


def test_two_installations_of_one_name_are_two_packages(install: Install, tmp_path: Path) -> None:
    audit = Audit.objects.create()
    location = install("demo")
    other = tmp_path / "other" / location.name
    other.mkdir(parents=True)
    keep_package(audit.pk, location, inspect(location))
    keep_package(audit.pk, other, inspect(other))
    assert audit.packages.count() == 2


def test_no_audit_without_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(start, "enqueue", refuse)
    with pytest.raises(RuntimeError):
        start_audit()
    assert not Audit.objects.exists()


def test_many_files_report_progress(installed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "FILES_PER_NOTE", 1)
    assert run_audit().report is not None
