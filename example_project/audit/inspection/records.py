"""RECORD: the list of files that an installer left behind, and whether they are still as they were.

The file is read here and not through ``importlib.metadata``: since Python 3.12 its ``files`` leaves out
what is missing, which is the very thing to be found.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from example_project.audit.inspection.files import chunks, open_regular, read_bounded
from example_project.audit.inspection.findings import Kind, Problem, printable
from example_project.audit.inspection.lines import counter_for

MAX_RECORD = 64 << 20


class UnknownHash(ValueError):
    """RECORD gives a hash that cannot be computed here."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of RECORD: a path relative to the installation, its hash and its size, as written."""

    path: str
    hash: str = ""
    size: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """A recorded file as it was found."""

    found: bool = False
    size: int = 0
    lines: int = 0
    problem: Problem | None = None


def read_record(location: Path) -> list[Entry] | None:
    """Return the entries of a distribution's RECORD, each path once; None when there is no RECORD.

    Raises OSError or ``csv.Error`` when it cannot be read.
    """
    data = read_bounded(location / "RECORD", MAX_RECORD)
    return None if data is None else parse_record(data)


def parse_record(data: bytes) -> list[Entry]:
    r"""Return the entries of a RECORD; undecodable bytes in paths are kept as the file system has them.

    >>> parse_record(b"a.py,sha256=x,3\n\na.py,,\n")
    [Entry(path='a.py', hash='sha256=x', size='3')]
    """
    text = data.decode("utf-8", "surrogateescape")
    rows = csv.reader(io.StringIO(text, newline=""))
    entries: dict[str, Entry] = {}
    for row in rows:
        if row and row[0]:
            entries.setdefault(row[0], Entry(*row[:3]))
    return list(entries.values())


def check(entry: Entry, root: Path) -> Checked:
    """Compare one recorded file with what lies on the disk; never raises for what it finds there."""
    try:
        # Joined as text: an absolute path and one that climbs with ``..`` are both legal in RECORD.
        with open_regular(os.path.join(root, entry.path)) as (stream, size):
            return _compare(entry, size, stream)
    except (FileNotFoundError, NotADirectoryError):
        return Checked(problem=None if is_cache(entry.path) else problem(entry, Kind.MISSING))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Checked(problem=problem(entry, Kind.UNREADABLE, reason))


def problem(entry: Entry, kind: Kind, detail: str = "") -> Problem:
    """Return a finding about the file of this entry."""
    return Problem(printable(entry.path), kind, printable(detail))


def is_cache(path: str) -> bool:
    """Tell a byte-code cache, which may come and go.

    >>> is_cache("a/__pycache__/b.cpython-311.pyc")
    True
    """
    return path.endswith(".pyc") and "__pycache__" in path.split("/")


def _compare(entry: Entry, size: int, stream: Any) -> Checked:
    wrong = _wrong_size(entry, size)
    digest = None if wrong else _digest_of(entry)
    counter = counter_for(entry.path)
    feeds = [consumer for consumer in (digest and digest.update, counter and counter.feed) if consumer]
    if feeds:
        for chunk in chunks(stream, size):
            for feed in feeds:
                feed(chunk)
    wrong = wrong or (_wrong_hash(entry, digest) if digest else None)
    return Checked(found=True, size=size, lines=counter.lines if counter else 0, problem=wrong)


def _wrong_size(entry: Entry, size: int) -> Problem | None:
    if not entry.size:
        return None
    # Longer numbers than this are nobody's file size, and int() refuses very long ones.
    if not (entry.size.isascii() and entry.size.isdigit() and len(entry.size) < 20):
        return problem(entry, Kind.UNREADABLE, f"RECORD gives a size that is no number: {entry.size!r}")
    if int(entry.size) == size:
        return None
    return problem(entry, Kind.CHANGED_SIZE, f"{int(entry.size)} bytes recorded, {size} found")


def _digest_of(entry: Entry) -> Any:
    if not entry.hash:
        return None
    algorithm = entry.hash.partition("=")[0].lower()
    if algorithm not in hashlib.algorithms_guaranteed or algorithm.startswith("shake"):
        raise UnknownHash(f"RECORD gives a hash of an unknown kind: {algorithm!r}")
    return hashlib.new(algorithm, usedforsecurity=False)


def _wrong_hash(entry: Entry, digest: Any) -> Problem | None:
    recorded = entry.hash.partition("=")[2].rstrip("=")
    found = base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")
    if recorded == found:
        return None
    return problem(entry, Kind.CHANGED_HASH, f"{digest.name} {recorded[:12]}… recorded, {found[:12]}… found")
