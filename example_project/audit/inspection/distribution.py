"""One installed distribution, looked at from head to foot."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from example_project.audit.inspection.findings import Kind, Problem, printable
from example_project.audit.inspection.metadata import Description, describe
from example_project.audit.inspection.records import Checked, Entry, check, read_record


@dataclass(slots=True)
class Inspection:
    """What was found: the description, how much there is of it, and what is wrong."""

    description: Description
    has_record: bool = True
    files: int = 0
    size: int = 0
    lines: int = 0
    problems: list[Problem] = field(default_factory=list)

    def add(self, checked: Checked) -> None:
        """Count one file."""
        self.files += checked.found
        self.size += checked.size
        self.lines += checked.lines
        if checked.problem:
            self.problems.append(checked.problem)


def installed_locations() -> list[Path]:
    """Return where the metadata of every installed distribution lies, sorted by name.

    A distribution that is installed twice on the path is two of them. Those inside zip files have no
    path of their own and are left out.
    """
    found = {getattr(distribution, "_path", None) for distribution in metadata.distributions()}
    # The directory is resolved, as lib64 is often a link to lib; what lies in it is taken as it is named.
    paths = {path.parent.resolve() / path.name for path in found if isinstance(path, Path)}
    return sorted(paths, key=lambda path: (path.name.lower(), str(path)))


def inspect(location: Path, on_file: Callable[[int, int], None] | None = None) -> Inspection:
    """Verify every file of the distribution whose metadata is at ``location``.

    ``on_file(done, total)`` is called after each file; what it raises ends the inspection.
    """
    inspection = Inspection(describe(location))
    entries = _entries(location, inspection)
    for done, entry in enumerate(entries, start=1):
        inspection.add(check(entry, location.parent))
        if on_file:
            on_file(done, len(entries))
    return inspection


def _entries(location: Path, inspection: Inspection) -> list[Entry]:
    try:
        entries = read_record(location)
    except (OSError, ValueError, csv.Error) as error:
        inspection.problems.append(Problem("RECORD", Kind.UNREADABLE, printable(str(error))))
        return []
    if entries is None:
        inspection.has_record = False
        detail = "nothing to compare the files with" if location.exists() else "no longer installed"
        inspection.problems.append(Problem("RECORD", Kind.NO_RECORD, detail))
    return entries or []
