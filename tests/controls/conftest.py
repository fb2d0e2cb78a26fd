"""Controls of types and queues."""

from __future__ import annotations

import pytest
from django.conf import settings

from tests.fixtures import quick_polls  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def empty():
    """Nothing has run yet."""
    from tests.controls import works

    works.RAN.clear()
    yield
