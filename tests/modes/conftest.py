"""Works whose writes and outcome belong together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.fixtures import consistent  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Give the works of this process a fresh stage; whoever still waits is let go in the end."""
    from tests.modes import works

    fresh = works.Stage()
    monkeypatch.setattr(works, "stage", fresh)
    yield fresh
    fresh.go.set()


@pytest.fixture(autouse=True)
def undeclared() -> Iterator[None]:
    """Forget the type under which tests declare handlers of their own."""
    yield
    from django_ayework.define.types import registry

    registry.unregister("modes.case")
