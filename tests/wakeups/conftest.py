"""Wake-ups: published after commits, received by workers and by waits."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import consistent, reported, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture
def carrier(settings: Any) -> Any:
    """What carries the wake-ups of this test: it notes them, and lets the test be another process."""
    from django_ayework.flow.notify import sender
    from tests.wakeups.kit import Carrier

    carrier = Carrier()
    settings.AYEWORK = {"PUBSUB": carrier, "POLL_INTERVAL": 30}
    sender.stop()
    sender.reset()
    yield carrier
    carrier.open()
    sender.stop()
    sender.reset()


@pytest.fixture
def unhurried(carrier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages need not keep any interval."""
    from django_ayework.flow import sending

    monkeypatch.setattr(sending, "INTERVAL", 0.0)
    monkeypatch.setattr(sending, "FLOOD_INTERVAL", 0.0)
