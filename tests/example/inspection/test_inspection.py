"""The inspection of distributions: RECORD against the disk, metadata, lines of code."""

import os
import sys
from email.parser import HeaderParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.audit.inspection.distribution import inspect, installed_locations
from example_project.audit.inspection.files import FileTooLarge, chunks, open_regular, read_bounded
from example_project.audit.inspection.findings import Kind
from example_project.audit.inspection.lines import LineCounter, counter_for
from example_project.audit.inspection.metadata import Description, describe, licence_of
from example_project.audit.inspection.records import Entry, check, parse_record, read_record

GOOD = "sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q"  # of b"x = 1\n"
NONE = "not stated"


def kinds(inspection):
    return {problem.path: problem.kind for problem in inspection.problems}


def test_a_good_one(install):
    inspection = inspect(install(files={"demo/a.py": b"x = 1\ny = 2\n", "demo/b.bin": b"\x00" * 10}))
    assert inspection.description.name == "demo"
    assert inspection.problems == []
    assert (inspection.files, inspection.lines) == (3, 2)
    assert inspection.size > 22


def test_each_difference_is_a_finding(install, site):
    location = install(files={"a.py": b"aaa", "b.py": b"bbb", "c.py": b"ccc", "d.py": b"ddd"})
    (site / "a.py").write_bytes(b"aaaa")
    (site / "b.py").write_bytes(b"bbc")
    (site / "c.py").unlink()
    inspection = inspect(location)
    expected = {"a.py": Kind.CHANGED_SIZE, "b.py": Kind.CHANGED_HASH, "c.py": Kind.MISSING}
    assert kinds(inspection) == expected
    assert inspection.files == 4  # a, b, d and RECORD itself


def test_a_distribution_without_a_readable_record_is_a_finding(install, site):
    location = install()
    (location / "RECORD").unlink()
    assert read_record(location) is None
    inspection = inspect(location)
    assert not inspection.has_record
    assert kinds(inspection) == {"RECORD": Kind.NO_RECORD}
    (location / "RECORD").mkdir()
    for unreadable in (
        location,
        install("long", record=b"a" * 200_000),
        install("open", record=b'"' + b"\n" * 200_000),
    ):
        assert kinds(inspect(unreadable)) == {"RECORD": Kind.UNREADABLE}
    gone = inspect(site / "gone-1.0.dist-info")
    assert (gone.description.name, gone.problems[0].detail) == ("gone", "no longer installed")


def test_progress_is_reported_and_may_end_the_inspection(install):
    told = []
    location = install(files={"a.py": b"1", "b.py": b"2"})
    inspect(location, lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]

    def stop(done, total):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        inspect(location, stop)


def test_locations_are_those_of_the_path(install, site, tmp_path, monkeypatch):
    beta, alpha = install("Beta"), install("alpha")
    (tmp_path / "linked").symlink_to(site)  # as lib64 is to lib
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "linked"), str(tmp_path / "nowhere")])
    assert installed_locations() == [alpha, beta]


@pytest.fixture
def checked(site):
    """Check an entry of a directory with one file that is as recorded."""
    (site / "a.py").write_bytes(b"x = 1\n")
    return lambda *entry: check(Entry(*entry), site)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (("a.py", GOOD, "6"), None),
        (("a.py", GOOD + "=", "6"), None),  # padded, as some installers wrote it
        (("a.py", GOOD), None),  # no size
        (("a.py", "", "6"), None),  # no hash
        (("a.py",), None),  # neither: nothing to compare, but it is there
        (("a.py", GOOD, "7"), Kind.CHANGED_SIZE),
        (("a.py", "sha256=AAAA", "6"), Kind.CHANGED_HASH),
        (("a.py", "sha256=", "6"), Kind.CHANGED_HASH),
        (("a.py", "sha256=é\udcff", "6"), Kind.CHANGED_HASH),
        (("a.py", "crc7=AAAA", "6"), Kind.UNREADABLE),
        (("a.py", "shake_128=AAAA", "6"), Kind.UNREADABLE),
        (("a.py", GOOD, "six"), Kind.UNREADABLE),
        (("a.py", GOOD, "9" * 5000), Kind.UNREADABLE),
        (("a.py", GOOD, "٦"), Kind.UNREADABLE),
        (("b.py", GOOD, "6"), Kind.MISSING),
        (("a.py/b.py",), Kind.MISSING),
        (("__pycache__/b.cpython-311.pyc",), None),  # a cache may go
        (("b.pyc",), Kind.MISSING),
        ((".",), Kind.UNREADABLE),
        (("a\x00.py",), Kind.UNREADABLE),
        (("a" * 5000,), Kind.UNREADABLE),
        (("/dev/zero", "", "1"), Kind.UNREADABLE),
    ],
)
def test_an_entry_is_compared_with_the_disk(checked, entry, kind):
    problem = checked(*entry).problem
    assert (problem and problem.kind) == kind


