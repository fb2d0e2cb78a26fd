"""Supervisors and their children, in real processes."""

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


@pytest.fixture
def env(process_env: dict[str, str]) -> dict[str, str]:
    """The environment of supervisors."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.supervisor.settings"}
