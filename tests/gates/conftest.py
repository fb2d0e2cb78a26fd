"""Gates leave consistent tables behind, whatever a test did to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

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
