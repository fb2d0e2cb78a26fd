"""Fixtures of the tests of gates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.fixtures import undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def consistent(db: None) -> Iterator[None]:
    """Check every invariant after each test."""
    from tests.gates import works
    from tests.invariants import assert_consistent

    works.RAN.clear()
    works.BROKEN.clear()
    yield
    assert_consistent()