def test_a_path_may_be_relative_absolute_or_a_link(checked, site, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "demo").write_bytes(b"x = 1\n")
    (site / "link.py").symlink_to(site / "a.py")
    for path in ("../../../bin/demo", str(tmp_path / "bin" / "demo"), "link.py"):
        assert checked(path, GOOD, "6").problem is None
    changed = checked("a.py", "sha256=AAAA", "6")
    assert (changed.found, changed.size, changed.lines) == (True, 6, 1)


@pytest.mark.timeout(10)
def test_a_pipe_is_never_opened(checked, site):
    os.mkfifo(site / "pipe.py")
    assert "not a regular file" in checked("pipe.py").problem.detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_finding(checked, site):
    (site / "a.py").chmod(0)
    assert checked("a.py", GOOD, "6").problem.kind == Kind.UNREADABLE


def test_a_path_that_is_not_utf8_is_found_and_shown_escaped_as_a_control_sequence_is(checked, site):
    Path(os.fsdecode(os.fsencode(site) + b"/caf\xe9.py")).write_bytes(b"x = 1\n")
    [entry] = parse_record(b"caf\xe9.py,sha256=AAAA,6\n")
    problem = check(entry, site).problem
    assert (problem.path, problem.kind) == ("caf\\udce9.py", Kind.CHANGED_HASH)
    assert checked("\x1b[31mred.py").problem.path == "\\x1b[31mred.py"


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
def test_parsing(data, entries):
    assert parse_record(data) == entries


def test_reads_are_bounded(checked, site):
    with open_regular(site / "a.py") as (stream, _):
        assert b"".join(chunks(stream, 3)) == b"x ="
    with pytest.raises(FileTooLarge):
        read_bounded(site / "a.py", 5)


OSI = "Classifier: License :: OSI Approved"


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: other", "MIT OR Apache-2.0"),
        ("License: BSD-3-Clause", "BSD-3-Clause"),
        ("License: MIT License", "MIT"),
        (f"License: UNKNOWN\n{OSI} :: MIT License", "MIT"),
        (f"License: Copyright\n  and the whole text\n{OSI} :: BSD License", "BSD"),
        (f"{OSI}\nClassifier: License :: Public Domain", NONE),
        (f"{OSI} :: MIT License\n{OSI} :: X", "MIT OR X"),
        ("Classifier: Framework :: Django :: 5.2", NONE),
        ("", NONE),
    ],
)
def test_licence(headers, licence):
    assert licence_of(HeaderParser().parsestr(headers)) == licence


DIST, EGG = "x-1.dist-info", "old.egg-info"


@pytest.mark.parametrize(
    ("name", "file", "content", "expected"),
    [
        (DIST, "METADATA", b"Name: a-b\nVersion: 1.0\nLicense: MIT\n\nText", ("a-b", "1.0", "MIT")),
        (EGG, "PKG-INFO", b"Name: Old\nVersion: 2\n", ("Old", "2", NONE)),
        (DIST, "other", b"", ("x", "1", NONE)),
        (DIST, "METADATA", b"", ("x", "1", NONE)),
        (DIST, "METADATA", b"\x00\xff" * 20, ("x", "1", NONE)),
        (DIST, "METADATA", b"Name: x\nVersion: 1\nLicense: caf\xe9\n", ("x", "1", "caf\ufffd")),
        (DIST, "METADATA", b"Name: " + b"x" * 9000 + b"\nVersion: 1\n", ("x" * 199 + "…", "1", NONE)),
        (DIST, "METADATA", None, ("x", "1", NONE)),
        (EGG, None, b"Name: Old\nVersion: 2\nLicense: PSF\n", ("Old", "2", "PSF")),
    ],
)
def test_metadata_is_described_as_far_as_it_can_be_read(tmp_path, name, file, content, expected):
    """It may be a file or a directory, and so may what is in it."""
    path = tmp_path / name / file if file else tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if content is None else path.write_bytes(content)
    assert describe(tmp_path / name) == Description(*expected)


PIECES = [b"x", b"#", b"/", b" ", b"\t", b"\r", b"\xff\x00", b"\n", b"// a\n", b"b = 1\n", b"c # d\r\n"]


@given(
    content=st.lists(st.sampled_from(PIECES)).map(b"".join),
    cuts=st.lists(st.integers(min_value=0, max_value=60)),
    comment=st.sampled_from([b"#", b"//"]),
)
def test_lines_count_that_are_neither_empty_nor_a_comment_wherever_the_chunks_are_cut(content, cuts, comment):
    counter = LineCounter(comment)
    for start, end in pairwise([0, *sorted(cuts), len(content)]):
        counter.feed(content[start:end])
    lines = [line.strip() for line in content.split(b"\n")]
    assert counter.lines == sum(1 for line in lines if line and not line.startswith(comment))


@pytest.mark.parametrize(
    ("path", "counted"), [("a.py", True), ("a/B.PYI", True), ("a.so", False), ("RECORD", False)]
)
def test_only_source_files_are_counted(path, counted):
    assert (counter_for(path) is not None) is counted
