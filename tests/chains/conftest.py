"""Fixtures of the tests of chains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture
def consistent(db: None) -> Iterator[None]:
    """Run what is left after each test, then check every invariant."""
    from django_ayework.testing import drain
    from tests.invariants import assert_consistent

    yield
    drain(raises=False)
    assert_consistent()
