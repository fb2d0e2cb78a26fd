"""Real workers, in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def consistent(transactional_db: None) -> Iterator[None]:
    """Check every invariant after each test."""
    from tests.invariants import assert_consistent

    yield
    assert_consistent()


@pytest.fixture(autouse=True)
def stage(consistent: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Give the works of this process a fresh stage; whoever still waits is let go in the end."""
    from tests.worker import works

    fresh = works.Stage()
    monkeypatch.setattr(works, "stage", fresh)
    yield fresh
    fresh.go.set()


@pytest.fixture
def short_lease_env(process_env: dict[str, str]) -> dict[str, str]:
    """The environment of worker processes whose leases lapse soon."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_short_lease"}


@pytest.fixture
def quick_polls(settings: object) -> None:
    """Workers of this process look often."""
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}  # type: ignore[attr-defined]
