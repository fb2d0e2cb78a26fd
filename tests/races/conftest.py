"""Real threads and processes, in many rounds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]
HERE = Path(__file__).parent

#: Whether to run the races in full, as ``make races`` does; ``make test`` runs fewer rounds.
FULL = os.environ.get("AYEWORK_RACES") == "full"
ROUNDS = 200 if FULL else 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.races)


@pytest.fixture(autouse=True)
def consistent(transactional_db: None) -> Iterator[None]:
    """Check every invariant after each test."""
    from tests.invariants import assert_consistent

    yield
    assert_consistent()
