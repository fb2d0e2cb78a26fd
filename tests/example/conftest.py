"""Tiny distributions on the disk, good and broken."""

import base64
import hashlib

import pytest
from django.conf import settings

# The inspection is plain Python; without a configured Django only its tests are collected.
collect_ignore_glob = [] if settings.configured else ["test_*.py"]
METADATA = b"Name: demo\nVersion: 1.0\nLicense-Expression: MIT\n"


def recorded(content):
    """Return the hash as installers write it: URL-safe base64 without padding."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


@pytest.fixture
def site(tmp_path):
    """A site-packages directory, deep enough for paths that climb to ``bin``."""
    path = tmp_path / "lib" / "python" / "site-packages"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def install(site):
    """Install a distribution: writes the files and a true RECORD; returns its metadata directory."""

    def install(name="demo", files=None, record=None):
        location = site / f"{name}-1.0.dist-info"
        location.mkdir()
        lines = []
        for path, content in (files or {f"{name}.py": b"x = 1\n"}).items():
            target = site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            lines.append(f"{path},{recorded(content)},{len(content)}")
        (location / "METADATA").write_bytes(METADATA)
        lines.append(f"{location.name}/RECORD,,")
        (location / "RECORD").write_bytes("\n".join(lines).encode() if record is None else record)
        return location

    return install
