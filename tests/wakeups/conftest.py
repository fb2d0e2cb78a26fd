"""Wake-ups: published after commits, received by workers and by waits."""

import pytest
from django.conf import settings

from tests.fixtures import consistent, reported, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture
def carrier(settings):
    """What carries the wake-ups of this test: it notes them, and lets the test be another process."""
    from tests.wakeups.kit import Carrier, fresh_sender

    carrier = Carrier()
    settings.AYEWORK = {"PUBSUB": carrier, "POLL_INTERVAL": 30}
    with fresh_sender():
        yield carrier
        carrier.open()


@pytest.fixture
def unhurried(carrier, monkeypatch):
    """Messages need not keep any interval."""
    from django_ayework.flow import sending

    monkeypatch.setattr(sending, "INTERVAL", 0.0)
    monkeypatch.setattr(sending, "FLOOD_INTERVAL", 0.0)
