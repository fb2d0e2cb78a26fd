"""The inspection of distributions: RECORD against the disk, metadata, lines of code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from email.parser import HeaderParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.audit.inspection.distribution import Inspection, inspect, installed_locations
from example_project.audit.inspection.files import FileTooLarge, chunks, open_regular, read_bounded
from example_project.audit.inspection.findings import Kind
from example_project.audit.inspection.lines import LineCounter, counter_for
from example_project.audit.inspection.metadata import Description, describe, licence_of
from example_project.audit.inspection.records import Checked, Entry, check, parse_record, read_record

Install = Callable[..., Path]
GOOD = "sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q"  # of b"x = 1\n"


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


def test_a_distribution_without_a_readable_record_is_a_finding(install: Install, site: Path) -> None:
    location = install()
    (location / "RECORD").unlink()
    assert read_record(location) is None
    inspection = inspect(location)
    assert not inspection.has_record
    assert kinds(inspection) == {"RECORD": Kind.NO_RECORD}
    (location / "RECORD").mkdir()
    assert kinds(inspect(location)) == {"RECORD": Kind.UNREADABLE}
    gone = inspect(site / "gone-1.0.dist-info")
    assert gone.description.name == "gone"
    assert gone.problems[0].detail == "no longer installed"


@pytest.mark.parametrize("record", [b"a" * 200_000, b'"' + b"\n" * 200_000])
def test_a_record_that_is_no_csv(install: Install, record: bytes) -> None:
    assert kinds(inspect(install(record=record))) == {"RECORD": Kind.UNREADABLE}


def test_progress_is_reported_and_may_end_the_inspection(install: Install) -> None:
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


@pytest.fixture
def site_with_file(site: Path) -> Path:
    """A directory with one file that is as recorded."""
    (site / "a.py").write_bytes(b"x = 1\n")
    return site


def kind_of(checked: Checked) -> Kind | None:
    return checked.problem and checked.problem.kind


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (Entry("a.py", GOOD, "6"), None),
        (Entry("a.py", GOOD + "=", "6"), None),  # padded, as some installers wrote it
        (Entry("a.py", GOOD), None),  # no size
        (Entry("a.py", "", "6"), None),  # no hash
        (Entry("a.py"), None),  # neither: nothing to compare, but it is there
        (Entry("a.py", GOOD, "7"), Kind.CHANGED_SIZE),
        (Entry("a.py", "sha256=AAAA", "6"), Kind.CHANGED_HASH),
        (Entry("a.py", "sha256=", "6"), Kind.CHANGED_HASH),
        (Entry("a.py", "sha256=é\udcff", "6"), Kind.CHANGED_HASH),
        (Entry("a.py", "crc7=AAAA", "6"), Kind.UNREADABLE),
        (Entry("a.py", "shake_128=AAAA", "6"), Kind.UNREADABLE),
        (Entry("a.py", GOOD, "six"), Kind.UNREADABLE),
        (Entry("a.py", GOOD, "9" * 5000), Kind.UNREADABLE),
        (Entry("a.py", GOOD, "٦"), Kind.UNREADABLE),
        (Entry("b.py", GOOD, "6"), Kind.MISSING),
        (Entry("a.py/b.py"), Kind.MISSING),
        (Entry("__pycache__/b.cpython-311.pyc"), None),  # a cache may go
        (Entry("b.pyc"), Kind.MISSING),
        (Entry("."), Kind.UNREADABLE),
        (Entry("a\x00.py"), Kind.UNREADABLE),
        (Entry("a" * 5000), Kind.UNREADABLE),
        (Entry("/dev/zero", "", "1"), Kind.UNREADABLE),
    ],
)
def test_an_entry_is_compared_with_the_disk(site_with_file: Path, entry: Entry, kind: Kind | None) -> None:
    assert kind_of(check(entry, site_with_file)) == kind


def test_a_path_may_be_relative_absolute_or_a_link(site_with_file: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "demo").write_bytes(b"x = 1\n")
    (site_with_file / "link.py").symlink_to(site_with_file / "a.py")
    for path in ("../../../bin/demo", str(tmp_path / "bin" / "demo"), "link.py"):
        assert check(Entry(path, GOOD, "6"), site_with_file).problem is None
    changed = check(Entry("a.py", "sha256=AAAA", "6"), site_with_file)
    assert (changed.found, changed.size, changed.lines) == (True, 6, 1)


@pytest.mark.timeout(10)
def test_a_pipe_is_never_opened(site_with_file: Path) -> None:
    os.mkfifo(site_with_file / "pipe.py")
    checked = check(Entry("pipe.py"), site_with_file)
    assert checked.problem is not None
    assert "not a regular file" in checked.problem.detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_finding(site_with_file: Path) -> None:
    (site_with_file / "a.py").chmod(0)
    assert kind_of(check(Entry("a.py", GOOD, "6"), site_with_file)) == Kind.UNREADABLE


def test_a_path_that_is_not_utf8_is_found_and_shown_escaped(site_with_file: Path) -> None:
    path = os.fsencode(site_with_file) + b"/caf\xe9.py"
    Path(os.fsdecode(path)).write_bytes(b"x = 1\n")
    [entry] = parse_record(b"caf\xe9.py,sha256=AAAA,6\n")
    problem = check(entry, site_with_file).problem
    assert problem is not None
    assert (problem.path, problem.kind) == ("caf\\udce9.py", Kind.CHANGED_HASH)


def test_no_control_sequence_reaches_a_finding(site_with_file: Path) -> None:
    problem = check(Entry("\x1b[31mred.py"), site_with_file).problem
    assert problem is not None
    assert problem.path == "\\x1b[31mred.py"


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"", []),
        (b"a.py,sha256=x,1\r\nb.py,,\r\n", [Entry("a.py", "sha256=x", "1"), Entry("b.py")]),
        (b'"a, b.py",sha256=x,1\n', [Entry("a, b.py", "sha256=x", "1")]),
        (b"a.py\n", [Entry("a.py")]),
        (b"a.py,h,1,more,columns\n", [Entry("a.py", "h", "1")]),
        (b",h,1\n\n", []),
        (b"a.py,first,1\na.py,second,2\n", [Entry("a.py", "first", "1")]),
    ],
)
def test_parsing(data: bytes, entries: list[Entry]) -> None:
    assert parse_record(data) == entries


def test_reads_are_bounded(site_with_file: Path) -> None:
    with open_regular(site_with_file / "a.py") as (stream, _):
        assert b"".join(chunks(stream, 3)) == b"x ="
    with pytest.raises(FileTooLarge):
        read_bounded(site_with_file / "a.py", 5)


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: other", "MIT OR Apache-2.0"),
        ("License: BSD-3-Clause", "BSD-3-Clause"),
        ("License: MIT License", "MIT"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License", "MIT"),
        (
            "License: Copyright\n  and the whole text\nClassifier: License :: OSI Approved :: BSD License",
            "BSD",
        ),
        ("Classifier: License :: OSI Approved\nClassifier: License :: Public Domain", "not stated"),
        (
            "Classifier: License :: OSI Approved :: MIT License\nClassifier: License :: OSI Approved :: X",
            "MIT OR X",
        ),
        ("Classifier: Framework :: Django :: 5.2", "not stated"),
        ("", "not stated"),
    ],
)
def test_licence(headers: str, licence: str) -> None:
    assert licence_of(HeaderParser().parsestr(headers)) == licence


def directory(tmp_path: Path, name: str, files: dict[str, bytes]) -> Path:
    location = tmp_path / name
    location.mkdir()
    for file, content in files.items():
        (location / file).write_bytes(content)
    return location


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        (
            "a_b-1.dist-info",
            {"METADATA": b"Name: a-b\nVersion: 1.0\nLicense: MIT\n\nText"},
            Description("a-b", "1.0", "MIT"),
        ),
        ("old.egg-info", {"PKG-INFO": b"Name: Old\nVersion: 2\n"}, Description("Old", "2", "not stated")),
        ("lost-3.1.dist-info", {}, Description("lost", "3.1", "not stated")),
        ("lost-3.1.dist-info", {"METADATA": b""}, Description("lost", "3.1", "not stated")),
        ("lost-3.1.dist-info", {"METADATA": b"\x00\xff" * 20}, Description("lost", "3.1", "not stated")),
        (
            "x-1.dist-info",
            {"METADATA": b"Name: x\nVersion: 1\nLicense: caf\xe9\n"},
            Description("x", "1", "caf\ufffd"),
        ),
        (
            "x-1.dist-info",
            {"METADATA": b"Name: " + b"x" * 9000 + b"\nVersion: 1\n"},
            Description("x" * 199 + "…", "1", "not stated"),
        ),
    ],
)
def test_metadata_is_described_as_far_as_it_can_be_read(
    tmp_path: Path, name: str, files: dict[str, bytes], expected: Description
) -> None:
    assert describe(directory(tmp_path, name, files)) == expected


def test_metadata_may_be_a_file_or_a_directory(tmp_path: Path) -> None:
    (tmp_path / "old-2.egg-info").write_bytes(b"Name: Old\nVersion: 2\nLicense: PSF\n")
    assert describe(tmp_path / "old-2.egg-info") == Description("Old", "2", "PSF")
    location = directory(tmp_path, "x-1.dist-info", {})
    (location / "METADATA").mkdir()
    assert describe(location) == Description("x", "1", "not stated")


def count(*chunks: bytes, comment: bytes = b"#") -> int:
    counter = LineCounter(comment)
    for chunk in chunks:
        counter.feed(chunk)
    return counter.lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", 0),
        (b"\n\n", 0),
        (b"x = 1", 1),
        (b"x = 1\n", 1),
        (b"x = 1\r\ny = 2\r\n", 2),
        (b"  # only a comment\n", 0),
        (b"x = 1  # with a comment\n", 1),
        (b"\t\n x\n", 1),
        (b"\xff\xfe\x00\n", 1),
    ],
)
def test_python(content: bytes, lines: int) -> None:
    assert count(content) == lines


def test_a_comment_sign_of_two_characters() -> None:
    assert count(b"// no\n / yes\nyes\n", comment=b"//") == 2


@given(
    content=st.lists(st.sampled_from([b"x", b"#", b"/", b" ", b"\n", b"// a\n", b"b = 1\n"])).map(b"".join),
    cuts=st.lists(st.integers(min_value=0, max_value=60)),
    comment=st.sampled_from([b"#", b"//"]),
)
def test_where_the_chunks_are_cut_does_not_matter(content: bytes, cuts: list[int], comment: bytes) -> None:
    edges = [0, *sorted(cuts), len(content)]
    chunks = [content[start:end] for start, end in pairwise(edges)]
    lines = [line.strip() for line in content.split(b"\n")]
    expected = sum(1 for line in lines if line and not line.startswith(comment))
    assert count(*chunks, comment=comment) == expected


@pytest.mark.parametrize(
    ("path", "counted"), [("a.py", True), ("a/B.PYI", True), ("a.so", False), ("RECORD", False)]
)
def test_only_source_files_are_counted(path: str, counted: bool) -> None:
    assert (counter_for(path) is not None) is counted
