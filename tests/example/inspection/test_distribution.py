"""A whole distribution."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from example_project.audit.inspection.distribution import Inspection, inspect, installed_locations
from example_project.audit.inspection.findings import Kind

Install = Callable[..., Path]


def kinds(inspection: Inspection) -> dict[str, Kind]:
    return {problem.path: problem.kind for problem in inspection.problems}


def test_a_good_one(install: Install) -> None:
    inspection = inspect(install(files={"demo/a.py": b"x = 1\ny = 2\n", "demo/b.bin": b"\x00" * 10}))
    assert inspection.description.name == "demo"
    assert inspection.problems == []
    assert (inspection.files, inspection.lines) == (3, 2)
    assert inspection.size > 22


def test_each_difference_is_a_finding(install: Install, site: Path) -> None:
    location = install(files={"a.py": b"aaa", "b.py": b"bbb", "c.py": b"ccc", "d.py": b"ddd"})
    (site / "a.py").write_bytes(b"aaaa")
    (site / "b.py").write_bytes(b"bbc")
    (site / "c.py").unlink()
    expected = {"a.py": Kind.CHANGED_SIZE, "b.py": Kind.CHANGED_HASH, "c.py": Kind.MISSING}
    inspection = inspect(location)
    assert kinds(inspection) == expected
    assert inspection.files == 4  # a, b, d and RECORD itself


def test_without_record(install: Install) -> None:
    location = install()
    (location / "RECORD").unlink()
    inspection = inspect(location)
    assert not inspection.has_record
    assert kinds(inspection) == {"RECORD": Kind.NO_RECORD}


def test_uninstalled_meanwhile(site: Path) -> None:
    inspection = inspect(site / "gone-1.0.dist-info")
    assert inspection.description.name == "gone"
    assert inspection.problems[0].detail == "no longer installed"


@pytest.mark.parametrize("record", [b"a" * 200_000, b'"' + b"\n" * 200_000])
def test_a_record_that_is_no_csv(install: Install, record: bytes) -> None:
    assert kinds(inspect(install(record=record))) == {"RECORD": Kind.UNREADABLE}


def test_a_record_that_is_a_directory(install: Install) -> None:
    location = install()
    (location / "RECORD").unlink()
    (location / "RECORD").mkdir()
    assert kinds(inspect(location)) == {"RECORD": Kind.UNREADABLE}


def test_progress_is_told_and_may_end_the_inspection(install: Install) -> None:
    told: list[tuple[int, int]] = []
    location = install(files={"a.py": b"1", "b.py": b"2"})
    inspect(location, lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]

    def stop(done: int, total: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        inspect(location, stop)


def test_locations_are_those_of_the_path(
    install: Install, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beta, alpha = install("Beta"), install("alpha")
    (tmp_path / "linked").symlink_to(site)  # as lib64 is to lib
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "linked"), str(tmp_path / "nowhere")])
    assert installed_locations() == [alpha, beta]
