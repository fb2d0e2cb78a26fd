"""Metrics, counted in this process."""

import pytest
from django.conf import settings

from tests.fixtures import consistent, quick_polls, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture
def counted():
    """What is counted from now on: see :class:`tests.metrics.kit.Counted`."""
    from django_ayework.contrib.prometheus import apps
    from tests.metrics.kit import Counted

    apps.connect()
    try:
        yield Counted()
    finally:
        apps.disconnect()
