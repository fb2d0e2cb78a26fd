"""What the tests of doers share."""

from __future__ import annotations

import pytest

from tests.doers.kit import Stage, Time
from tests.doers.rate_limiting import Kit
from tests.fixtures import reported  # noqa: F401


@pytest.fixture
def time() -> Time:
    """A clock that stands still, and the timers that go by it."""
    return Time()


@pytest.fixture
def kit(time: Time) -> Kit:
    """Builds rate-limited doers that go by this clock."""
    return Kit(time)


@pytest.fixture
def stage() -> Stage:
    """Tasks that run in real threads until they are told to end."""
    stage = Stage()
    yield stage
    stage.end_all()
