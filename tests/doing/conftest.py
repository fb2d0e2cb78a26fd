"""Works that doers run in a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.fixtures import consistent, quick_polls, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Give the works of this process a fresh stage; whoever still waits is let go in the end."""
    from tests.doing import works

    fresh = works.Stage()
    monkeypatch.setattr(works, "stage", fresh)
    yield fresh
    fresh.go.set()
