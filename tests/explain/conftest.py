"""Fixtures of the tests of explanations."""

import pytest
from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def database(db):
    """Every test here queries the database."""
