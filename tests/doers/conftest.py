import pytest

from tests.doers.kit import Kit, Stage, Time
from tests.fixtures import reported  # noqa: F401


@pytest.fixture
def time():
    """A clock that stands still, and the timers that go by it."""
    return Time()


@pytest.fixture
def kit(time):
    """Builds rate-limited doers that go by this clock."""
    return Kit(time)


@pytest.fixture
def stage():
    """Tasks that run in real threads until they are told to end."""
    stage = Stage()
    yield stage
    stage.end_all()
