"""Outputs leave consistent tables behind, whatever a test did to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.fixtures import undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def consistent(db: None) -> Iterator[None]:
    """Check every invariant after each test."""
    from tests.invariants import assert_consistent
    from tests.outputs import works

    works.RAN.clear()
    yield
    assert_consistent()
