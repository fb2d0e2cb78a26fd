from importlib import import_module
from types import SimpleNamespace

import pytest

from django_ayework.doers import base
from tests.doers.kit import Kit, Stage, Time
from tests.fixtures import reported  # noqa: F401


@pytest.fixture
def time():
    """A clock that stands still, and the timers that go by it."""
    return Time()


@pytest.fixture
def kit(time, monkeypatch):
    """Builds rate-limited doers that go by this clock."""
    rate_limited = import_module("django_ayework.doers.rate_limited")  # a function has its name, too
    monkeypatch.setattr(rate_limited, "Timer", time.timer)
    monkeypatch.setattr(rate_limited, "now", time.now)
    return Kit(time)


@pytest.fixture
def watches_by_time(time, monkeypatch):
    """Lets the watches of backlogs go by this clock."""
    monkeypatch.setattr(base, "Timer", time.timer)
    monkeypatch.setattr(base, "time", SimpleNamespace(monotonic=time.seconds))


@pytest.fixture
def stage():
    """Tasks that run in real threads until they are told to end."""
    stage = Stage()
    yield stage
    stage.end_all()
