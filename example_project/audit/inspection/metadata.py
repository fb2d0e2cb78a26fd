"""Name, version and licence of an installed distribution.

Read leniently: ``importlib.metadata`` stops at the first byte that is not UTF-8, and an audit should
rather show the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from example_project.audit.inspection.files import read_bounded
from example_project.audit.inspection.findings import printable

MAX_METADATA = 8 << 20
UNKNOWN_LICENCE = "not stated"
SAME_LICENCE = {
    "MIT License": "MIT",
    "The MIT License": "MIT",
    "BSD License": "BSD",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "ISC License (ISCL)": "ISC",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
}


@dataclass(frozen=True, slots=True)
class Description:
    """What a distribution says about itself."""

    name: str
    version: str
    licence: str


def describe(location: Path) -> Description:
    """Return the description of the distribution whose metadata is at ``location``."""
    headers = _headers(location)
    name, version = name_and_version(location)
    return Description(
        name=printable(str(headers.get("Name") or name), 200),
        version=printable(str(headers.get("Version") or version), 100),
        licence=printable(licence_of(headers), 200),
    )


def name_and_version(location: Path) -> tuple[str, str]:
    """Return what the name of the metadata directory says.

    >>> name_and_version(Path("/x/django_tasks-0.12.0.dist-info"))
    ('django_tasks', '0.12.0')
    >>> name_and_version(Path("/x/distro-info-1.7.egg-info"))
    ('distro-info', '1.7')
    """
    stem = location.name.removesuffix(".dist-info").removesuffix(".egg-info")
    name, dash, version = stem.rpartition("-")
    return (name, version) if dash and version[:1].isdigit() else (stem, "")


def licence_of(headers: Message) -> str:
    """Return the licence in few words: the SPDX expression, a short free text, or the classifiers."""
    expression = str(headers.get("License-Expression") or "").strip()
    text = str(headers.get("License") or "").strip()
    # Some projects put the whole licence text here; it is no name then.
    short = text if "\n" not in text and len(text) <= 60 and text.upper() != "UNKNOWN" else ""
    found = expression or short or _from_classifiers(headers) or UNKNOWN_LICENCE
    return SAME_LICENCE.get(found, found)


def _from_classifiers(headers: Message) -> str:
    parts = [str(line).split(" :: ") for line in headers.get_all("Classifier", [])]
    names = [part[-1] for part in parts if part[0] == "License" and len(part) > 2]
    return " OR ".join(SAME_LICENCE.get(name, name) for name in names)


def _headers(location: Path) -> Message:
    # An old egg-info may be the file itself instead of a directory.
    for path in (location / "METADATA", location / "PKG-INFO", location):
        try:
            data = read_bounded(path, MAX_METADATA)
        except (OSError, ValueError):
            continue
        if data is not None:
            return HeaderParser().parsestr(data.decode("utf-8", "replace"))
    return Message()
