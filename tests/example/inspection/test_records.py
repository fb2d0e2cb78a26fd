"""RECORD against the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from example_project.audit.inspection.files import FileTooLarge, chunks, open_regular, read_bounded
from example_project.audit.inspection.findings import Kind
from example_project.audit.inspection.records import Checked, Entry, check, parse_record, read_record

GOOD = "sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q"  # of b"x = 1\n"


@pytest.fixture
def site(site: Path) -> Path:
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
def test_an_entry_is_compared_with_the_disk(site: Path, entry: Entry, kind: Kind | None) -> None:
    assert kind_of(check(entry, site)) == kind


def test_size_and_lines_are_counted_also_for_changed_files(site: Path) -> None:
    checked = check(Entry("a.py", "sha256=AAAA", "6"), site)
    assert (checked.found, checked.size, checked.lines) == (True, 6, 1)


def test_a_path_may_climb_out_of_the_installation(site: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "demo").write_bytes(b"x = 1\n")
    assert check(Entry("../../../bin/demo", GOOD, "6"), site).problem is None


def test_an_absolute_path_is_taken_as_it_is(site: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x = 1\n")
    assert check(Entry(str(tmp_path / "data"), GOOD, "6"), site).problem is None


def test_a_link_to_a_file_is_the_file(site: Path) -> None:
    (site / "link.py").symlink_to(site / "a.py")
    assert check(Entry("link.py", GOOD, "6"), site).problem is None


@pytest.mark.timeout(10)
def test_a_pipe_is_never_opened(site: Path) -> None:
    os.mkfifo(site / "pipe.py")
    checked = check(Entry("pipe.py"), site)
    assert checked.problem is not None
    assert "not a regular file" in checked.problem.detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_finding(site: Path) -> None:
    (site / "a.py").chmod(0)
    assert kind_of(check(Entry("a.py", GOOD, "6"), site)) == Kind.UNREADABLE


def test_a_path_that_is_not_utf8_is_found_and_shown_escaped(site: Path) -> None:
    path = os.fsencode(site) + b"/caf\xe9.py"
    Path(os.fsdecode(path)).write_bytes(b"x = 1\n")
    [entry] = parse_record(b"caf\xe9.py,sha256=AAAA,6\n")
    problem = check(entry, site).problem
    assert problem is not None
    assert (problem.path, problem.kind) == ("caf\\udce9.py", Kind.CHANGED_HASH)


def test_no_control_sequence_reaches_a_finding(site: Path) -> None:
    problem = check(Entry("\x1b[31mred.py"), site).problem
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


def test_no_record_is_none(site: Path) -> None:
    assert read_record(site) is None


def test_chunks_stop_at_the_size(site: Path) -> None:
    with open_regular(site / "a.py") as (stream, _):
        assert b"".join(chunks(stream, 3)) == b"x ="


def test_a_bounded_read_refuses_what_is_larger(site: Path) -> None:
    with pytest.raises(FileTooLarge):
        read_bounded(site / "a.py", 5)
