"""Tests of a project with packages that have tasks; ``make test-packages`` runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest

from tests.processes import worker_process

collect_ignore_glob = (
    [] if os.environ.get("DJANGO_SETTINGS_MODULE") == "tests.settings_packages" else ["test_*.py"]
)


@pytest.fixture
def worker(process_env: dict[str, str]) -> Iterator[Any]:
    """A worker process of the project."""
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.settings_packages"}
    with worker_process(env, "--concurrency", "2") as process:
        yield process


@pytest.fixture
def png() -> bytes:
    """A picture with corners to detect: wagtail repeats the detection while it finds nothing."""
    from PIL import Image

    file = BytesIO()
    squares = Image.new("RGB", (200, 200), "white")
    for place in ((60, 60), (100, 100)):
        squares.paste("red", (*place, place[0] + 40, place[1] + 40))
    squares.save(file, "PNG")
    return file.getvalue()
