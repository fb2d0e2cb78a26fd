"""Fixtures of the tests of chains."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import undeclared  # noqa: F401
from tests.flow.conftest import configure, consistent, events  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture
def blocker(consistent: None) -> Any:  # noqa: F811
    """A work that is due in a minute."""
    from django_ayework import enqueue
    from tests.app.works import add

    return enqueue(add(a=1, b=1), delay=60)
