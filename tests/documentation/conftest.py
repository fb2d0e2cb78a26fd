"""The documentation says what the code does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.fixtures import consistent, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def unscheduled() -> Iterator[None]:
    """No schedule outlives its test."""
    from django_ayework.define.schedules import schedules

    before = list(schedules)
    yield
    for declared in schedules:
        if declared not in before:
            declared.cancel()
