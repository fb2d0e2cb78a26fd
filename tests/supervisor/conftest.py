"""Supervisors and their children, in real processes."""

from __future__ import annotations

import pytest
from django.conf import settings

from tests.fixtures import always_consistent  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture
def env(process_env: dict[str, str]) -> dict[str, str]:
    """The environment of supervisors."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.supervisor.settings"}
