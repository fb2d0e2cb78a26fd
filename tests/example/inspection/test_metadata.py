"""Name, version and licence."""

from __future__ import annotations

from email.parser import HeaderParser
from pathlib import Path

import pytest

from example_project.audit.inspection.metadata import Description, describe, licence_of


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


def test_a_dist_info(tmp_path: Path) -> None:
    location = directory(
        tmp_path, "a_b-1.dist-info", {"METADATA": b"Name: a-b\nVersion: 1.0\nLicense: MIT\n\nText"}
    )
    assert describe(location) == Description("a-b", "1.0", "MIT")


def test_an_egg_info(tmp_path: Path) -> None:
    location = directory(tmp_path, "old.egg-info", {"PKG-INFO": b"Name: Old\nVersion: 2\n"})
    assert describe(location) == Description("Old", "2", "not stated")


def test_an_egg_info_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "old-2.egg-info").write_bytes(b"Name: Old\nVersion: 2\nLicense: PSF\n")
    assert describe(tmp_path / "old-2.egg-info") == Description("Old", "2", "PSF")


@pytest.mark.parametrize("files", [{}, {"METADATA": b""}, {"METADATA": b"\x00\xff" * 20}])
def test_the_directory_name_is_the_fallback(tmp_path: Path, files: dict[str, bytes]) -> None:
    location = directory(tmp_path, "lost-3.1.dist-info", files)
    assert describe(location) == Description("lost", "3.1", "not stated")


def test_other_encodings_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    location = directory(tmp_path, "x-1.dist-info", {"METADATA": b"Name: x\nVersion: 1\nLicense: caf\xe9\n"})
    assert describe(location).licence == "caf\ufffd"


def test_a_huge_name_is_cut(tmp_path: Path) -> None:
    location = directory(tmp_path, "x-1.dist-info", {"METADATA": b"Name: " + b"x" * 9000 + b"\nVersion: 1\n"})
    assert len(describe(location).name) == 200


def test_a_metadata_that_is_a_directory(tmp_path: Path) -> None:
    location = directory(tmp_path, "x-1.dist-info", {})
    (location / "METADATA").mkdir()
    assert describe(location) == Description("x", "1", "not stated")
